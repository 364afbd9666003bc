"""The watermark of an output behind joins and unions: no partition is complete while on-time rows may still come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import HOUR, MINUTE, START, FakeEpoch, window_rows
from tidemark.assets.report.complete_partitions import (
    PartitionMark,
    complete_partitions,
    output_watermark,
    settled_before,
    touched_partitions,
)
from tidemark.assets.streams.job_streams import StreamData, output_streams
from tidemark.semantics import MAX_WATERMARK
from tidemark.semantics.joins.interval import How
from tidemark.state.log.progress import EpochProgress, OperatorProgress, SourceProgress, SplitProgress

pytestmark = pytest.mark.dagster

HOURS = dg.HourlyPartitionsDefinition("2024-03-04-00:00")


def source(folder: Path, name: str, schema: str) -> tm.Stream:
    strategy = tm.bounded_out_of_orderness("0 seconds", timestamp=schema.split(maxsplit=1)[0])
    return tm.source(name, tm.files(str(folder / name), format="json", schema=schema), watermarks=strategy)


def sources(folder: Path) -> tuple[tm.Stream, tm.Stream]:
    return source(folder, "left", "t TIMESTAMP, k STRING"), source(folder, "right", "u TIMESTAMP, k STRING, v BIGINT")


def output(folder: Path, stream: tm.Stream) -> StreamData:
    return output_streams(tm.Job("joined", outputs={"out": tm.delta(stream, str(folder / "out"))}))[0]


def epoch(operators: Mapping[str, int | None], /, *idle: str, **watermarks: int | None) -> EpochProgress:
    """Return an epoch with the watermarks of operators and sources; idle sources have idle splits."""
    base = FakeEpoch(window_rows()).progress(5, "l1")
    made = {
        name: SourceProgress(1, 1, 0, watermark, None, None, {"": SplitProgress(1, watermark, START, idle=name in idle)})
        for name, watermark in watermarks.items()
    }
    found = {uid: OperatorProgress(1, 1, 0, watermark, 0, 0, 0, 0, 0) for uid, watermark in operators.items()}
    return EpochProgress("joined", "l1", 5, base.processing_time, 1, 1, 1, sources=made, operators=found)


@pytest.mark.parametrize(
    ("how", "delay"),
    [("inner", 0), ("left", 30 * MINUTE), ("full", 30 * MINUTE), ("right", 10 * MINUTE), ("anti", 30 * MINUTE), ("semi", 30 * MINUTE)],
)
def test_rows_without_a_partner_hold_the_partitions_of_an_interval_join(tmp_path: Path, how: How, delay: int) -> None:
    left, right = sources(tmp_path)
    joined = left.join(right, on="k", how=how, within=("-10 minutes", "30 minutes")).uid("joined")
    stream = output(tmp_path, joined)
    late_by_a_minute = epoch({"joined": START + HOUR + MINUTE}, left=START + HOUR + MINUTE, right=START + HOUR + MINUTE)
    assert output_watermark(stream, late_by_a_minute) == START + HOUR + MINUTE - delay
    found, _ = complete_partitions(stream, HOURS, PartitionMark("l1", 5), late_by_a_minute, limit=9)
    assert len(found) == (1 if delay == 0 else 0)
    ended = epoch({"joined": MAX_WATERMARK}, left=MAX_WATERMARK, right=MAX_WATERMARK)
    assert output_watermark(stream, ended) == MAX_WATERMARK


def test_a_source_that_is_behind_no_window_holds_partitions_back_too(tmp_path: Path) -> None:
    left, right = sources(tmp_path)
    counted = left.key_by("k").window(tm.tumbling("5 minutes")).aggregate(n=tm.count()).uid("counted")
    both = output(tmp_path, counted.select("k", "n", at="window_start").union(right.select("k", n="v", at="u")))
    assert (
        output_watermark(both, epoch({"counted": START + 2 * HOUR}, left=START + 2 * HOUR, right=START + 6 * MINUTE)) == START + 6 * MINUTE
    )
    assert output_watermark(both, epoch({"counted": START + 2 * HOUR}, left=START + 2 * HOUR, right=None)) is None
    # The operator's own watermark says how far the source behind it is, also where idle splits of it do not count.
    assert output_watermark(both, epoch({"counted": START + 2 * HOUR}, left=START, right=START + 3 * HOUR)) == START + 2 * HOUR


def test_idle_sources_count_only_if_nothing_else_does(tmp_path: Path) -> None:
    left, right = sources(tmp_path)
    both = output(tmp_path, left.select("k", at="t").union(right.select("k", at="u")))
    assert output_watermark(both, epoch({}, left=START + HOUR, right=START)) == START
    assert output_watermark(both, epoch({}, "right", left=START + HOUR, right=None)) == START + HOUR
    assert output_watermark(both, epoch({}, "left", "right", left=START + HOUR, right=START)) == START


def test_delays_of_joins_add_up_on_the_way_to_the_output(tmp_path: Path) -> None:
    left, right = sources(tmp_path)
    other = source(tmp_path, "other", "w TIMESTAMP, k STRING")
    first = left.join(right, on="k", how="left", within=("0 minutes", "30 minutes")).uid("first")
    second = output(tmp_path, first.select("t", "k").join(other, on="k", how="left", within=("0 minutes", "20 minutes")).uid("second"))
    marks = dict.fromkeys(("left", "right", "other"), START + 2 * HOUR)
    # The second join's watermark is behind the first one's delay already.
    assert output_watermark(second, epoch({"first": START + 2 * HOUR, "second": START + 90 * MINUTE}, **marks)) == START + 70 * MINUTE
    # Operators that the epoch does not have yet say nothing, their sources do.
    assert output_watermark(second, epoch({}, **marks)) == START + 70 * MINUTE


def test_a_daily_window_join_holds_hourly_partitions_until_its_window_ends(tmp_path: Path) -> None:
    left, right = sources(tmp_path)
    daily = output(tmp_path, left.window_join(right, on="k", window=tm.tumbling("1 day")).uid("daily"))
    marks = {"left": START + 5 * HOUR, "right": START + 5 * HOUR}
    assert settled_before(daily, epoch({"daily": START + 5 * HOUR}, **marks)) == START
    assert settled_before(daily, epoch({"daily": START + 24 * HOUR - 1}, **marks)) == START + 24 * HOUR


def test_windows_of_processing_time_go_by_their_own_clock(tmp_path: Path) -> None:
    left, _ = sources(tmp_path)
    counted = left.key_by("k").window(tm.tumbling("1 hour", time="processing")).aggregate(n=tm.count()).uid("counted")
    assert output_watermark(output(tmp_path, counted), epoch({"counted": START + HOUR}, left=START)) == START + HOUR


@pytest.mark.parametrize("kind", ["window", "as of", "interval"])
def test_rows_that_joins_correct_or_reject_touch_their_partitions(tmp_path: Path, kind: str) -> None:
    left, right = sources(tmp_path)
    streams = {
        "window": left.window_join(right, on="k", window=tm.tumbling("1 hour"), allowed_lateness="1 day"),
        "as of": left.join_asof(right, on="k", allowed_lateness="1 day", key="k"),
        "interval": left.join(right, on="k", within=("0 minutes", "30 minutes")),
    }
    base = epoch({"joined": START + 5 * HOUR}, left=START + 5 * HOUR, right=START + 5 * HOUR)
    operator = replace(base.operators["joined"], late_windows=(START,), refired_windows=(START + HOUR, START + 4 * HOUR))
    touched, _ = touched_partitions(
        output(tmp_path, streams[kind].uid("joined")),
        HOURS,
        PartitionMark("l1", 4, through=START + 3 * HOUR),
        [replace(base, operators={"joined": operator})],
        find=lambda *_: None,
        limit=9,
    )
    assert [(change.partition, change.cause) for change in touched] == [
        ("2024-03-04-00:00", "late rows"),
        ("2024-03-04-01:00", "corrected"),
    ]


def test_event_times_before_a_window_of_processing_time_touch_none_of_its_partitions(tmp_path: Path) -> None:
    left, right = sources(tmp_path)
    joined = left.window_join(right, on="k", window=tm.tumbling("1 day"), allowed_lateness="1 day").uid("joined")
    counted = joined.key_by("k").window(tm.tumbling("1 hour", time="processing")).aggregate(n=tm.count()).uid("counted")
    base = epoch({"joined": START + 5 * HOUR, "counted": START + 5 * HOUR}, left=START + 5 * HOUR, right=START + 5 * HOUR)
    operator = replace(base.operators["joined"], late_windows=(START,), refired_windows=(START + HOUR,))
    found = {}
    for name, rows in (("joined", joined), ("counted", counted)):
        stream = output(tmp_path, rows)
        changes, _ = touched_partitions(
            stream,
            HOURS,
            PartitionMark("l1", 4, through=START + 3 * HOUR),
            [replace(base, operators={**base.operators, "joined": operator})],
            find=lambda *_: None,
            limit=9,
        )
        found[name] = settled_before(stream, base), [change.partition for change in changes]
    # The day in which the join's window is open holds back its own partitions alone.
    assert found == {"joined": (START, ["2024-03-04-00:00", "2024-03-04-01:00"]), "counted": (START + 5 * HOUR, [])}
