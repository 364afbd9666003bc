"""The columns of a regular join in the engine: those that it keeps of each input, and those of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.checks.schema_inference import input_schemas
from tidemark.graph.operators.regular_join.checks import types_differ
from tidemark.graph.operators.regular_join.columns import compared_columns, kept_columns
from tidemark.graph.operators.regular_join.node import JoinSide, RegularJoinNode
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.changes import ADDS, CHANGE_TYPE
from tidemark.spark.columns.expressions import CHANGE, POSITION, TIME, column, quoted
from tidemark.spark.columns.schemas import nullable, struct_of
from tidemark.spark.operators.changelog.contents import EPOCH, GONE, HASH, lookup_hash
from tidemark.spark.operators.changelog.lifetimes import renewed_fields
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT: Final = "__tm_input"
"""The port that a row came in by."""


@dataclass(frozen=True)
class SideLayout:
    """The columns of one input.

    Args:
        port: its name.
        side: its declaration.
        names: the names in state of the columns that are kept.
        compared: the names in state of the compared values.
        expressions: what is compared.
        types: the types of kept columns and compared values, by their names in state.
    """

    port: str
    side: JoinSide
    names: Mapping[str, str]
    compared: tuple[str, ...]
    expressions: Mapping[str, object]
    types: T.StructType

    @property
    def identity(self) -> tuple[str, ...]:
        """The names in state of the changelog's key."""
        return tuple(self.names[key] for key in self.side.keys)

    @property
    def columns(self) -> T.StructType:
        """The columns of a row in state, without those that say which version it is."""
        return T.StructType([*self.types, T.StructField(TIME, T.LongType())])

    @property
    def stored(self) -> T.StructType:
        """The columns of a row in state, with that of its lifetime."""
        return T.StructType([*self.columns, *renewed_fields(self.side.ttl)])

    @property
    def hash(self) -> str:
        """SQL of the hash by which a row is looked up; one with a null among its compared values is looked up by its key only."""
        nulls = " OR ".join(f"{quoted(name)} IS NULL" for name in self.compared)
        return f"if({nulls}, {lookup_hash([*self.identity, *self.compared])}, {lookup_hash(self.compared)})"

    def delta(self, rows: DataFrame, epoch: int) -> DataFrame:
        """Return the changes of an epoch as rows of state.

        Args:
            rows: of the changelog.
            epoch: the current one.
        """
        kept = [F.col(quoted(name)).alias(stored) for name, stored in self.names.items()]
        own = set(self.names.values())
        made = [column(expression).alias(stored) for stored, expression in self.expressions.items() if stored not in own]  # type: ignore[arg-type]
        given = rows.select(*kept, *made, F.col(TIME), F.expr(f"NOT ({ADDS})").alias(GONE)).withColumn(HASH, F.expr(self.hash))
        number = F.expr(runtime_literals(epoch, varying=HASH)[0])
        return given.withColumn(EPOCH, number).withColumn(INPUT, F.lit(self.port))


class JoinLayout:
    """The columns of a join, with their types.

    Args:
        node: its declaration.
        inputs: the types of its inputs' columns and compared values, by port, by their names in state.
    """

    def __init__(self, node: RegularJoinNode, inputs: Mapping[str, T.StructType]) -> None:
        self.node = node
        self.left, self.right = (_side(node, port, inputs[port]) for port in node.PORTS)
        for number, pair in enumerate(zip(self.left.compared, self.right.compared, strict=True)):
            kinds = [side.types[name].dataType.simpleString().upper() for side, name in zip((self.left, self.right), pair, strict=True)]
            if kinds[0] != kinds[1]:
                raise types_differ(node, number, kinds)

    @property
    def sides(self) -> Mapping[str, SideLayout]:
        """The inputs by port."""
        return {"left": self.left, "right": self.right}

    @cached_property
    def state(self) -> T.StructType:
        """The columns of both inputs in state."""
        return T.StructType([*self.left.types, *self.right.types])

    @cached_property
    def results(self) -> Mapping[str, str]:
        """SQL of the columns of results over a pair of rows, ``l`` and ``r``, one of which may be null."""
        node, found = self.node, dict[str, str]()
        shared = {here: there for there, here in node.shared.items()}
        for name in node.left.columns:
            value = f"l.{quoted(self.left.names[name])}"
            if name in shared and node.how in {"right", "full"}:
                other = f"r.{quoted(self.right.names[shared[name]])}"
                value = other if node.how == "right" else f"if(l IS NULL, {other}, {value})"
            found[name] = value
        return found | {name: f"r.{quoted(self.right.names[name])}" for name in node.added}

    @cached_property
    def result_types(self) -> T.StructType:
        """The columns of results, including the engine's."""
        visible = [T.StructField(name, self.left.types[self.left.names[name]].dataType) for name in self.node.left.columns]
        visible += [T.StructField(name, self.right.types[self.right.names[name]].dataType) for name in self.node.added]
        return T.StructType(
            [*visible, T.StructField(TIME, T.LongType()), T.StructField(POSITION, POSITION_TYPE), T.StructField(CHANGE, CHANGE_TYPE)]
        )


def _side(node: RegularJoinNode, port: str, types: T.StructType) -> SideLayout:
    names, compared = kept_columns(node, port), compared_columns(node, port)
    order = dict.fromkeys([*names.values(), *(stored for stored, _ in compared)])
    fields = T.StructType([types[stored] for stored in order])
    return SideLayout(port, node.sides[port], names, tuple(stored for stored, _ in compared), dict(compared), fields)


def types_of_rows(node: RegularJoinNode, port: str, rows: DataFrame) -> T.StructType:
    """Return the types of an input's columns and compared values, by their names in state."""
    names = kept_columns(node, port)
    made = [(stored, each) for stored, each in compared_columns(node, port) if stored not in names.values()]
    chosen = [F.col(quoted(name)).alias(stored) for name, stored in names.items()]
    return nullable(rows.select(*chosen, *(column(each).alias(stored) for stored, each in made)).schema)


def known_types(node: RegularJoinNode, port: str) -> T.StructType | None:
    """Return the same as far as the graph knows them for certain, None where it does not, or where the node has no inputs."""
    from tidemark.graph.operators.registry import kind_of

    if not node.ports:
        return None
    found = kind_of(node).state_columns(node, input_schemas(node)) or {}
    names = dict.fromkeys([*kept_columns(node, port).values(), *(stored for stored, _ in compared_columns(node, port))])
    if any(found[name] is None for name in names):
        return None
    return nullable(struct_of(", ".join(f"{quoted(name)} {found[name]}" for name in names)))
