"""Windows of plain aggregates group the rows that dropped out beside the others: no count and no result may show it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, Lab, Ran, elements
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.windows import WindowAssigner
from tidemark.spark.operators.window.runtimes import window_runtime_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id INT, k STRING, t BIGINT, v BIGINT"
PLAIN = {"n": tm.count(), "known": tm.count("v"), "total": tm.sum("v"), "least": tm.min("v"), "most": tm.max("v"), "mean": tm.avg("v")}
FAR_AHEAD = NOW + 10**9
HUGE = 2**63 - 1


def batch(random: Random, epoch: int) -> list[tuple[object, ...]]:
    """Rows of three kinds that come to no window, among others; the sum of their values alone would overflow."""
    rows: list[tuple[object, ...]] = []
    for number in range(120):
        kind = random.random()
        time: int | None = epoch * 50 + random.randint(-120, 60)
        value: int | None = random.choice([None, *range(-5, 100)])
        if kind < 0.1:
            time, value = random.choice([None, 2**62, -(2**62), FAR_AHEAD]), HUGE
        elif kind < 0.25:
            value = HUGE if kind < 0.15 else HUGE - 1
        rows.append((1000 * epoch + number, random.choice(["a", "b", None]), time, value))
    return rows


def run(lab: Lab, name: str, epochs: list[list[tuple[object, ...]]], extra: dict[str, Any], windows: WindowAssigner) -> Ran:
    rejected, late, bad = tm.OutputTag("rejected"), tm.OutputTag("late"), tm.OutputTag("bad")
    strategy = tm.bounded_out_of_orderness("10 ms", timestamp="t", max_future_skew="1 day")
    source = elements(*epochs, schema=SCHEMA, watermarks=strategy, malformed_to=bad)
    kept = source.filter("v < 9223372036854775806 OR v IS NULL", rejects_to=rejected).uid("kept")
    keyed = kept.with_columns(k="upper(k)").filter("k <> 'B' OR v > 0 OR k IS NULL").uid("bs").key_by("k")
    windowed = keyed.window(windows).allowed_lateness("40 ms").late_to(late).aggregate(**PLAIN, **extra).uid("w")
    node = windowed.node
    assert isinstance(node, WindowNode)
    assert window_runtime_of(node).can_fuse_counts is not bool(extra)
    streams = {
        "panes": windowed,
        "late": windowed.side_output(late),
        "rejected": kept.side_output(rejected),
        "bad": source.side_output(bad),
    }
    return lab.run(streams, job=name)


# With a session's gap a time far from all others must not be calculated with.
@pytest.mark.parametrize(("windows", "seed"), [(tm.tumbling("30 ms"), 1), (tm.session("3 ms"), 2)])
def test_plain_windows_count_and_give_what_all_others_do(spark: SparkSession, tmp_path: Path, windows: WindowAssigner, seed: int) -> None:
    random = Random(seed)
    epochs = [batch(random, epoch) for epoch in range(3)]
    # Without a row that can be used, and without any row of a window.
    epochs.insert(1, [(9000, "a", None, HUGE), (9001, "a", 10, HUGE)])
    lab = Lab(spark, tmp_path)
    plain = run(lab, "plain", epochs, {}, windows)
    other = run(lab, "other", epochs, {"ids": tm.collect_list("id")}, windows)
    columns = ("k", "window_start", "window_end", "pane_timing", "pane_index", *PLAIN)
    assert plain.of("panes", *columns) == other.of("panes", *columns)
    assert plain.of("panes", "pane_timing").count("LATE") > 3
    for output in ("late", "rejected", "bad"):
        assert len(plain.rows[output]) > 3
    assert plain.of("late", "id", "k", "t", "v") == other.of("late", "id", "k", "t", "v")
    assert plain.of("rejected", "id") == other.of("rejected", "id")
    assert plain.of("bad", "raw", "reason") == other.of("bad", "raw", "reason")
    assert [(e.sources, e.filters, e.rows_in, e.rows_out) for e in plain.epochs] == [
        (e.sources, e.filters, e.rows_in, e.rows_out) for e in other.epochs
    ]
    for one, two in zip(plain.epochs, other.epochs, strict=True):
        counted, expected = one.operators["w"], two.operators["w"]
        assert (counted.rows_in, counted.rows_accepted, counted.rows_late, counted.late_windows) == (
            expected.rows_in,
            expected.rows_accepted,
            expected.rows_late,
            expected.late_windows,
        )
        assert (counted.panes_on_time, counted.panes_late, counted.state_rows) == (
            expected.panes_on_time,
            expected.panes_late,
            expected.state_rows,
        )


def test_a_column_may_be_spelled_in_several_ways(spark: SparkSession, tmp_path: Path) -> None:
    source = elements([(1, "a", 5, 2), (2, "a", None, 40)], schema=SCHEMA)
    sums = (
        source.key_by("k").window(tm.tumbling("10 ms")).aggregate(a=tm.sum("v"), b=tm.max(" `v` "), c=tm.min("V"), d=tm.count("k")).uid("w")
    )
    ran = Lab(spark, tmp_path).run({"sums": sums})
    assert ran.of("sums", "a", "b", "c", "d") == [(2, 2, 2, 1)]
