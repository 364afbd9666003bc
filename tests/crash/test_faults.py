"""Faults besides crashes: damaged and lost files, two drivers at once, sinks that fail, files that nobody finished."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.bad_inputs import HOUR, ROWS, Lab, newest_record, state_files
from tests.seeds import only_long
from tests.small_disk import fill, small_disk
from tidemark.errors import CorruptStoreError, FencedError, JobRunningError, PublishError, TidemarkError
from tidemark.savepoints.delta.result_tables import COLUMNS_FILE
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.status.history import read_history
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.state.log.progress import EpochProgress

pytestmark = [pytest.mark.crash, pytest.mark.spark]

Element = tuple[object, ...]
EPOCHS: list[list[Element]] = [ROWS, [("c", 6 * HOUR, 1)], [("a", 9 * HOUR, 3), ("b", 9 * HOUR, 5)]]
ALL = Counter(element for epoch in EPOCHS for element in epoch)
FAR_FUTURE = 4_000_000_000_000
LEASE = 40_000


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(tmp_path, spark)


def rows_job(lab: Lab, sink: str = "delta", *, readers_move_files: bool = False) -> tm.Job:
    stream = lab.source(*EPOCHS)
    place = lab.path("out")
    written = tm.delta(stream, place) if sink == "delta" else tm.parquet(stream, place, readers_move_files=readers_move_files)
    return lab.job(rows=written)


def rows_out(lab: Lab) -> Counter[Element]:
    """Return what readers of the Delta table see."""
    if not DeltaTable.is_deltatable(lab.path("out")):
        return Counter()
    return Counter(tuple(row.values()) for row in DeltaTable(lab.path("out")).to_pyarrow_table().to_pylist())


def parquet_out(lab: Lab) -> Counter[Element]:
    """Return what readers of the Parquet folder see."""
    return Counter(tuple(row) for row in lab.spark.read.parquet(lab.path("out")).collect())


def log_of(lab: Lab) -> JobLog:
    return JobLog(JobStore.open(lab.path("store")).at(lab.name), lab.name)


def head_epoch(lab: Lab) -> int | None:
    head = log_of(lab).load().epoch
    return None if head is None else head.epoch


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --------------------------------------------------------------------------------------------------------- damaged files


def test_a_damaged_newest_record_is_refused_and_nothing_is_changed(lab: Lab) -> None:
    record = newest_record(lab.ran())
    record.write_bytes(record.read_bytes()[:-30])
    before = contents(lab.folder)
    with pytest.raises(CorruptStoreError, match=record.name):
        lab.run(lab.windows_out(lab.hourly()))
    assert contents(lab.folder) == before


def test_a_damaged_older_record_stops_the_sweep_and_not_the_job(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(FAR_FUTURE)
    lab.run(rows_job(lab), clock=clock, max_epochs=2)
    oldest = sorted((lab.folder / "store" / "fares" / "log").glob("*.json"))[1]
    oldest.write_bytes(oldest.read_bytes()[:-30])
    stray = lab.folder / "store" / "fares" / "state" / "gone" / "stray.parquet"
    stray.parent.mkdir(parents=True)
    stray.touch()
    with caplog.at_level(logging.WARNING, "tidemark"):
        for _ in range(3):
            clock.advance(LEASE)
            lab.run(rows_job(lab), clock=clock)
    assert oldest.name in caplog.text
    assert rows_out(lab) == ALL
    assert stray.exists(), "what a record that cannot be read needs is not known, so nothing may go"


def flip_a_bit(file: Path) -> None:
    """Change the last bit of the data of a Parquet file's first column."""
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    start = chunk.data_page_offset if chunk.dictionary_page_offset is None else min(chunk.data_page_offset, chunk.dictionary_page_offset)
    data = bytearray(file.read_bytes())
    data[start + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "cut short": lambda file: file.write_bytes(file.read_bytes()[:-20]),
    "empty": lambda file: file.write_bytes(b""),
    "one bit flipped": flip_a_bit,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_file_that_is_needed_and_damaged_is_named(lab: Lab, damage: str) -> None:
    lost: list[str] = []
    for file in state_files(lab.ran()):
        # Object stores have no such files.
        (file.parent / f".{file.name}.crc").unlink()
        DAMAGES[damage](file)
        lost.append(file.name)
    before, seen = head_epoch(lab), rows_out(lab)
    with pytest.raises(CorruptStoreError, match="|".join(lost)):
        lab.run(lab.windows_out(lab.hourly()), end_of_input=True)
    assert (head_epoch(lab), rows_out(lab)) == (before, seen)


@pytest.mark.parametrize("name", ["heartbeat.json", "status.json"])
def test_a_damaged_small_file_is_written_anew(lab: Lab, name: str) -> None:
    lab.run(rows_job(lab), max_epochs=1)
    (lab.folder / "store" / "fares" / name).write_text("{")
    lab.run(rows_job(lab))
    assert rows_out(lab) == ALL
    status = read_status(JobStore.open(lab.path("store")), "fares")
    assert status is not None
    assert status.state == "finished"
    assert status.outputs["rows"].schema is not None


def test_an_empty_parquet_file_has_no_rows_and_hides_none(lab: Lab) -> None:
    lab.spark.createDataFrame(ROWS, "zone STRING, at BIGINT, fare BIGINT").write.parquet(lab.path("landing"))
    (lab.folder / "landing" / "empty.parquet").touch()
    result = lab.run(lab.job(rows=tm.delta(lab.files("parquet"), lab.path("out"))))
    assert result.rows_in == len(ROWS)
    assert rows_out(lab) == Counter(ROWS)


# ------------------------------------------------------------------------------------------------------------ a full disk


@pytest.mark.parametrize("free_kibibytes", [0, 20, *(pytest.param(free, marks=only_long) for free in (8, 40))])
def test_a_full_disk_loses_nothing(lab: Lab, free_kibibytes: int) -> None:
    with small_disk(lab.folder / "disk", 4096):
        inner = Lab(lab.folder / "disk", lab.spark)
        job = inner.windows_out(inner.hourly(inner.source(*EPOCHS)))
        inner.run(job, max_epochs=1)
        filler = fill(inner.folder, free_kibibytes=free_kibibytes)
        with pytest.raises(TidemarkError) as raised:
            inner.run(job)
        assert raised.value.transient, str(raised.value)
        filler.unlink()
        # The driver may not have been able to say that it gave the job up.
        inner.run(job, end_of_input=True, takeover=True)
        rows = DeltaTable(inner.path("out")).to_pyarrow_table().to_pylist()
    # Each element is alone in its hour.
    assert Counter((row["zone"], int(row["window_start"].timestamp() * 1000), row["total"]) for row in rows) == ALL


# ----------------------------------------------------------------------------------------------------------- two drivers


def test_a_second_run_is_refused_while_the_first_is_alive(lab: Lab) -> None:
    job, refused = rows_job(lab), []

    def run_again(_: EpochProgress) -> None:
        with pytest.raises(JobRunningError, match="heartbeat") as caught:
            lab.run(job)
        refused.append(caught.value)

    lab.run(job, on_epoch=run_again)
    assert len(refused) == len(EPOCHS)
    assert rows_out(lab) == ALL


def test_a_driver_that_was_taken_over_publishes_nothing_more(lab: Lab) -> None:
    job, newer = rows_job(lab), list[Driver]()

    def take_over(_: EpochProgress) -> None:
        newer.append(log_of(lab).acquire(current_owner("newer"), takeover=True))

    with pytest.raises(FencedError, match="term 2"):
        lab.run(job, on_epoch=take_over)
    assert len(newer) == 1
    assert head_epoch(lab) == 0
    assert rows_out(lab) == Counter(EPOCHS[0])
    status = read_status(JobStore.open(lab.path("store")), "fares")
    assert status is not None
    assert status.error is None, "the status is the newer driver's to write"
    newer[0].release()
    lab.run(job)
    assert rows_out(lab) == ALL
    assert [epoch.epoch for epoch in read_history(JobStore.open(lab.path("store")), "fares")] == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------ sinks that fail


@pytest.mark.parametrize(("sink", "kind"), [(DeltaSink, "delta"), (ParquetSink, "parquet")])
def test_a_committed_epoch_that_was_not_published_is_published_by_the_next_run(
    lab: Lab, sink: type[DeltaSink | ParquetSink], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PublishError("the disk is full", fix="make room")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "publish", refuse)
        with pytest.raises(PublishError, match="the disk is full"):
            lab.run(rows_job(lab, kind))
    assert head_epoch(lab) == 0
    read = rows_out if kind == "delta" else parquet_out
    assert [path for path in lab.folder.glob("out/*.parquet") if path.name != COLUMNS_FILE] == []
    lab.run(rows_job(lab, kind), max_epochs=1)
    assert read(lab) == Counter(EPOCHS[0]) + Counter(EPOCHS[1])
    lab.run(rows_job(lab, kind))
    assert read(lab) == ALL


def test_published_parquet_files_may_be_taken_away_where_the_job_says_so(lab: Lab) -> None:
    job = rows_job(lab, "parquet", readers_move_files=True)
    lab.run(job, max_epochs=2)
    taken = parquet_out(lab)
    for file in lab.folder.glob("out/*.parquet"):
        file.unlink()
    lab.run(job)
    assert taken + parquet_out(lab) == ALL


def test_a_staged_file_that_was_lost_before_it_was_published_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lab.settings, "spark.sql.files.maxRecordsPerFile", "1")
    with monkeypatch.context() as patch:
        patch.setattr(ParquetSink, "publish", lambda *_: None)
        lab.run(rows_job(lab, "parquet"), max_epochs=1)
    head = log_of(lab).load().epoch
    assert head is not None
    lost = head.outputs["rows"].files[-1].path
    (lab.folder / "out" / lost).unlink()
    with pytest.raises(PublishError, match=Path(lost).name):
        lab.run(rows_job(lab, "parquet"))
    assert head_epoch(lab) == 0


def test_only_the_newest_epochs_are_retained(lab: Lab) -> None:
    job = tm.Job("fares", outputs=rows_job(lab).outputs, store=lab.path("store"), retained_epochs=1)
    lab.run(job)
    assert [record.epoch for record in log_of(lab).epochs()] == [2]
    assert rows_out(lab) == ALL
