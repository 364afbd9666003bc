"""Columns of joins that keep elements: of elements as they are kept, of both sides in a join, and of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as T

from tidemark.errors import UserCodeError
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.join_keys import ResultColumn, added_names, check_names, result_columns
from tidemark.graph.operators.join_node import ElementJoinNode
from tidemark.graph.operators.registry import kind_of
from tidemark.graph.operators.state_names import element_column, key_column
from tidemark.semantics.joins.interval import SIDES, Side
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.expressions import POSITION, START, TIME, column, quoted, visible_of
from tidemark.spark.columns.schemas import ddl_of, nullable, struct_of
from tidemark.spark.operators.base.tables import is_current

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EPOCH: Final = "__tm_epoch"
SEEN: Final = "__tm_seen"
"""The watermark that an element was judged by, W(n-1) of its epoch."""

ENGINE: Final = (START, EPOCH, SEEN)


def side_column(side: Side, name: str) -> str:
    """Return the name that one of the engine's columns of a side, or a key, has in a join."""
    return f"__tm_{side}_{name.removeprefix('__tm_')}"


@dataclass(frozen=True)
class SideColumns:
    """The columns of one side's elements in state.

    Args:
        node: the operator.
        side: which one.
        row: the columns of the stream, by their types as in state.
    """

    node: ElementJoinNode
    side: Side
    row: T.StructType

    @property
    def names(self) -> list[str]:
        """The columns of the stream."""
        return self.row.names

    def stored(self, name: str) -> str:
        """Return the name that a column of the stream has in state."""
        return element_column(f"{self.side}.{name}")

    def schema(self, keys: T.StructType) -> T.StructType:
        """Return the columns of state files."""
        own = [T.StructField(self.stored(field.name), field.dataType) for field in self.row]
        return T.StructType([*keys, *own, *(T.StructField(name, T.LongType()) for name in ENGINE)])

    def joined(self, stored: DataFrame, *, with_row: bool) -> DataFrame:
        """Return elements with the names that they have in a join; without the stream's columns where these are not needed."""
        keys = [f"{quoted(name)} AS {quoted(side_column(self.side, name))}" for name in key_columns(self.node)]
        engine = [f"{name} AS {side_column(self.side, name)}" for name in ENGINE]
        return stored.selectExpr(*keys, *engine, *(quoted(self.stored(name)) for name in self.names if with_row))


def key_columns(node: ElementJoinNode) -> list[str]:
    """Return the names of keys in state."""
    return [key_column(key.name) for key in node.on]


def key_values(node: ElementJoinNode, side: Side) -> list[Column]:
    """Return the keys of a side's rows, named as in state."""
    return [column(key.left if side == "left" else key.right).alias(key_column(key.name)) for key in node.on]


def key_types(node: ElementJoinNode, side: Side, rows: DataFrame) -> T.StructType:
    """Return the types of keys of a side's rows."""
    return nullable(rows.select(*key_values(node, side)).schema)


def row_types(rows: DataFrame) -> T.StructType:
    """Return the stream's columns of rows."""
    return nullable(rows.select(*map(quoted, visible_of(rows.columns))).schema)


def check_key_types(node: ElementJoinNode, kept: T.StructType, made: T.StructType) -> None:
    """Check that the keys of one side are of the types of the other's.

    Raises:
        UserCodeError: they are not; at definition that is known only where both sides' types are.
    """
    for key, old, new in zip(node.on, kept, made, strict=True):
        one, other = old.dataType.simpleString(), new.dataType.simpleString()
        if one != other:
            raise UserCodeError(
                f"the join compares a key {key.name!r} of types {one} and {other}",
                fix=f"cast one of them: .with_columns({key.name}='CAST(... AS {one.upper()})')",
                uid=node.uid,
                place=node.place,
            )


@dataclass(frozen=True)
class ResultColumns:
    """The columns of results.

    Args:
        node: the operator.
        sides: the columns of both sides; those of the right may be missing where results have none of them.
    """

    node: ElementJoinNode
    sides: Mapping[Side, SideColumns]

    def __post_init__(self) -> None:
        """Check the names, which are known at definition only where both streams' columns are.

        Raises:
            ColumnError: both sides have a column.
        """
        if not self.node.one_sided:
            added = added_names(self.node.on, self.sides["right"].names)
            check_names(self.sides["left"].names, added, self.node, kind_of(self.node).made_by(self.node)[0])

    @cached_property
    def columns(self) -> list[ResultColumn]:
        """The columns."""
        right = [] if self.node.one_sided else self.sides["right"].names
        return result_columns(self.node.on, self.sides["left"].names, right, one_sided=self.node.one_sided)

    def of(self, *present: Side, alone: Sequence[Side] = SIDES) -> list[str]:
        """Return SQL of the columns of results from a join of both sides, or from the rows of one.

        Args:
            present: the sides whose rows the join has.
            alone: of these, the sides of which some rows have no partner.
        """
        return [*self.values(*present, alone=alone), f"{newest_time(present)} AS {TIME}"]

    def values(self, *present: Side, alone: Sequence[Side] = SIDES) -> list[str]:
        """Return the same without the time of results."""
        return [f"{self._value(each, present, alone)} AS {quoted(each.name)}" for each in self.columns]

    def _value(self, each: ResultColumn, present: Sequence[Side], alone: Sequence[Side]) -> str:
        names: dict[Side, str | None] = {"left": each.left, "right": each.right}
        found = [self._of_side(side, name) for side, name in names.items() if name is not None and side in present]
        if len(found) > 1 and "right" in alone:
            return f"coalesce({', '.join(found)})"
        return found[0] if found else f"CAST(NULL AS {ddl_of(self.type_of(each))})"

    def _of_side(self, side: Side, name: str) -> str:
        """Return SQL of a column of a side's stream; of one that the key is, the key, which the join has anyway."""
        key = self._keys.get(name.lower())
        return quoted(self.sides[side].stored(name) if key is None else side_column(side, key_column(key)))

    @cached_property
    def _keys(self) -> Mapping[str, str]:
        """The names of keys by the columns, in small letters, that they are on both sides."""
        return {key.column.lower(): key.name for key in self.node.on if key.column is not None}

    def type_of(self, each: ResultColumn) -> T.DataType:
        """Return the type of a column."""
        side: Side = "right" if each.left is None else "left"
        return self.sides[side].row[each.left or each.right or ""].dataType

    def with_position(self, results: DataFrame) -> DataFrame:
        """Return results with a position: those of one time are ordered by their content."""
        fields = [field for field in results.schema if field.name != TIME]
        values = [*map(_hashable, fields), *(f"{quoted(field.name)} IS NULL" for field in fields)]
        made = f"named_struct('origin', '{self.node.uid}', 'block', {TIME}, 'row', xxhash64({', '.join(values)}))"
        return results.selectExpr("*", f"CAST({made} AS {POSITION_TYPE.simpleString()}) AS {POSITION}")


def newest_time(present: Sequence[Side]) -> str:
    """Return SQL of the later of the times of sides in a join."""
    times = [side_column(side, START) for side in present]
    return f"greatest({', '.join(times)})" if len(times) > 1 else times[0]


def result_types(results: ResultColumns) -> T.StructType:
    """Return the types of results, without the engine's columns."""
    return T.StructType([T.StructField(each.name, results.type_of(each)) for each in results.columns])


def _hashable(field: T.StructField) -> str:
    kind = field.dataType.simpleString()
    value = quoted(field.name)
    return f"to_json(struct({value}))" if "map<" in kind or "variant" in kind else value


def state_schema(keys: T.StructType, sides: Sequence[SideColumns]) -> T.StructType:
    """Return the columns of the state of both sides: keys, and each side's columns; without the engine's own."""
    return T.StructType([*keys, *(T.StructField(each.stored(field.name), field.dataType) for each in sides for field in each.row)])


def known_columns(node: ElementJoinNode, side: Side, schema: T.StructType | None) -> SideColumns | None:
    """Return the columns of a side as far as they are known without rows of it: from stored state, and from the graph.

    Args:
        node: the operator.
        side: which one.
        schema: the columns of stored state, None where there is none.
    """
    prefix = element_column(f"{side}.")
    stored = [field for field in schema or () if field.name.startswith(prefix)]
    given = schema_of(node.inputs[SIDES.index(side)]) if node.inputs else None
    if given is None:
        fields = [T.StructField(field.name.removeprefix(prefix), field.dataType) for field in stored if is_current(field)]
        return SideColumns(node, side, T.StructType(fields)) if fields else None
    types = {field.name.removeprefix(prefix).lower(): field.dataType for field in stored}
    found = []
    for each in given.columns:
        kind = types.get(each.name.lower()) or (None if each.type is None else struct_of(f"x {each.type}")["x"].dataType)
        if kind is None:
            return None
        found.append(T.StructField(each.name, kind))
    return SideColumns(node, side, nullable(T.StructType(found)))


def unknown_columns(node: ElementJoinNode, side: Side) -> UserCodeError:
    """Return the error for results with columns of a side that never had a row, and whose types nothing says."""
    return UserCodeError(
        f"the {side} stream of the join had no rows yet, and the types of its columns are not known",
        fix="say them with a select before the join: .select('id', fare='CAST(fare AS DOUBLE)')",
        uid=node.uid,
        place=node.place,
    )
