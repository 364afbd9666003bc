"""Every built-in aggregate gives what its plain Python fold gives, however elements are split into epochs and partials merged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.aggregates.rig import results, run
from tests.aggregates.streams import Row, frame, random_rows
from tests.few_rows import compiling
from tidemark.graph.model.aggregates import Aggregate
from tidemark.semantics.reference.reference_operator import Fold
from tidemark.testing import folds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CASES = 150
Agreement = Callable[[object, object, list[object]], bool]


def same(got: object, meant: object, values: list[object]) -> bool:
    """Equal, with NaN equal to NaN."""
    del values
    if isinstance(got, list) and isinstance(meant, list):
        return len(got) == len(meant) and all(same(a, b, []) for a, b in zip(got, meant, strict=True))
    both_nan = isinstance(got, float) and isinstance(meant, float) and math.isnan(got) and math.isnan(meant)
    return both_nan or (type(got) is type(meant) and got == meant)


def close(scale: Callable[[list[float]], float]) -> Agreement:
    """Within 1e-9 of the meant value plus a scale of the numbers that went in; infinite and NaN the same."""

    def agree(got: object, meant: object, values: list[object]) -> bool:
        if not isinstance(got, float) or not isinstance(meant, float) or not math.isfinite(meant):
            return same(got, meant, values)
        numbers = [abs(float(value)) for value in values if isinstance(value, int | float | Decimal)]
        return abs(got - meant) <= 1e-9 * abs(meant) + scale(numbers)

    return agree


def rounded(digits: int) -> Agreement:
    """A decimal, rounded half up to so many digits after the point."""

    def agree(got: object, meant: object, values: list[object]) -> bool:
        if not isinstance(got, Decimal) or not isinstance(meant, Decimal):
            return same(got, meant, values)
        with localcontext(prec=76):
            return got == meant.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)

    return agree


def within(error: float) -> Agreement:
    """Within a relative error; zero, NaN and infinity the same, magnitudes below the normal doubles zero."""

    def agree(got: object, meant: object, values: list[object]) -> bool:
        if not isinstance(got, float) or not isinstance(meant, float) or not math.isfinite(meant):
            return same(got, meant, values)
        return abs(got - meant) <= error * abs(meant) * (1 + 1e-9)

    return agree


nearly = close(lambda numbers: 1e-9 * math.fsum(numbers))
# Equal values whose mean is not exact leave a trace of its rounding; below the normal doubles there are few digits.
squares = close(lambda numbers: (1e-15 * max(numbers, default=0)) ** 2 + 1e-300)
roots = close(lambda numbers: 1e-15 * max(numbers, default=0) + 1e-150)


@dataclass(frozen=True)
class Case:
    """An aggregate, what it means over which values of a row, and when the two agree."""

    aggregate: Aggregate
    fold: Fold[folds.Elements]
    value: Callable[[Row], object]
    agree: Agreement = same


BUILTINS = {
    "count_all": Case(tm.count(), folds.count(), lambda row: row.case),
    "count_s": Case(tm.count("s"), folds.count(), lambda row: row.s),
    "count_braces": Case(tm.count("CASE WHEN s = '{x}' THEN 1 END"), folds.count(), lambda row: 1 if row.s == "{x}" else None),
    "sum_i": Case(tm.sum("i"), folds.sum(), lambda row: row.i),
    "sum_l": Case(tm.sum("l"), folds.sum(), lambda row: row.l),
    "sum_x": Case(tm.sum("x"), folds.sum(), lambda row: row.x, nearly),
    "sum_price": Case(tm.sum("price"), folds.sum(), lambda row: row.price),
    "sum_wide": Case(tm.sum("wide"), folds.sum(), lambda row: row.wide),
    "avg_l": Case(tm.avg("l"), folds.avg(), lambda row: row.l, nearly),
    "avg_x": Case(tm.avg("x"), folds.avg(), lambda row: row.x, nearly),
    "avg_price": Case(tm.avg("price"), folds.avg(), lambda row: row.price, rounded(6)),
    "avg_wide": Case(tm.avg("wide"), folds.avg(), lambda row: row.wide, rounded(8)),
    "min_x": Case(tm.min("x"), folds.min(), lambda row: row.x),
    "max_x": Case(tm.max("x"), folds.max(), lambda row: row.x),
    "min_s": Case(tm.min("s"), folds.min(), lambda row: row.s),
    "max_wide": Case(tm.max("wide"), folds.max(), lambda row: row.wide),
    "variance_x": Case(tm.variance("x"), folds.variance(), lambda row: row.x, squares),
    "variance_near": Case(tm.variance("near"), folds.variance(), lambda row: row.near, squares),
    "variance_price": Case(tm.variance("price"), folds.variance(), lambda row: row.price, squares),
    "variance_pop_i": Case(tm.variance_pop("i"), folds.variance_pop(), lambda row: row.i, squares),
    "stddev_near": Case(tm.stddev("near"), folds.stddev(), lambda row: row.near, roots),
    "stddev_pop_x": Case(tm.stddev_pop("x"), folds.stddev_pop(), lambda row: row.x, roots),
    "first_s": Case(tm.first("s"), folds.first(), lambda row: row.s),
    "first_x": Case(tm.first("x", ignore_nulls=True), folds.first(ignore_nulls=True), lambda row: row.x),
    "last_i": Case(tm.last("i"), folds.last(), lambda row: row.i),
    "last_s": Case(tm.last("s", ignore_nulls=True), folds.last(ignore_nulls=True), lambda row: row.s),
    "min_by": Case(tm.min_by("s", "by"), folds.min_by(), lambda row: (row.s, row.by)),
    "max_by": Case(tm.max_by("price", "by"), folds.max_by(), lambda row: (row.price, row.by)),
    "max_by_x": Case(tm.max_by("i", "x"), folds.max_by(), lambda row: (row.i, row.x)),
    "collect_list_s": Case(tm.collect_list("s"), folds.collect_list(), lambda row: row.s),
    "collect_list_x": Case(tm.collect_list("x"), folds.collect_list(), lambda row: row.x),
    "collect_set_x": Case(tm.collect_set("x"), folds.collect_set(), lambda row: row.x),
    "collect_set_s": Case(tm.collect_set("s"), folds.collect_set(), lambda row: row.s),
    "count_distinct_s": Case(tm.count_distinct("s"), folds.count_distinct(), lambda row: row.s),
    "count_distinct_two": Case(tm.count_distinct("s", "flag"), folds.count_distinct(), lambda row: (row.s, row.flag)),
    # With so few values the sketch is exact.
    "approx_count_distinct": Case(tm.approx_count_distinct("x"), folds.count_distinct(), lambda row: row.x),
    "approx_count_distinct_two": Case(tm.approx_count_distinct("s", "price"), folds.count_distinct(), lambda row: (row.s, row.price)),
    "top_x": Case(tm.top_k("x", 3), folds.top_k(3), lambda row: row.x),
    "top_s_by": Case(tm.top_k("s", 4, by="by"), folds.top_k(4, by=True), lambda row: (row.s, row.by)),
    "median": Case(tm.approx_percentile("x", 0.5), folds.percentile(0.5), lambda row: row.x, within(0.01)),
    "p99_i": Case(tm.approx_percentile("i", 0.99, relative_error=0.05), folds.percentile(0.99), lambda row: row.i, within(0.05)),
    "p7_near": Case(tm.approx_percentile("near", 0.07, relative_error=0.002), folds.percentile(0.07), lambda row: row.near, within(0.002)),
    "least": Case(tm.approx_percentile("price", 0), folds.percentile(0.0), lambda row: row.price, within(0.01)),
    "most": Case(tm.approx_percentile("x", 1.0), folds.percentile(1.0), lambda row: row.x, within(0.01)),
}
"""Every built-in appears here; ``test_all_are_here`` holds that."""

NAMES = sorted(BUILTINS)
PARTS = [NAMES[start::4] for start in range(4)]  # a few at a time: one plan of all takes long to compile


@pytest.mark.parametrize("names", PARTS, ids=["part 1", "part 2", "part 3", "part 4"])
def test_equals_its_meaning_in_many_epochs(spark: SparkSession, tmp_path: Path, names: list[str]) -> None:
    check(compiling(spark), tmp_path, names, seed=1, most_epochs=4)


def test_equals_its_meaning_in_one_epoch_without_generated_code(spark: SparkSession, tmp_path: Path) -> None:
    # Spark falls back to interpreted expressions where generated code gets too large; they have to agree.
    check(spark, tmp_path, NAMES, seed=2, most_epochs=1)


def check(spark: SparkSession, folder: Path, names: list[str], *, seed: int, most_epochs: int) -> None:
    rows = random_rows(CASES, seed=7)
    streams: dict[int, list[Row]] = {}
    for row in rows:
        streams.setdefault(row.case, []).append(row)
    aggregates = {name: BUILTINS[name].aggregate for name in names}
    got = results(
        run(frame(spark, rows, seed=seed, most_epochs=most_epochs), aggregates, folder, seed=seed, rounds=min(1, most_epochs - 1))
    )
    assert got.keys() == streams.keys()
    wrong = [
        f"{name} of stream {case}: {got[case][name]!r}, meant {meant!r}, from {values}"
        for case, stream in streams.items()
        for name in names
        for values in [[BUILTINS[name].value(row) for row in stream]]
        for meant in [meaning(BUILTINS[name], stream)]
        if not BUILTINS[name].agree(got[case][name], meant, values)
    ]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(line[:600] for line in wrong[:8])


def meaning(case: Case, stream: list[Row]) -> object:
    accumulator = case.fold.create()
    for row in stream:
        accumulator = case.fold.add(accumulator, case.value(row), row.at, row.pos)
    return case.fold.result(accumulator)


def test_all_are_here() -> None:
    from tidemark.graph.aggregates import builtin_aggregates

    kinds = {case.aggregate.kind for case in BUILTINS.values()}
    assert kinds == set(builtin_aggregates.__all__) - {"sql_aggregate", "python_aggregate"}


def test_agreement_can_fail() -> None:
    assert not same(1.0, math.nan, [])
    assert not same(1, 1.0, [])
    assert not same(None, 0, [])
    assert not nearly(1.0, 1.00001, [1.0])
    assert not within(0.01)(1.0, 1.02, [])
    assert not rounded(2)(Decimal("0.33"), Decimal("0.336"), [])
