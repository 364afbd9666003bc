"""Interval joins in the engine, beyond what all kinds keep: epochs without input, what follows, the size of state, keys and columns."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.engine.lab import MINUTE, NOW, Lab, elements, run_on
from tidemark.cli.program.main import main
from tidemark.spark.epoch.background_jobs import run_at_once
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WITHIN = ("-1 minute", "10 minutes")


def test_outer_rows_come_in_epochs_without_input(spark: SparkSession, tmp_path: Path) -> None:
    """Both inputs are silent: event time goes on by the clock."""
    silent = tm.bounded_out_of_orderness("0 ms", timestamp="t", idle_after="5 minutes", advance_when_idle=True)
    left = elements([(NOW, 1), (NOW + MINUTE, 2)], schema="t BIGINT, k INT", name="left", watermarks=silent)
    right = elements([(NOW + 2 * MINUTE, 2)], schema="t BIGINT, k INT", name="right", watermarks=silent).select("k", u="t")
    joined = left.join(right, on="k", how="left", within=WITHIN).uid("j")
    # The watermark of the left stream, which holds the right one back as long as it is active, is NOW + 1 min - 1 ms at the begin.
    seen = run_on(joined, spark, tmp_path, waits=[5 * MINUTE, 5 * MINUTE + 1])
    assert [epoch.operators["j"].watermark for epoch in seen] == [NOW + MINUTE - 1, NOW + 5 * MINUTE - 1, NOW + 10 * MINUTE]
    assert [epoch.rows_out for epoch in seen] == [1, 0, 1]
    assert [epoch.rows_in for epoch in seen] == [3, 0, 0]
    table = tm.memory_table(f"{tmp_path}/job")
    assert table is not None
    assert sorted(table.to_pylist(), key=str) == [{"t": NOW, "k": 1, "u": None}, {"t": NOW + MINUTE, "k": 2, "u": NOW + 2 * MINUTE}]


def test_rows_of_elements_on_time_are_on_time_for_what_follows(spark: SparkSession, tmp_path: Path) -> None:
    def epochs(side: str) -> list[list[tuple[object, ...]]]:
        return [[(MINUTE * n, n % 3 if side == "left" else 0) for n in range(at, min(at + 14, 40))] for at in range(0, 40, 14)]

    left = elements(*epochs("left"), schema="t BIGINT, k INT", name="left")
    right = elements(*epochs("right"), schema="t BIGINT, k INT", name="right").select("k", u="t")
    outputs = {}
    for how in ("left", "semi"):
        joined = left.join(right, on="k", how=how, within=WITHIN).uid(f"{how}-join")
        windows = joined.window_all(tm.tumbling("5 minutes")).late_to(tm.OutputTag(f"late-{how}"))
        outputs[how] = windows.aggregate(n=tm.count(), ones=tm.count("CASE WHEN k > 0 THEN 1 END")).uid(how)
    ran = Lab(spark, tmp_path).run(outputs)
    assert all(epoch.rows_late == 0 for epoch in ran.epochs)
    alone = sum(n % 3 > 0 for n in range(40))
    assert sum(row["ones"] for row in ran.rows["left"]) == alone
    assert sum(row["n"] for row in ran.rows["semi"]) == 40 - alone
    assert ran.epochs[-1].operators["left"].panes_on_time < 8, "windows fire before the end of input, too"


def test_state_has_no_more_than_the_interval(spark: SparkSession, tmp_path: Path) -> None:
    """A day of elements, one a minute on each side; a join within 40 minutes, an outer one, and the state that both keep."""
    epochs = [[(MINUTE * n, n % 7, n) for n in range(at, at + 240)] for at in range(0, 24 * 60, 240)]
    left = elements(*epochs, schema="t BIGINT, k INT, v INT", name="left")
    right = elements(*epochs, schema="t BIGINT, k INT, w INT", name="right").select("k", "w", u="t")
    joins = {how: left.join(right, on="k", how=how, within=("-10 minutes", "30 minutes")).uid(how) for how in ("inner", "full")}
    seen: list[EpochProgress] = []
    outputs = {how: tm.memory(stream, f"{tmp_path}/{how}") for how, stream in joins.items()}
    job = tm.Job("day", outputs=outputs, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=seen.append, handle_signals=False)
    kept = {how: tm.savepoint(job).tables(how, spark)["elements"].groupBy("input").count().collect() for how in joins}
    assert {row["input"]: row["count"] for row in kept["inner"]} == {"left": 31, "right": 11}
    assert {row["input"]: row["count"] for row in kept["full"]} == {"left": 41, "right": 41}
    # Files with what is needed also have what has just expired: up to a fourth of the interval, and an epoch.
    for how, most in (("inner", 2 * (31 + 8 + 240)), ("full", 2 * (41 + 10 + 240))):
        assert max(epoch.operators[how].state_rows for epoch in seen) <= most
        assert max(epoch.operators[how].state_files for epoch in seen) <= 20
    assert max(epoch.spark_jobs for epoch in seen) <= 8
    asked = ["state", "show", "day", "full", "--table", "elements", "--limit", "90", "--store", str(tmp_path / "store")]
    shown = CliRunner().invoke(main, asked)
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 1 + 41 + 41)
    for how in joins:
        tm.clear_memory(f"{tmp_path}/{how}")


def test_sides_are_written_at_once_but_where_they_share_rows_in_memory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that both sides read from memory, each side's job would have counted some: those that it was the first to compute."""
    at_once: list[int] = []

    def noted(pool: Any, session: Any, work: Any) -> None:
        at_once.append(len(work))
        run_at_once(pool, session, work)

    monkeypatch.setattr("tidemark.spark.epoch.runtime_context.run_at_once", noted)
    monkeypatch.setattr("tidemark.spark.columns.few_rows.FEW_ROWS", -1)
    rows, odd, even = [(n * MINUTE, n % 3, n) for n in range(60)], tm.OutputTag("odd"), tm.OutputTag("even")
    schema = "t BIGINT, k INT, v INT"
    one, other = elements(rows, schema=schema, name="one"), elements(rows, schema=schema, name="other")
    own = one.join(other.select("k", u="t", w="v"), on="k", within=WITHIN).uid("own")
    both = elements(rows, schema=schema, name="both")
    branches = both.split({odd: "v % 2 = 1"}, otherwise=even)
    split = branches.side_output(even).join(branches.side_output(odd).select("k", u="t", w="v"), on="k", within=WITHIN).uid("split")
    ran = Lab(spark, tmp_path).run({"own": own, "split": split})
    assert at_once == [2]
    assert [epoch.sources["both"].rows_read for epoch in ran.epochs if epoch.rows_in] == [60]
    assert len(ran.rows["own"]) == sum(-1 <= w - v <= 10 and v % 3 == w % 3 for v in range(60) for w in range(60))
    assert len(ran.rows["split"]) == sum(-1 <= w - v <= 10 and v % 3 == w % 3 for v in range(0, 60, 2) for w in range(1, 60, 2))


def test_keys_and_columns_of_any_kind(spark: SparkSession, tmp_path: Path) -> None:
    def at(second: int) -> datetime:
        return datetime.fromtimestamp(second, UTC)

    one = [
        (at(1), "A", 1.5, {"x": 1}, [1]),
        (at(2), "b", float("nan"), {"x": 2}, [2]),
        (at(3), None, 1.5, {"x": 3}, [3]),
        (at(4), "c", -0.0, None, None),
    ]
    other = [(at(1), "a", 1.5, "one"), (at(2), "B", float("nan"), "two"), (at(3), None, 1.5, "three"), (at(4), "C", 0.0, "four")]
    left = elements(one, schema="t TIMESTAMP, `a.b` STRING, d DOUBLE, m MAP<STRING, INT>, r ARRAY<INT>", name="left")
    right = elements(other, schema="t TIMESTAMP, c STRING, d DOUBLE, text STRING", name="right").select("c", "d", "text", u="t")
    on = {"lower(`a.b`)": "lower(c)", "d": "d"}
    joined = left.join(right, on=on, how="full", within=("-1 second", "1 second")).uid("j")
    by_window = joined.window_all(tm.tumbling("1 minute")).aggregate(texts=tm.collect_list("text")).uid("w")
    ran = Lab(spark, tmp_path).run({"j": joined, "w": by_window})
    assert tuple(ran.rows["j"][0]) == ("t", "a.b", "d", "m", "r", "c", "text", "u")
    assert ran.of("j", "a.b", "c", "text") == [
        ("A", "a", "one"),
        ("b", "B", "two"),
        ("c", "C", "four"),
        (None, None, "three"),
        (None, None, None),
    ]
    # A key column that both have is there once, also in rows of the right side alone.
    assert [row["d"] for row in ran.rows["j"] if row["text"] == "three"] == [1.5]
    assert sorted(text for row in ran.rows["w"] for text in row["texts"]) == ["four", "one", "three", "two"]


def test_a_stream_may_be_joined_with_itself_and_joins_may_follow_joins(spark: SparkSession, tmp_path: Path) -> None:
    given = elements([(n * MINUTE, n % 2, n) for n in range(6)], schema="t BIGINT, k INT, v INT")
    pairs = given.join(given.select("k", u="t", w="v"), on="k", within=("1 ms", "2 minutes")).uid("pairs")
    three = pairs.join(given.select("k", x="v"), on="k", how="left", within=("1 ms", "2 minutes")).uid("three")
    ran = Lab(spark, tmp_path).run({"pairs": pairs, "three": three})
    assert ran.of("pairs", "v", "w") == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert ran.of("three", "v", "w", "x") == [(0, 2, 4), (1, 3, 5), (2, 4, None), (3, 5, None)]
