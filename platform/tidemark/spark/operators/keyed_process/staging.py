"""Stages the elements of an epoch: those of two inputs in the same files, with the number of their input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import types as T

from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.columns.arrow_batches import unwatched
from tidemark.spark.columns.expressions import POSITION, START, TIME, column, quoted
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.contract import OperatorContext, PortInput
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.packed_input import PackedInput, Staged, are_small
from tidemark.spark.operators.keyed_process.columns import INPUT
from tidemark.spark.operators.keyed_process.layout import Elements, elements_of, keys_of_node, layout_of
from tidemark.spark.prepared.prepared_plan import WrittenRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StagedElements:
    """An epoch's elements, packed in files, with the operator's columns in the epoch."""

    layout: Layout
    elements: Elements
    staged: Staged

    @property
    def shape(self) -> str:
        """What of the pass over keys depends on them, besides files."""
        return f"{self.layout.new.simpleString()} {list(map(dict, self.elements))}"


@dataclass(frozen=True)
class StagedShape:
    """What is known of elements before they are read, since those of an earlier epoch had the same shape."""

    layout: Layout
    elements: Elements
    small_rows: bool


@dataclass(frozen=True)
class ElementStaging:
    """Stages the elements of an epoch; the plans over those that are read from files are kept between epochs.

    Args:
        node: the operator.
        known: the shapes of elements in the run, by name; filled in.
        context: of the epoch.
        tables: of the operator, which take the columns of its state.
        packing: of the epoch.
    """

    node: KeyedProcessNode
    known: dict[str, StagedShape]
    context: OperatorContext
    tables: StateTables
    packing: PackedInput

    def stage(self, inputs: Mapping[str, PortInput]) -> StagedElements | None:
        """Write the elements of an operator's inputs, by port; one Spark job. None where no input with keys has rows.

        Raises:
            UserCodeError: the keys of the two inputs are of other types.
            StateMismatchError: a column of state would change its type.
        """
        given = {port: inputs[port] for port in self.node.element_ports if port in inputs}
        if not given:
            return None
        # To read small files takes less than another task does; nothing in Python comes before.
        few = all(each.small for each in given.values())
        scanned = {port: each.scanned or each for port, each in given.items()}
        kind = ("elements", self.context.uid, self.packing.shape, "in one task" if few else "in several")
        shape = " ".join([*kind, *(f"{port} {each.shape}" for port, each in scanned.items())])
        if shape in self.known and all(each.set_counts is not None and all(each.scans) for each in scanned.values()):
            kept = self._stage_kept(shape, scanned, few=few)
            if kept is not None:
                return kept
        rows, keys, elements = staged_rows(self.node, {port: each.rows for port, each in given.items()})
        found = self.known[shape] = StagedShape(layout_of(self.node, keys, elements, rows.schema), elements, are_small(rows))
        counts = Observation()
        adopt_versions(found.layout, self.tables)
        with unwatched(self.context.spark, small_rows=found.small_rows):
            packed = WrittenRows(self._packed(rows, found.layout, counts, few=few), lambda: [counts.get])
            return StagedElements(found.layout, found.elements, self.packing.stage(packed, self.tables))

    def _stage_kept(self, shape: str, given: Mapping[str, PortInput], *, few: bool) -> StagedElements | None:
        """Return the elements, staged by a plan that was kept; None where it has to be made as a DataFrame."""
        known = self.known[shape]

        def build(numbers: Sequence[int]) -> tuple[DataFrame, Sequence[Observation]]:
            rows, observations, left = {}, [counts := Observation()], list(numbers)
            for port, each in given.items():
                rows[port], observed = each.build(tuple(left[: len(each.numbers)]))
                left = left[len(each.numbers) :]
                observations += observed
            found, _, _ = staged_rows(self.node, rows)
            return self._packed(found, known.layout, counts, few=few), observations

        adopt_versions(known.layout, self.tables)
        prepared = self.context.prepared[shape] if few else self.context.prepared.at_once(shape)
        with unwatched(self.context.spark, small_rows=known.small_rows):
            scans = [scan for each in given.values() for scan in each.scans]
            numbers = [number for each in given.values() for number in each.numbers]
            packed = prepared.rows(scans, numbers, build, session=self.context.spark)
            if packed is None:
                return None
            staged = self.packing.stage(packed, self.tables)
        observed = iter(packed.observed[1:])
        for each in given.values():
            if each.set_counts is not None:
                each.set_counts(observed)
        return StagedElements(known.layout, known.elements, staged)

    def _packed(self, rows: DataFrame, layout: Layout, counts: Observation, *, few: bool) -> DataFrame:
        names = layout.new.names
        ordered = rows if rows.schema.names == names else rows.select(*map(quoted, names))
        return self.packing.elements(ordered, counts, in_one=few)


def adopt_versions(layout: Layout, tables: StateTables) -> None:
    """Have an operator's tables take the columns of its keys' versions.

    Raises:
        StateMismatchError: a column would change its type.
    """
    tables.adopt(T.StructType([*layout.versions, T.StructField(START, T.LongType())]))


def staged_rows(node: KeyedProcessNode, inputs: Mapping[str, DataFrame]) -> tuple[DataFrame, T.StructType, Elements]:
    """Return the rows to stage of inputs with keys, by port, the types of the keys, and the columns of elements by input.

    Raises:
        UserCodeError: the keys of the two inputs are of other types.
    """
    given = [inputs.get(port) for port in node.element_ports]
    elements = elements_of(node, [() if rows is None else rows.schema.names for rows in given])
    parts, keys = [], T.StructType()
    for number, (rows, columns, expressions) in enumerate(zip(given, elements, node.port_keys, strict=False)):
        if rows is None:
            continue
        named = zip(keys_of_node(node).values(), expressions, strict=True)
        made = [column(expression).alias(stored) for stored, (_, expression) in named]
        kept = [f"{quoted(name)} AS {quoted(stored)}" for name, stored in columns.items()]
        hidden = [name for name in (TIME, POSITION) if name in rows.schema.names]
        mark = [f"{number} AS {INPUT}"] if len(given) > 1 else []
        parts.append(FrameSteps(rows).select(*made, *kept, *hidden, *mark).frame())
        types = T.StructType(parts[-1].schema.fields[: len(made)])
        _require_same(node, keys, types)
        keys = types
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts), keys, elements


def _require_same(node: KeyedProcessNode, first: T.StructType, second: T.StructType) -> None:
    for one, other in zip(first, second, strict=False):
        if one.dataType != other.dataType:
            was, now = one.dataType.simpleString(), other.dataType.simpleString()
            raise UserCodeError(
                f"the connected streams are keyed by {was} and by {now}, which have no keys in common",
                fix=f"cast the second: .key_by(id='CAST(id AS {was.upper()})')",
                uid=node.uid,
                place=node.place,
            )
