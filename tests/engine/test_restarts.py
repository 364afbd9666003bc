"""What a start after an end, a failure or a change of the job finds, keeps and refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.lab import IN_ORDER, NOW, elements
from tests.seeds import only_long
from tidemark.errors import CorruptStoreError, StateMismatchError, UserCodeError
from tidemark.spark.env.session import engine_settings
from tidemark.state.log.epoch_intent import read_intent
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.status import JobStatus, read_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000
SCHEMA = "k STRING, t BIGINT, v INT"


def status_in(folder: Path) -> JobStatus:
    found = read_status(JobStore.open(str(folder / "store")), "job")
    assert found is not None
    return found


def hourly(stream: tm.Stream) -> tm.Stream:
    return stream.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count(), total=tm.sum("v")).uid("hours")


def drain(spark: SparkSession, folder: Path, streams: dict[str, tm.Stream], *, now: int = NOW, end_of_input: bool = False) -> tm.RunResult:
    outputs = {name: tm.memory(stream, f"{folder}/{name}") for name, stream in streams.items()}
    job = tm.Job("job", outputs=outputs, store=str(folder / "store"))
    return tm.run(job, spark=spark, clock=ManualClock(now), end_of_input=end_of_input, handle_signals=False)


def rows_of(folder: Path, name: str, *columns: str) -> list[tuple[object, ...]]:
    """Take the rows out of a memory sink."""
    table = tm.memory_table(f"{folder}/{name}")
    tm.clear_memory(f"{folder}/{name}")
    return [] if table is None else sorted(zip(*(table.column(column).to_pylist() for column in columns), strict=True))


def land(folder: Path, name: str, rows: Sequence[tuple[str, int, int]]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    if path.suffix == ".json":
        path.write_text("".join(json.dumps(dict(zip("ktv", row, strict=True))) + "\n" for row in rows))
    else:
        schema = pa.schema({"k": pa.string(), "t": pa.int64(), "v": pa.int32()})
        pq.write_table(pa.Table.from_pylist([dict(zip("ktv", row, strict=True)) for row in rows], schema=schema), path)
    age = len(list(folder.iterdir()))
    os.utime(path, (1_600_000_000 + age,) * 2)


def test_an_epoch_that_is_run_again_has_the_processing_time_of_its_plan(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    for number, value in enumerate([4, 0, 2]):
        land(landing, f"{number}.json", [("a", number, value)])

    def stream(share: str) -> tm.Stream:
        spec = tm.files(str(landing), format="json", schema=SCHEMA, max_files_per_epoch=1)
        return tm.source("landing", spec, watermarks=IN_ORDER).with_columns(share=share)

    with pytest.raises(UserCodeError):
        drain(spark, tmp_path, {"rows": stream("8 DIV v")})
    assert status_in(tmp_path).state == "failed"
    intent = read_intent(JobStore.open(str(tmp_path / "store")).at("job"))
    assert intent is not None
    assert (intent.epoch, intent.processing_time) == (1, NOW)
    # The clock has gone on; the epoch reads what it was planned to read.
    mended = drain(spark, tmp_path, {"rows": stream("IF(v = 0, NULL, 8 DIV v)")}, now=NOW + HOUR)
    assert [(epoch.epoch, epoch.processing_time) for epoch in mended.epochs] == [(1, NOW), (2, NOW + HOUR)]


def test_an_epoch_that_reads_more_than_was_planned_is_another(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    land(landing, "0.json", [("a", 0, 0)])

    def stream(share: str) -> tm.Stream:
        return tm.source("landing", tm.files(str(landing), format="json", schema=SCHEMA), watermarks=IN_ORDER).with_columns(share=share)

    with pytest.raises(UserCodeError):
        drain(spark, tmp_path, {"rows": stream("8 DIV v")})
    land(landing, "1.json", [("a", 1, 1)])
    mended = drain(spark, tmp_path, {"rows": stream("v")}, now=NOW + HOUR)
    assert [(epoch.rows_in, epoch.processing_time) for epoch in mended.epochs] == [(2, NOW + HOUR)]


def test_the_end_of_input_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    def streams(*batches: list[tuple[object, ...]]) -> dict[str, tm.Stream]:
        return {"hours": hourly(elements(*batches, schema=SCHEMA))}

    ended = drain(spark, tmp_path, streams([("a", 1, 5)]), end_of_input=True)
    assert [epoch.end_of_input for epoch in ended.epochs] == [False, True]
    again = drain(spark, tmp_path, streams([("a", 1, 5)]), end_of_input=True)
    assert again.epochs == ()
    assert again.head is not None
    assert again.head.epoch == 1
    assert status_in(tmp_path).state == "finished"
    assert rows_of(tmp_path, "hours", "k", "n") == [("a", 1)]


def test_a_start_that_fails_says_so(spark: SparkSession, tmp_path: Path) -> None:
    stream = hourly(elements([("a", 1, 5)], schema=SCHEMA))
    drain(spark, tmp_path, {"rows": stream})
    file = next((tmp_path / "store" / "job" / "state").rglob("*.parquet"))
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(CorruptStoreError) as raised:
        drain(spark, tmp_path, {"rows": stream})
    status = status_in(tmp_path)
    assert (status.state, status.error) == ("failed", str(raised.value))
    assert status.last is not None
    assert status.last.epoch == 0
    file.write_bytes(kept)
    drain(spark, tmp_path, {"rows": stream})
    assert (status_in(tmp_path).state, status_in(tmp_path).error) == ("finished", None)


def test_a_source_without_files_beside_one_with_rows(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "left", "0.parquet", [("a", 1, 5)])
    (tmp_path / "right").mkdir()

    def streams() -> dict[str, tm.Stream]:
        left, right = (
            tm.source(name, tm.files(str(tmp_path / name), format="parquet", schema=SCHEMA), watermarks=IN_ORDER)
            for name in ("left", "right")
        )
        return {"rows": left.union(right), "hours": hourly(right)}

    first = drain(spark, tmp_path, streams())
    assert [(epoch.sources["left"].rows_read, epoch.sources["right"].rows_read) for epoch in first.epochs] == [(1, 0)]
    land(tmp_path / "right", "0.parquet", [("b", 2, 6), ("b", 3, 7)])
    second = drain(spark, tmp_path, streams(), end_of_input=True)
    assert [(epoch.sources["left"].rows_read, epoch.sources["right"].rows_read) for epoch in second.epochs] == [(0, 2), (0, 0)]
    assert rows_of(tmp_path, "rows", "k", "v") == [("a", 5), ("b", 6), ("b", 7)]
    assert rows_of(tmp_path, "hours", "k", "total") == [("b", 13)]


def state_files(folder: Path) -> set[Path]:
    return {path for path in (folder / "store" / "job" / "state").rglob("*") if path.is_file()}


def test_changes_that_would_lose_or_spoil_what_is_stored_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("trips", "rides", "other"):
        land(tmp_path / name, "0.json", [("a", 1, 5)])

    def source(name: str, *, folder: str = "trips", schema: str = SCHEMA) -> tm.Stream:
        return tm.source(name, tm.files(str(tmp_path / folder), format="json", schema=schema), watermarks=IN_ORDER)

    def streams(trips: tm.Stream, *others: tm.Stream) -> dict[str, tm.Stream]:
        return {"hours": hourly(trips), **{f"rows{number}": stream for number, stream in enumerate(others)}}

    drain(spark, tmp_path, streams(source("trips"), source("other", folder="other")))
    stored = state_files(tmp_path)
    land(tmp_path / "trips", "1.json", [("a", 2, 6)])
    renamed = streams(source("rides"), source("other", folder="other"))
    removed = streams(source("trips"))
    widened = streams(source("trips", schema="k STRING, t BIGINT, v DECIMAL(10, 2)"), source("other", folder="other"))
    key_changed = streams(source("trips", schema="k INT, t BIGINT, v INT"), source("other", folder="other"))
    for changed, words in ((renamed, "trips"), (removed, "other"), (widened, "hours"), (key_changed, "hours")):
        with pytest.raises(StateMismatchError, match=words):
            drain(spark, tmp_path, changed)
        status = status_in(tmp_path)
        assert status.state == "failed"
        assert status.last is not None
        assert (status.last.epoch, state_files(tmp_path)) == (0, stored)
    # With all as it was, it goes on where it stood.
    drain(spark, tmp_path, streams(source("trips"), source("other", folder="other")), end_of_input=True)
    assert rows_of(tmp_path, "hours", "k", "n", "total") == [("a", 2, 11)]
    assert rows_of(tmp_path, "rows0", "k", "v") == [("a", 5)]


def test_jobs_that_share_a_session_share_its_settings(spark: SparkSession) -> None:
    zone, ansi, partitions = "spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.shuffle.partitions"
    mine = {zone: "America/New_York", ansi: "false", partitions: "5"}
    before = {key: str(spark.conf.get(key)) for key in mine}
    for key, value in mine.items():
        spark.conf.set(key, value)
    try:
        with ExitStack() as first, ExitStack() as second:
            first.enter_context(engine_settings(spark))
            second.enter_context(engine_settings(spark))
            spark.conf.set(partitions, "7")
            first.close()
            assert (spark.conf.get(zone), spark.conf.get(ansi)) == ("UTC", "true")
            second.close()
            assert {key: spark.conf.get(key) for key in mine} == mine
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def test_an_epoch_without_input_has_the_jobs_parallelism(spark: SparkSession, tmp_path: Path) -> None:
    found: list[str | None] = []
    before = spark.conf.get("spark.sql.shuffle.partitions")
    job = tm.Job("job", outputs={"hours": tm.memory(hourly(elements([("a", 1, 5)], schema=SCHEMA)), f"{tmp_path}/hours")}, parallelism=3)

    def after(epoch: EpochProgress) -> None:
        if epoch.end_of_input:
            found.append(spark.conf.get("spark.sql.shuffle.partitions"))

    tm.run(job, spark=spark, store=str(tmp_path / "store"), end_of_input=True, on_epoch=after, handle_signals=False)
    assert found == ["3"]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


@pytest.mark.parametrize(("then", "now"), [("k", None), (None, "k"), pytest.param("k", "w", marks=only_long)])
def test_splits_may_be_told_by_another_column(spark: SparkSession, tmp_path: Path, then: str | None, now: str | None) -> None:
    """Those there were will not show again, and do not hold the watermark back for ever."""

    def streams(split_by: str | None) -> dict[str, tm.Stream]:
        strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t", split_by=split_by)
        spec = tm.files(str(tmp_path / "in"), format="json", schema=f"{SCHEMA}, w STRING")
        return {"hours": hourly(tm.source("in", spec, watermarks=strategy))}

    land(tmp_path / "in", "0.json", [("a", 1, 5), ("b", 2, 6)])
    drain(spark, tmp_path, streams(then))
    land(tmp_path / "in", "1.json", [("a", 3 * HOUR, 7)])
    ran = drain(spark, tmp_path, streams(now))
    assert ran.epochs[-1].operators["hours"].watermark == 3 * HOUR - 1
    assert sorted(rows_of(tmp_path, "hours", "k", "n")) == [("a", 1), ("b", 1)]
