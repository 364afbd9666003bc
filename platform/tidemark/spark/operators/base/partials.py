"""Keys and partial aggregates of an operator, as SQL: created from rows, merged, finished to results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.graph.model.nodes import Expression
from tidemark.graph.operators.state_names import key_column, partial_column
from tidemark.spark.columns.expressions import POSITION, TIME, column, is_name, key_hash, quoted
from tidemark.spark.frame_steps import FrameSteps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLAIN = frozenset({"count", "sum", "avg", "min", "max", "stddev", "stddev_pop", "variance", "variance_pop"})
"""Kinds of aggregates that ignore nulls and cannot fail on them."""


class Aggregating(Protocol):
    """The node of an operator that aggregates, by keys."""

    @property
    def keys(self) -> tuple[tuple[str, Expression], ...]:
        """Names and expressions of the keys."""
        ...

    @property
    def aggregates(self) -> tuple[tuple[str, Aggregate], ...]:
        """Names and aggregates."""
        ...

    @property
    def reduced(self) -> tuple[tuple[str, str | None], ...]:
        """The columns that ``reduce`` merges, none for aggregates."""
        ...


class Partials:
    """The state columns of an operator that come from its keys and aggregates.

    Args:
        node: the operator.
    """

    def __init__(self, node: Aggregating) -> None:
        self.node = node
        self.keys = [key_column(name) for name, _ in node.keys]
        self._columns = {
            name: {partial.name: partial_column(name, partial.name) for partial in aggregate.partials}
            for name, aggregate in node.aggregates
        }

    @property
    def columns(self) -> list[str]:
        """Names of the partials' columns, in order."""
        return [column for columns in self._columns.values() for column in columns.values()]

    @cached_property
    def can_fuse_counts(self) -> bool:
        """Whether rows that were filtered out before the window can be grouped together with the others."""
        keys = all(is_name(expression) for _, expression in self.node.keys)
        # A column in two spellings would be selected twice.
        names = self.columns_read
        told_apart = len({name.strip("`").lower() for name in names}) == len(names)
        return keys and told_apart and all(_is_plain(aggregate) for _, aggregate in self.node.aggregates)

    @property
    def columns_read(self) -> set[str]:
        """The columns, as written, of keys and arguments where the operator ``can_fuse_counts``."""
        arguments = (argument for _, aggregate in self.node.aggregates for argument in aggregate.arguments)
        return {str(expression).strip() for expression in (*(key for _, key in self.node.keys), *arguments)}

    @cached_property
    def key_columns(self) -> list[Column]:
        """The keys of rows, named as in state."""
        return [column(expression).alias(key) for key, (_, expression) in zip(self.keys, self.node.keys, strict=True)]

    @cached_property
    def creations(self) -> list[Column]:
        """Expressions that create the partials from rows, in a groupBy."""
        order = f"struct({TIME}, {POSITION})"
        return [F.expr(partial.create.format(order=order)).alias(name) for name, _, partial in self._each()]

    def grouped(self, state: DataFrame, *by: str, extra: Sequence[str | Column] = ()) -> DataFrame:
        """Return rows of state merged to one per key and the columns ``by``."""
        # Spark widens the sum of a decimal; a state column keeps the type it was created with.
        types = {field.name: field.dataType for field in state.schema}
        merges = [_as(types[name], _filled(partial.merge, columns), name) for name, columns, partial in self._each()]
        return FrameSteps(state).group([*map(quoted, self.keys), *by], *merges, *extra).frame()

    @cached_property
    def can_run(self) -> bool:
        """Whether partials can be merged over all rows so far, by a window function."""
        return all(partial.running is not None for _, _, partial in self._each())

    def running(self, state: DataFrame, over: str) -> list[Column]:
        """Return expressions that merge the partials of all rows so far; ``over`` follows OVER. Only where ``can_run``."""
        types = {field.name: field.dataType for field in state.schema}
        return [
            F.expr((partial.running or "").format(over=f" OVER {over}", **_quoted(columns))).cast(types[name]).alias(name)
            for name, columns, partial in self._each()
        ]

    @cached_property
    def can_combine(self) -> bool:
        """Whether two rows of partials can be merged without a groupBy."""
        return all(partial.combine is not None for _, _, partial in self._each())

    def combined(self, left: str, right: str) -> list[str]:
        """Return expressions that merge the partials of two structs, either of which may be null. Only where ``can_combine``."""
        return [
            (partial.combine or "").format(
                **{f"left_{part}": f"{left}.{quoted(found)}" for part, found in columns.items()},
                **{f"right_{part}": f"{right}.{quoted(found)}" for part, found in columns.items()},
            )
            for _, columns, partial in self._each()
        ]

    @property
    def key_results(self) -> list[str]:
        """The keys of rows of state, named as in results."""
        return [f"{quoted(key)} AS {quoted(name)}" for key, (name, _) in zip(self.keys, self.node.keys, strict=True)]

    @property
    def results(self) -> list[str]:
        """The results of merged state; for ``reduce`` the row's columns."""
        made = [(name, _filled(aggregate.result, self._columns[name])) for name, aggregate in self.node.aggregates]
        if self.node.reduced:
            ((_, row),) = made
            return [f"({row}).{quoted(name)} AS {quoted(name)}" for name, _ in self.node.reduced]
        return [f"{result} AS {quoted(name)}" for name, result in made]

    @property
    def key_hash(self) -> str:
        """SQL of a number that orders the results of one window, as positions order a source's rows."""
        return key_hash(self.keys)

    def _each(self) -> list[tuple[str, dict[str, str], Partial]]:
        return [
            (self._columns[name][partial.name], self._columns[name], partial)
            for name, aggregate in self.node.aggregates
            for partial in aggregate.partials
        ]


def _as(kind: T.DataType, sql: str, name: str) -> str | Column:
    """Return an expression as a column of a type; a user's may end in a comment."""
    if isinstance(kind, T.NumericType):
        return f"CAST({sql}\n AS {kind.simpleString()}) AS {quoted(name)}"
    return F.expr(sql).cast(kind).alias(name)


def _filled(template: str, columns: dict[str, str]) -> str:
    return template.format(**_quoted(columns))


def _quoted(columns: dict[str, str]) -> dict[str, str]:
    return {name: quoted(found) for name, found in columns.items()}


def _is_plain(aggregate: Aggregate) -> bool:
    return aggregate.kind in _PLAIN and all(map(is_name, aggregate.arguments))
