"""Which columns of state an operator has, in which table."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.graph.operators.group_aggregate.ways import SUMS, VALUE, Counted, counted, way_of
from tidemark.graph.operators.state_names import key_column, partial_column
from tidemark.spark.columns.expressions import column, quoted
from tidemark.spark.columns.schemas import has_fixed_width, nullable
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.group_aggregate.columns import GROUP_FIELDS, VALUE_FIELDS, row_key_column
from tidemark.spark.operators.group_aggregate.signed_sums import SignedSums

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class GroupLayout:
    """The columns of an operator's state.

    Over a stream that is only added to, aggregates are ``merged`` partial results. Over a changelog each is ``signed``, ``counted`` or
    ``kept``.

    Args:
        node: the operator.
    """

    def __init__(self, node: GroupAggregateNode) -> None:
        self.node = node
        self.keys = [key_column(name) for name, _ in node.keys]
        # In the input beside users' columns, which may be named as the columns of state are.
        self.input_keys = [f"__tm_group_key_{number}" for number in range(len(self.keys))]
        self.row_keys = [row_key_column(name) for name in node.row_keys or ()]
        self.merged = node.aggregates if not node.takes_back else ()
        self.signed = self._of("signed")
        self.counted = self._of("counted")
        self.kept = self._of("kept")

    def _of(self, way: str) -> tuple[tuple[str, Aggregate], ...]:
        found = self.node.aggregates if self.node.takes_back else ()
        return tuple((name, aggregate) for name, aggregate in found if way_of(aggregate) == way)

    @cached_property
    def partials(self) -> Partials:
        """The partial results of merged or kept aggregates."""
        return Partials(dataclasses.replace(self.node, aggregates=self.merged or self.kept))

    @cached_property
    def counted_sql(self) -> dict[str, Counted]:
        """The SQL of counted aggregates, by name."""
        return {name: counted(aggregate) for name, aggregate in self.counted}

    def named_keys(self) -> list[Column]:
        """Return the keys of rows of input, named as in state."""
        return [F.col(given).alias(key) for given, key in zip(self.input_keys, self.keys, strict=True)]

    def visible_keys(self) -> list[str]:
        """Return SQL of the keys of groups, named as users see them."""
        return [f"{quoted(key)} AS {quoted(name)}" for key, (name, _) in zip(self.keys, self.node.keys, strict=True)]

    def with_keys(self) -> list[Column]:
        """Return the keys of rows, named as in the input."""
        made = zip(self.node.keys, self.input_keys, strict=True)
        return [column(expression).alias(name) for (_, expression), name in made]

    @staticmethod
    def sums_column(name: str) -> str:
        """Return the column of a signed aggregate."""
        return partial_column(name, SUMS)

    @staticmethod
    def value_column(name: str) -> str:
        """Return the column of a counted aggregate."""
        return partial_column(name, VALUE)

    @property
    def sums(self) -> list[str]:
        """The columns of signed aggregates."""
        return [partial_column(name, SUMS) for name, _ in self.signed]

    @property
    def values(self) -> list[str]:
        """The columns of counted aggregates."""
        return [partial_column(name, VALUE) for name, _ in self.counted]

    @property
    def group_columns(self) -> list[str]:
        """The columns of aggregates in the table of groups."""
        return self.partials.columns if self.merged else self.sums

    @property
    def several(self) -> bool:
        """Whether there are tables beside that of groups."""
        return bool(self.counted or self.kept)

    def writes_once(self, schema: T.StructType) -> bool:
        """Whether a group is small, so that its state can be written beside what it was before; ``schema`` is as ``schema`` returns it."""
        return not self.several and all(_is_small(schema[name].dataType) for name in self.group_columns)

    def signed_over(self, rows: DataFrame) -> dict[str, SignedSums]:
        """Return the sums of signed aggregates over rows with these columns, by column."""
        return {partial_column(name, SUMS): SignedSums.over(aggregate, rows) for name, aggregate in self.signed}

    def signed_stored(self, schema: T.StructType) -> dict[str, SignedSums]:
        """Return the sums of signed aggregates as stored, by column."""
        columns = ((partial_column(name, SUMS), aggregate) for name, aggregate in self.signed)
        return {stored: SignedSums.stored(aggregate, schema[stored].dataType) for stored, aggregate in columns}

    def schema(self, rows: DataFrame) -> T.StructType:
        """Return all columns that users' columns make, of all tables, from the operator's input."""
        grouped = rows.groupBy(*self.partials.key_columns)
        fields = list(rows.select(*self.partials.key_columns).schema)
        if self.merged or self.kept:
            fields += grouped.agg(*self.partials.creations).schema.fields[len(self.keys) :]
        for stored, sums in self.signed_over(rows).items():
            fields.append(_sums_field(rows, stored, sums))
        for name, sql in self.counted_sql.items():
            fields += rows.select(F.expr(sql.value).alias(partial_column(name, VALUE))).schema
        if self.kept:
            fields += rows.select(*self.named_row_keys()).schema
        return nullable(T.StructType(fields))

    def named_row_keys(self) -> list[Column]:
        """Return the key of the input's rows, named as in state."""
        return [F.col(quoted(name)).alias(stored) for name, stored in zip(self.node.row_keys or (), self.row_keys, strict=True)]

    def groups(self, schema: T.StructType) -> T.StructType:
        """Return the columns of the table of groups; ``schema`` is as ``schema`` returns it."""
        return T.StructType([*_fields(schema, [*self.keys, *self.group_columns]), *GROUP_FIELDS])

    def counts(self, schema: T.StructType) -> T.StructType:
        """Return the columns of the table of values."""
        return T.StructType([*_fields(schema, [*self.keys, *self.values]), *VALUE_FIELDS])

    def rows(self, schema: T.StructType) -> T.StructType:
        """Return the columns of the table of rows."""
        return T.StructType(_fields(schema, [*self.keys, *self.row_keys, *self.partials.columns]))


def _sums_field(rows: DataFrame, column: str, sums: SignedSums) -> T.StructField:
    frame = rows.selectExpr(f"{sums.value} AS v", "1L AS w")
    for step in sums.steps("v"):
        frame = frame.selectExpr("*", *(f"{text} AS {name}" for name, text in step.items()))
    return T.StructField(column, frame.groupBy().agg(F.expr(sums.create("v", "w")).alias(column)).schema[0].dataType)


def _is_small(kind: T.DataType) -> bool:
    return all(_is_small(field.dataType) for field in kind) if isinstance(kind, T.StructType) else has_fixed_width(kind)


def _fields(schema: T.StructType, names: list[str]) -> list[T.StructField]:
    return [T.StructField(name, schema[name].dataType) for name in names]
