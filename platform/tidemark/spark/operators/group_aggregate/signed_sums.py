"""Aggregates that are sums to which rows are added and from which they are taken, by the type of their argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.aggregates.aggregate_arguments import in_template
from tidemark.graph.model.aggregates import Aggregate
from tidemark.spark.operators.group_aggregate.exact_decimals import FineSums, added, divided, is_fine
from tidemark.spark.operators.group_aggregate.exact_doubles import (
    SQUARES,
    deviations_of,
    merged_sums,
    moment_columns,
    moments_of_doubles,
    sum_of,
    sums_of_doubles,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOW: Final = 2**32 - 1
_SAMPLES: Final = frozenset({"variance", "stddev"})
_ROOTS: Final = frozenset({"stddev", "stddev_pop"})
_MOMENTS: Final = frozenset({"variance", "variance_pop", *_ROOTS})
_INTEGERS: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


@dataclass(frozen=True)
class SignedSums:
    """The sums of one aggregate.

    ``form`` says of what: ``count``; ``integers``, in two halves; ``exact`` values, which are decimals and intervals, with the types
    ``total`` and ``mean``; ``fine`` ones, which are decimals of the greatest scales; ``doubles``; ``moments``, which are doubles with
    their squares.
    """

    aggregate: Aggregate
    form: str
    total: str = ""
    mean: str = ""

    @staticmethod
    def over(aggregate: Aggregate, rows: DataFrame) -> SignedSums:
        """Return those over rows with these columns."""
        if aggregate.kind == "count":
            return SignedSums(aggregate, "count")
        if aggregate.kind in _MOMENTS:
            return SignedSums(aggregate, "moments")
        argument = _argument(aggregate)
        made = rows.groupBy().agg(
            F.expr(f"first({argument})").alias("value"), F.expr(f"sum({argument})").alias("total"), F.expr(f"avg({argument})").alias("mean")
        )
        value = made.schema["value"].dataType
        if isinstance(value, _INTEGERS):
            return SignedSums(aggregate, "integers")
        if isinstance(value, T.FloatType | T.DoubleType):
            return SignedSums(aggregate, "doubles")
        total, mean = (made.schema[name].dataType.simpleString() for name in ("total", "mean"))
        return SignedSums(aggregate, "fine" if is_fine(total) else "exact", total, mean)

    @staticmethod
    def stored(aggregate: Aggregate, kind: T.DataType) -> SignedSums:
        """Return those that are stored with a type."""
        if not isinstance(kind, T.StructType):
            return SignedSums(aggregate, "count")
        if "mean" in kind.names:
            types = (kind[name].dataType.simpleString() for name in ("sum", "mean"))
            return SignedSums(aggregate, "fine" if "high" in kind.names else "exact", *types)
        if "high" in kind.names:
            return SignedSums(aggregate, "integers")
        return SignedSums(aggregate, "moments" if SQUARES.names[0] in kind.names else "doubles")

    @property
    def value(self) -> str:
        """SQL of the value of a row, which ``create`` reads from a column."""
        if self.form == "count":
            return f"{_argument(self.aggregate)} IS NOT NULL" if self.aggregate.arguments else "true"
        cast = {"integers": "BIGINT", "doubles": "DOUBLE", "moments": "DOUBLE"}.get(self.form)
        return _argument(self.aggregate) if cast is None else f"CAST({_argument(self.aggregate)} AS {cast})"

    def steps(self, column: str) -> list[dict[str, str]]:
        """Return SQL of the columns that ``create`` reads beside the column of values, in steps."""
        return moment_columns(column) if self.form == "moments" else []

    def create(self, value: str, weight: str) -> str:
        """Return SQL of the aggregate that makes the sums; ``value`` and ``weight`` are columns."""
        present = f"coalesce(sum(if({value} IS NULL, 0L, {weight})), 0L)"
        match self.form:
            case "count":
                return f"coalesce(sum(if({value}, {weight}, 0L)), 0L)"
            case "integers":
                high = f"coalesce(sum(shiftright({value}, 32) * {weight}), 0L)"
                low = f"coalesce(sum(({value} & {_LOW}L) * {weight}), 0L)"
                return f"named_struct('n', {present}, 'high', {high}, 'low', {low})"
            case "exact":
                added = f"sum(CASE WHEN {weight} > 0 THEN {value} ELSE - {value} END)"
                return f"named_struct('n', {present}, 'sum', CAST({added} AS {self.total}), 'mean', CAST(NULL AS {self.mean}))"
            case "fine":
                return self._fine_struct(present, self._fine.of(value, weight))
            case "doubles":
                return sums_of_doubles(value, weight)
        return moments_of_doubles(value, weight)

    def merged(self, before: str, delta: str) -> str:
        """Return SQL of the sums of two, either of which may be null."""
        match self.form:
            case "count":
                return f"coalesce({before}, 0L) + coalesce({delta}, 0L)"
            case "integers":
                both = ", ".join(f"'{name}', {before}.{name} + {delta}.{name}" for name in ("n", "high", "low"))
                merged = f"named_struct({both})"
            case "exact":
                both = added(f"{before}.sum", f"{delta}.sum", self.total)
                total = f"coalesce({both}, {before}.sum, {delta}.sum)"
                merged = f"named_struct('n', {before}.n + {delta}.n, 'sum', {total}, 'mean', CAST(NULL AS {self.mean}))"
            case "fine":
                merged = self._fine_struct(f"{before}.n + {delta}.n", self._fine.merged(before, delta))
            case "doubles":
                merged = merged_sums(before, delta)
            case _:
                merged = merged_sums(before, delta, squares=True)
        return f"CASE WHEN {before} IS NULL THEN {delta} WHEN {delta} IS NULL THEN {before} ELSE {merged} END"

    def result(self, sums: str) -> str:
        """Return SQL of the aggregate's result."""
        kind = self.aggregate.kind
        if self.form == "count":
            return f"coalesce({sums}, 0L)"
        if self.form == "moments":
            least = 1 if kind in _SAMPLES else 0
            value = f"({deviations_of(sums)} / ({sums}.n - {least}))"
            return f"CASE WHEN {sums}.n > {least} THEN {f'sqrt({value})' if kind in _ROOTS else value} END"
        match self.form:
            case "integers":
                whole = f"(CAST({sums}.high AS DECIMAL(20, 0)) * 4294967296BD + {sums}.low)"
                found = f"CAST({whole} AS BIGINT)" if kind == "sum" else f"CAST({whole} AS DOUBLE) / {sums}.n"
            case "exact":
                found = f"{sums}.sum" if kind == "sum" else divided(f"{sums}.sum", f"{sums}.n", self.total, self.mean)
            case "fine":
                found = self._fine.sum(sums) if kind == "sum" else self._fine.average(sums)
            case _:
                found = sum_of(sums) if kind == "sum" else f"({sum_of(sums)}) / {sums}.n"
        return f"CASE WHEN {sums}.n > 0 THEN {found} END"

    def overflows(self, sums: str) -> str | None:
        """Return SQL of whether the result does not fit its type, None where Spark raises an error then."""
        return f"{sums}.n > 0 AND {self.result(sums)} IS NULL" if self.form == "fine" else None

    @property
    def _fine(self) -> FineSums:
        return FineSums(self.total, self.mean)

    def _fine_struct(self, number: str, parts: Mapping[str, str]) -> str:
        """Return SQL of a struct, which has both types."""
        fields = ", ".join(f"'{name}', {text}" for name, text in parts.items())
        types = f"'sum', CAST(NULL AS {self.total}), 'mean', CAST(NULL AS {self.mean})"
        return f"named_struct('n', {number}, {fields}, {types})"


def _argument(aggregate: Aggregate) -> str:
    return in_template(aggregate.arguments[0]).format()
