"""Joins report which windows, or times, an epoch's late rows belong to, and which results it adds or corrects behind the watermark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tidemark.spark.operators.base.touched_times import LATE_TIMES, late_metric, late_metric_of_times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
HOUR = 60 * MINUTE
Row = tuple[datetime, str, int]
Listed = list[tuple[tuple[int, ...], tuple[int, ...]]]


def at(minute: float) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


def inputs(lefts: list[list[Row]], rights: list[list[Row]]) -> tuple[tm.Stream, tm.Stream]:
    strategies = [tm.bounded_out_of_orderness("0 ms", timestamp=column) for column in ("t", "u")]
    left = elements(*lefts, schema="t TIMESTAMP, k STRING, id INT", name="lefts", watermarks=strategies[0])
    return left, elements(*rights, schema="u TIMESTAMP, k STRING, v INT", name="rights", watermarks=strategies[1])


def listed(spark: SparkSession, folder: Path, stream: tm.Stream) -> Listed:
    """Return what each epoch of a join reports: ``late_windows`` and ``refired_windows``."""
    return all_listed(spark, folder, stream)[0]


def all_listed(spark: SparkSession, folder: Path, *streams: tm.Stream) -> list[Listed]:
    """Return the same of several operators, which run in one job."""
    named = {str(stream.node.uid): stream for stream in streams}
    epochs = Lab(spark, folder).run(named, end_of_input=False).epochs
    return [[(epoch.operators[uid].late_windows, epoch.operators[uid].refired_windows) for epoch in epochs] for uid in named]


ON = [[(at(10), "a", 1)], [(at(130), "x", 2)]]
"""Elements of two epochs; after the second the watermark is at 130 minutes."""


def test_window_joins_report_windows_that_fire_again_and_windows_of_late_elements(spark: SparkSession, tmp_path: Path) -> None:
    left, right = inputs([*ON, [(at(65), "a", 3), (at(20), "a", 4)], [(at(70), "b", 5)]], [*ON, [(at(66), "a", 6)], [(at(131), "x", 7)]])
    joined = left.window_join(right, on="k", window=tm.tumbling("1 hour"), allowed_lateness="30 minutes").uid("join")
    # The window from 60 minutes on fires, late; that from 0 on is gone. A firing without a result changes nothing.
    assert listed(spark, tmp_path, joined) == [((), ()), ((), ()), ((0,), (HOUR,)), ((), ())]


def test_sliding_window_joins_report_each_window_that_fires_again(spark: SparkSession, tmp_path: Path) -> None:
    left, right = inputs([*ON, [(at(20), "a", 4)]], [*ON, []])
    windows = tm.sliding("1 hour", "30 minutes")
    joined = left.window_join(right, on="k", how="left", window=windows, allowed_lateness="1 day").uid("join")
    assert listed(spark, tmp_path, joined)[-1] == ((), (-HOUR // 2, 0))


def test_a_sliding_window_with_gaps_reports_no_window_of_elements_between(spark: SparkSession, tmp_path: Path) -> None:
    left, right = inputs([*ON, [(at(5), "a", 4), (at(25), "a", 5)]], [*ON, []])
    joined = left.window_join(right, on="k", window=tm.sliding("10 minutes", "30 minutes")).uid("join")
    assert listed(spark, tmp_path, joined)[-1] == ((0,), ())


def test_as_of_joins_report_corrected_answers_and_answers_to_elements_behind_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    corrections: list[list[Row]] = [*ON, [(at(8), "a", 9)], [(at(131), "x", 9)]]
    left, right = inputs([*ON, [(at(131), "x", 3)], [(at(50.5), "c", 4)]], corrections)
    joined = left.join_asof(right, on="k", how="left", allowed_lateness="3 hours", key="id").uid("join")
    first, second, *rest = listed(spark, tmp_path, joined)
    assert (first, second) == (((), ()), ((), ()))
    assert rest[1] == ((), (50 * MINUTE,))


def test_a_version_that_comes_late_is_reported_by_the_times_of_the_answers(spark: SparkSession, tmp_path: Path) -> None:
    left, right = inputs([*ON, [(at(131), "x", 3)]], [[(at(5), "a", 1)], [(at(130), "x", 2)], [(at(9), "a", 3)]])
    joined = left.join_asof(right, on="k", allowed_lateness="3 hours", key="id").uid("join")
    assert listed(spark, tmp_path, joined) == [((), ()), ((), ()), ((), (10 * MINUTE,))]


def test_as_of_joins_report_the_times_of_late_elements(spark: SparkSession, tmp_path: Path) -> None:
    versions: list[list[Row]] = [[(at(5), "a", 1)], [(at(60), "a", 2), (at(130), "a", 3)], []]
    left, right = inputs([*ON, [(at(10.5), "a", 3), (at(132), "a", 4)]], versions)
    joined = left.join_asof(right, on="k", how="left").uid("join")
    assert listed(spark, tmp_path, joined)[-1] == ((10 * MINUTE,), ())


def test_interval_joins_report_late_elements_and_pairs_behind_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    lefts: list[list[Row]] = [[(at(100), "a", 1)], [(at(130), "x", 2)], [(at(101), "a", 3), (at(20), "a", 4)]]
    left, right = inputs(lefts, [[(at(102), "a", 1)], [(at(130), "x", 2)], [(at(131), "x", 3)]])
    joins = [left.join(right, on="k", how=how, within=("-40 minutes", "40 minutes")).uid(how) for how in ("inner", "left")]
    inner, outer = all_listed(spark, tmp_path, *joins)
    assert inner == [((), ()), ((), ()), ((20 * MINUTE,), (102 * MINUTE,))]
    # Of an outer join a result may come so late that the watermark of what follows has not passed it.
    assert outer[-1] == ((20 * MINUTE,), ())


def test_each_epoch_goes_by_its_own_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """Plans over few rows are kept from epoch to epoch, and their numbers are not."""
    minutes = range(200, 700, 100)
    lefts: list[list[Row]] = [[(at(minute - 10), "a", minute - 10), (at(minute), "a", minute)] for minute in minutes]
    # The second version of an epoch corrects the answers of both elements of the one before; the watermark had passed the first of them.
    left, right = inputs(lefts, [[(at(minute + 1), "a", minute), (at(minute - 115), "a", -minute)] for minute in minutes])
    answers = left.join_asof(right, on="k", how="left", allowed_lateness="1 day", key="id").uid("join")
    expected: Listed = [((), ((minute - 110) * MINUTE,)) for minute in minutes[1:]]
    assert listed(spark, tmp_path / "answers", answers)[1:] == expected
    lefts = [[(at(minute), "x", minute), (at(minute - 115), "a", minute)] for minute in minutes]
    left, right = inputs(lefts, [[(at(minute), "x", 1), (at(minute - 30), "a", 2)] for minute in minutes])
    pairs = left.join(right, on="k", within=("-40 minutes", "40 minutes")).uid("join")
    expected = [((), ((minute - 115) * MINUTE,)) for minute in minutes[1:]]
    assert listed(spark, tmp_path / "pairs", pairs)[1:] == expected


DAY = 24 * HOUR
YEAR = 365 * DAY


def test_rows_of_all_times_make_a_bounded_set(spark: SparkSession) -> None:
    """Each of a hundred million rows could have a minute of its own; the driver gets so many times only of those that are near."""
    rows = spark.range(400_000).selectExpr("id AS n", f"id * {30 * MINUTE}L - {10 * YEAR}L AS t").where(f"t < {13 * YEAR}L")
    for step, most in ((None, 120_000), (1_000, 120_000)):
        found = rows.selectExpr(late_metric("true", "t", f"({13 * YEAR}L - t)", step=step)).first()
        assert found is not None
        assert len(found[LATE_TIMES]) < most


@pytest.mark.parametrize(
    ("days", "step", "listed"),
    [
        (34, None, MINUTE),
        (35, None, 15 * MINUTE),
        (521, None, HOUR),
        (2100, None, DAY),
        (9000, DAY, 1),
        (9000, HOUR, DAY),
        (1, 1_000, MINUTE),
    ],
)
def test_late_times_are_exact_as_far_as_they_may_be_many(spark: SparkSession, days: int, step: int | None, listed: int) -> None:
    time = 50 * YEAR + 7 * HOUR + 47 * MINUTE + 123
    least = time + days * DAY
    rows = spark.range(1).selectExpr(f"{time}L AS t", f"array({time}L, {time}L) AS ts")
    assert rows.selectExpr(late_metric("t > 0", "t", f"({least}L - t)", step=step)).first() == ([time - time % listed],)
    assert rows.selectExpr(late_metric("t < 0", "t", f"({least}L - t)", step=step)).first() == ([],)
    if step is None:
        assert rows.selectExpr(late_metric_of_times("ts", f"{least}L")).first() == ([time - time % listed],)
        # After the end of input all is far behind.
        assert rows.selectExpr(late_metric_of_times("ts", f"{2**61}L")).first() == ([time - time % HOUR],)


def test_windows_of_long_ago_are_named_by_about_when_they_begin(spark: SparkSession, tmp_path: Path) -> None:
    long_ago = -(2 * 365 * 24 * 60) + 47
    left, right = inputs([*ON, [(at(long_ago), "a", 3), (at(20), "a", 4)]], [*ON, []])
    joined = left.window_join(right, on="k", window=tm.sliding("10 minutes", "5 minutes")).uid("join")
    counted = left.key_by("k").window(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("window")
    gaps = left.key_by("k").window(tm.sliding("4 minutes", "10 minutes")).aggregate(n=tm.count()).uid("gaps")
    of_join, of_window, of_gaps = all_listed(spark, tmp_path / "few", joined, counted, gaps)
    assert of_join[-1] == ((-2 * YEAR, 20 * MINUTE), ())
    # Few windows are named exactly, whenever they are.
    assert of_window[-1] == ((long_ago * MINUTE, 20 * MINUTE), ())
    assert of_gaps[-1] == ((20 * MINUTE,), ())
    with mock.patch("tidemark.spark.operators.base.late_metrics.MAX_GROUPS", 1):
        assert listed(spark, tmp_path / "many", counted)[-1] == ((-2 * YEAR, 20 * MINUTE), ())
