"""Intake that follows the time epochs take: the rule, what it moves, and a run whose queries go on one after the other."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemark as tm
from tests.engine.lab import NOW
from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FilesSpec, FormatSpec
from tidemark.semantics.watermarks.watermarks import SourceEnd
from tidemark.spark.sources.adaptive_intake import AdaptiveIntake, next_share
from tidemark.spark.sources.epoch_input import EpochInput
from tidemark.spark.sources.intake_limits import DEFAULT_BYTES_PER_EPOCH, MAX_SHARE, MIN_SHARE, limited
from tidemark.spark.sources.source_ends import filled
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARES = st.floats(MIN_SHARE, MAX_SHARE)
TIMES = st.integers(0, 10_000_000)
TARGETS = st.floats(700, 600_000)


@given(SHARES, TIMES, TIMES, TARGETS, st.sampled_from([True, False, None]))
def test_a_longer_epoch_never_leads_to_more(share: float, one: int, other: int, target: float, filled: bool | None) -> None:  # noqa: FBT001
    shorter, longer = sorted((one, other))
    after = [next_share(share, took_ms=took, target_ms=target, filled=filled) for took in (shorter, longer)]
    assert after[1] <= after[0]
    assert all(MIN_SHARE <= found <= MAX_SHARE for found in after)
    assert all(share / 8.001 <= found <= share * 4.001 for found in after)


@given(SHARES, TIMES, TARGETS)
def test_an_epoch_that_read_all_there_was_raises_nothing(share: float, took: int, target: float) -> None:
    assert next_share(share, took_ms=took, target_ms=target, filled=False) <= share


@given(SHARES, TIMES, TARGETS)
def test_where_it_is_not_known_what_waits_the_usual_bounds_are_the_most(share: float, took: int, target: float) -> None:
    found = next_share(share, took_ms=took, target_ms=target, filled=None)
    assert found <= max(share, 1.0)
    assert found >= share or took > target, "what was lowered comes back"


@given(SHARES, st.floats(0, 600), st.floats(1, 100_000), TARGETS)
def test_a_backlog_is_read_ever_nearer_to_the_target_and_never_past_it(share: float, fixed: float, per: float, target: float) -> None:
    """Epochs take a fixed time and one in proportion to the share: the distance to the target shrinks and keeps its sign."""

    def off(share: float) -> float:
        return math.log((fixed + per * share) / target)

    for _ in range(300):
        before, share = off(share), next_share(share, took_ms=round(fixed + per * share), target_ms=target, filled=True)
        # Times are whole milliseconds.
        assert abs(off(share)) <= abs(before) + 0.01
        assert off(share) * before >= -0.01
    assert abs(off(share)) < 0.02 or share in (pytest.approx(MIN_SHARE), pytest.approx(MAX_SHARE))


def files(**bounds: int) -> SourceNode:
    return source(FilesSpec("/in", "parquet", "t BIGINT", **bounds))  # type: ignore[arg-type]


def source(spec: FilesSpec | FormatSpec) -> SourceNode:
    return SourceNode(name="s", spec=spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))


def bounds(node: SourceNode, share: float) -> object:
    spec = limited(node, share).spec
    if isinstance(spec, FilesSpec):
        return spec.max_files_per_epoch, spec.max_bytes_per_epoch
    assert isinstance(spec, FormatSpec)
    return dict(spec.options)


@pytest.mark.parametrize(
    ("node", "share", "expected"),
    [
        (files(), 1, (None, DEFAULT_BYTES_PER_EPOCH)),
        (files(), 4, (None, 4 * DEFAULT_BYTES_PER_EPOCH)),
        (files(max_bytes_per_epoch=1000), 4, (None, 1000)),
        (files(max_bytes_per_epoch=1000), 0.25, (None, 250)),
        (files(max_files_per_epoch=3), 0.5, (2, None)),
        (files(max_files_per_epoch=3), 0.01, (1, None)),
        (source(FormatSpec("Kafka", {"subscribe": "a"})), 1, {"subscribe": "a", "maxOffsetsPerTrigger": "5000000"}),
        (source(FormatSpec("kafka", {"MAXOFFSETSPERTRIGGER": "100"})), 2, {"MAXOFFSETSPERTRIGGER": "100"}),
        (source(FormatSpec("kafka", {"maxOffsetsPerTrigger": "100"})), 0.5, {"maxOffsetsPerTrigger": "50"}),
        (source(FormatSpec("delta")), 1, {}),
        (source(FormatSpec("delta")), 0.1, {"maxFilesPerTrigger": "100"}),
        (source(FormatSpec("delta", {"maxBytesPerTrigger": "1g"})), 0.1, {"maxBytesPerTrigger": "1g"}),
        (source(FormatSpec("iceberg", {"streaming-max-rows-per-micro-batch": "10"})), 0.5, {"streaming-max-rows-per-micro-batch": "5"}),
        (source(FormatSpec("custom", {"maxFilesPerTrigger": "10"})), 0.5, {"maxFilesPerTrigger": "10"}),
    ],
)
def test_bounds_of_a_share(node: SourceNode, share: float, expected: object) -> None:
    assert bounds(node, share) == expected


def moved(intake: AdaptiveIntake) -> float:
    """Move an intake that is due, after which it is not due any more; return its share."""
    before = intake.has_new_bounds
    share = intake.apply()
    assert (before, intake.has_new_bounds) == (True, False)
    return share


def test_a_query_starts_anew_only_when_that_changes_much() -> None:
    intake = AdaptiveIntake(10_000, [files(max_bytes_per_epoch=1_000_000)])
    intake.observe(took_ms=9_000, filled=True)
    assert not intake.has_new_bounds, "a little over the target"
    intake.observe(took_ms=60_000, filled=True)
    assert moved(intake) < 0.3
    for _ in range(20):
        intake.observe(took_ms=10, filled=True)
    assert moved(intake) == MAX_SHARE
    # What the user bounded goes no further, so nothing would change.
    unmovable = AdaptiveIntake(10_000, [files(max_bytes_per_epoch=1_000_000)])
    for _ in range(20):
        unmovable.observe(took_ms=10, filled=True)
    assert not unmovable.has_new_bounds


def test_whether_an_epoch_was_filled_is_known_by_the_bounds_in_use(tmp_path: Path) -> None:
    landed = tmp_path / "f"
    landed.write_bytes(b"x" * 300)
    spark = cast("SparkSession", None)  # asked only for the sizes of files elsewhere
    read = EpochInput(files={"s": [f"file://{landed}"]}, batch=True)
    node = files(max_bytes_per_epoch=1000)
    assert read.end(spark, limited(node), anyway=True).caught_up
    assert not read.end(spark, limited(node, 0.5), anyway=True).caught_up
    assert read.end(spark, limited(node, 0.5)).caught_up, "nobody asks"
    far = EpochInput(files={"s": ["s3a://bucket/f"] * 101}, batch=True)
    assert far.end(spark, limited(node), anyway=True) == SourceEnd(known=False), "too many calls to learn their sizes"
    assert not far.end(spark, limited(files(max_files_per_epoch=101)), anyway=True).caught_up


@pytest.mark.parametrize("format", ["delta", "kafka"])
def test_small_epochs_of_a_source_that_moves_all_the_time_raise_nothing(format: str) -> None:
    """A commit or a few records a trigger, for hours; before, a backlog whose epochs took too long."""
    spark = cast("SparkSession", None)
    node = source(FormatSpec(format))
    intake = AdaptiveIntake(10_000, [node])

    def read(at: int, records: int) -> bool | None:
        before, now = ({"rides": {"0": n}} if format == "kafka" else {"reservoirVersion": n, "index": -1} for n in (at, at + records))
        taken = EpochInput(before={"s": before}, now={"s": now}, batch=True)
        return filled([taken.end(spark, limited(node, intake.share), anyway=True)])

    intake.observe(took_ms=60_000, filled=read(0, 5_000_000))
    lowered = intake.apply()
    assert lowered < 0.3
    for epoch in range(200):
        intake.observe(took_ms=900, filled=read(5_000_000 + epoch, 1))
        if intake.has_new_bounds:
            intake.apply()
    # Kafka tells that nothing waited.
    assert intake.share == (lowered if format == "kafka" else 1.0)


def test_adaptive_intake_needs_an_interval() -> None:
    node = tm.source("s", tm.from_elements([(1,)], schema="t BIGINT"), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    with pytest.raises(DefinitionError, match="adaptive_intake=True follows the interval"):
        tm.run(tm.Job("job", outputs={"rows": tm.memory(node, "rows")}), adaptive_intake=True)


@pytest.mark.spark
def test_a_run_reads_on_with_other_bounds(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of 24 files is read eight at once at first, in a world where two take as long as they should."""
    folder, rows, loads = tmp_path / "in", list[int](), list[float]()
    folder.mkdir()
    for number in range(24):
        (folder / f"{number}.json").write_text(json.dumps({"k": "a", "t": number * 60_000}))
        os.utime(folder / f"{number}.json", (1_600_000_000 + number,) * 2)
    spec = tm.files(str(folder), format="json", schema="k STRING, t BIGINT", max_files_per_epoch=8)
    landing = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    panes = landing.key_by("k").window(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("minutes")
    job = tm.Job("job", outputs={"panes": tm.memory(panes, str(tmp_path))}, store=str(tmp_path / "store"))
    saw, stop = AdaptiveIntake.observe, threading.Event()
    monkeypatch.setattr(
        AdaptiveIntake, "observe", lambda intake, *, took_ms, filled: saw(intake, took_ms=took_ms + 350 * rows[-1], filled=filled)
    )

    def after(epoch: EpochProgress) -> None:
        rows.append(epoch.rows_in)
        assert epoch.epoch == len(rows) - 1
        status = read_status(JobStore.open(str(tmp_path / "store")), "job")
        assert status is not None
        assert status.load is not None
        loads.append(status.load.intake)
        if sum(rows) >= 24:
            stop.set()

    tm.run(
        job,
        spark=spark,
        trigger="1 second",
        clock=ManualClock(NOW),
        adaptive_intake=True,
        on_epoch=after,
        stop=stop,
        handle_signals=False,
    )
    assert sum(rows) == 24, "every row once"
    # Two are the aim. Another epoch or more of a query may have begun before it was ended, so some take more or less.
    assert rows[0] == 8, rows
    assert max(rows[2:]) <= 4, rows
    assert len(rows) >= 7, rows
    assert loads[0] == 1
    assert 0.1 <= loads[-1] <= 0.5
    assert sorted(tm.memory_table(str(tmp_path)).column("n").to_pylist()) == [1] * 23  # type: ignore[union-attr]  # there is a table


@pytest.mark.spark
def test_a_run_continues_when_an_epoch_withdraws_what_ended_the_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other bounds are wanted when the query is looked at, and no longer once the epoch at hand is done."""
    folder, rows, stop, answers = tmp_path / "in", list[int](), threading.Event(), iter([True])
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.json").write_text(json.dumps({"t": number}))
        os.utime(folder / f"{number}.json", (1_600_000_000 + number,) * 2)
    monkeypatch.setattr(AdaptiveIntake, "has_new_bounds", property(lambda _: next(answers, False)))
    spec = tm.files(str(folder), format="json", schema="t BIGINT", max_files_per_epoch=1)
    landing = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))

    def after(epoch: EpochProgress) -> None:
        rows.append(epoch.rows_in)
        if sum(rows) >= 8:
            stop.set()

    job = tm.Job("job", outputs={"rows": tm.memory(landing, str(tmp_path))}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, trigger="0 seconds", adaptive_intake=True, on_epoch=after, stop=stop, handle_signals=False)
    assert next(answers, None) is None, "the query was looked at"
    assert rows == [1] * 8
