"""The sweep of stagings: what can never be committed goes, after two passes; everything else stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from tidemark.errors import FencedError
from tidemark.locations import Location
from tidemark.semantics.watermarks.watermarks import SourceState
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.local_sinks import ConsoleSink, MemorySink, clear_memory, memory_table
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.sink_sweep import sweep_outputs
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sinks.staging.staging import first_staging, folder_of, is_staging, new_staging
from tidemark.state.gc.pins import Pins
from tidemark.state.gc.retention import retire
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OutputRecord, ParentRef, StagedFile
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

LINEAGE = "0123456789abcdef"
RESTORED = "00112233445566ff"
LEASE = 30_000
SCHEMA = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'


class Place:
    """A job's log, its sinks, and a driver that stages and commits epochs without Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Far ahead of the disk's clock, so that every file counts as old.
        self.clock = ManualClock(4_000_000_000_000)
        self.log = JobLog(JobStore.open(str(folder / "store")).at("fares"), "fares", self.clock)
        self.driver = self.log.acquire(current_owner())
        self.sinks: Mapping[str, BoundSink] = {
            "delta": BoundSink("delta", DeltaSink("delta", str(folder / "delta"))),
            "parquet": BoundSink("parquet", ParquetSink("parquet", str(folder / "parquet"))),
            "console": BoundSink("console", ConsoleSink("console", 5, self.log.store)),
        }

    def stage(self, name: str, epoch: int, *, lineage: str = LINEAGE) -> OutputRecord:
        """Write one row where the sink stages."""
        sink = self.sinks[name].sink
        path = f"{sink.staging_folder(new_staging(lineage, epoch))}/part-00000.parquet"
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": [epoch]}), buffer)
        data = buffer.getvalue().to_pybytes()
        sink.staging.put(path, data)
        sink.staging.put(path.replace("part-", ".part-") + ".crc", b"crc")
        return OutputRecord(sink.kind, sink.location, SCHEMA, (StagedFile(path, 1, len(data)),), 1)

    def commit(self, epoch: int, outputs: Mapping[str, OutputRecord], driver: Driver | None = None, *, lineage: str = LINEAGE) -> None:
        driver = driver or self.driver
        progress = EpochProgress("fares", lineage, epoch, 0, 0, 0, 0)
        parent = None if lineage == LINEAGE else ParentRef(LINEAGE, 1)
        record = EpochRecord("fares", lineage, parent, driver.term, epoch, 0, str(epoch), progress, outputs=outputs)
        driver.append(replace(record, sources={"fares": SourceState({}, epoch)}))

    def publish(self, epoch: int, outputs: Mapping[str, OutputRecord]) -> None:
        for name, output in outputs.items():
            self.sinks[name].publish(output, LINEAGE, epoch)

    def sweep_twice(self, driver: Driver | None = None) -> tuple[str, ...]:
        """Sweep, let more than a lease pass, sweep again; returns what the second pass deleted."""
        first = sweep_outputs(driver or self.driver, self.sinks, LINEAGE, lease_ms=LEASE)
        assert first.deleted == ()
        self.clock.advance(LEASE + 1)
        return sweep_outputs(driver or self.driver, self.sinks, LINEAGE, lease_ms=LEASE).deleted

    def there(self, name: str, output: OutputRecord) -> bool:
        return self.sinks[name].sink.staging.exists(output.files[0].path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("name", ["delta", "parquet", "console"])
def test_only_what_no_record_names_goes(place: Place, name: str) -> None:
    named, orphan, ahead = place.stage(name, 0), place.stage(name, 0), place.stage(name, 1)
    other = place.stage(name, 0, lineage="fedcba9876543210")
    place.commit(0, {name: named})
    deleted = place.sweep_twice()
    assert len(deleted) == 4  # each with its checksum
    assert [place.there(name, output) for output in (named, orphan, ahead, other)] == [True, False, False, True]
    staging = place.sinks[name].sink.staging
    assert not Path(staging.location.joined(folder_of(orphan)).path).exists()


def test_before_the_first_commit_everything_of_the_lineage_is_an_orphan(place: Place) -> None:
    orphan = place.stage("delta", 0)
    place.sweep_twice()
    assert not place.there("delta", orphan)


def test_nothing_is_deleted_before_a_lease_has_passed(place: Place) -> None:
    orphan = place.stage("delta", 0)
    for _ in range(3):
        assert sweep_outputs(place.driver, place.sinks, LINEAGE, lease_ms=LEASE).deleted == ()
        place.clock.advance(LEASE // 3)
    assert place.there("delta", orphan)


def test_stagings_of_epochs_that_are_retired_stay(place: Place) -> None:
    """A Delta table needs them, and no record says so any more."""
    old = [place.stage("delta", epoch) for epoch in range(3)]
    for epoch, output in enumerate(old):
        place.commit(epoch, {"delta": output})
    retire(place.driver, retained_epochs=1)
    place.sweep_twice()
    assert all(place.there("delta", output) for output in old)


def test_what_a_lineage_leaves_behind_goes_once_the_job_has_left_it(place: Place) -> None:
    old = [place.stage("delta", epoch) for epoch in range(3)]
    for epoch, output in enumerate(old):
        place.commit(epoch, {"delta": output})
        place.publish(epoch, {"delta": output})
    crashed = [place.stage("delta", epoch) for epoch in (2, 3)]
    place.commit(1, {}, lineage=RESTORED)
    ahead = place.stage("delta", 2, lineage=RESTORED)
    named = place.stage("delta", 2, lineage=RESTORED)
    place.commit(2, {"delta": named}, lineage=RESTORED)
    for _ in range(2):
        sweep_outputs(place.driver, place.sinks, RESTORED, lease_ms=LEASE)
        place.clock.advance(LEASE + 1)
    assert [place.there("delta", output) for output in (*old, named)] == [True] * 4
    assert [place.there("delta", output) for output in (*crashed, ahead)] == [False] * 3


def test_of_a_lineage_whose_epochs_are_retired_nothing_is_known_and_nothing_goes(place: Place) -> None:
    published, crashed, pinned = (place.stage("delta", epoch) for epoch in (0, 0, 1))
    place.commit(0, {"delta": published})
    place.commit(1, {"delta": pinned})
    Pins(place.log).put("kept", 1)
    place.commit(1, {}, lineage=RESTORED)
    retire(place.driver, retained_epochs=1)
    for _ in range(2):
        sweep_outputs(place.driver, place.sinks, RESTORED, lease_ms=LEASE)
        place.clock.advance(LEASE + 1)
    assert all(place.there("delta", output) for output in (published, crashed, pinned))


def test_what_was_marked_goes_though_its_epoch_is_retired_meanwhile(place: Place) -> None:
    orphan, named = place.stage("delta", 0), place.stage("delta", 0)
    place.commit(0, {"delta": named})
    sweep_outputs(place.driver, place.sinks, LINEAGE, lease_ms=LEASE)
    place.commit(1, {"delta": place.stage("delta", 1)})
    retire(place.driver, retained_epochs=1)
    place.clock.advance(LEASE + 1)
    sweep_outputs(place.driver, place.sinks, LINEAGE, lease_ms=LEASE)
    assert not place.there("delta", orphan)
    assert place.there("delta", named)


def test_a_pin_keeps_what_it_names(place: Place) -> None:
    pinned = place.stage("delta", 0)
    place.commit(0, {"delta": pinned})
    Pins(place.log).put("kept", 0)
    place.commit(1, {})
    retire(place.driver, retained_epochs=1)
    place.sweep_twice()
    assert place.there("delta", pinned)


def test_a_pin_does_not_put_published_files_of_retired_epochs_at_risk(place: Place) -> None:
    """The table does not show them any more; its older versions need them until its own retention is over."""
    outputs = [place.stage("delta", epoch) for epoch in range(4)]
    for epoch, output in enumerate(outputs):
        place.commit(epoch, {"delta": output})
        place.publish(epoch, {"delta": output})
        if epoch == 0:
            Pins(place.log).put("kept", 0)
    orphan = place.stage("delta", 3)
    DeltaTable(str(place.folder / "delta")).delete("n < 3")
    retire(place.driver, retained_epochs=1)
    place.sweep_twice()
    assert [place.there("delta", output) for output in outputs] == [True] * 4
    assert not place.there("delta", orphan)


def test_a_file_that_the_table_shows_stays_whatever_the_records_say(place: Place) -> None:
    shown, orphan = place.stage("delta", 0), place.stage("delta", 0)
    place.publish(0, {"delta": shown})
    place.sweep_twice()
    assert place.there("delta", shown)
    assert not place.there("delta", orphan)
    assert DeltaTable(str(place.folder / "delta")).to_pyarrow_table().num_rows == 1


def test_folders_of_others_stay(place: Place) -> None:
    for name in ("tidemark-backup", f"tidemark-{LINEAGE}-backup", f"{first_staging(LINEAGE, 0)}-0123abcd", "zone=7"):
        (place.folder / "delta" / name).mkdir(parents=True)
        (place.folder / "delta" / name / "x.parquet").touch()
    assert place.sweep_twice() == ()
    assert len(list(place.folder.glob("delta/*/x.parquet"))) == 4


def test_a_former_output_is_swept_as_long_as_an_epoch_has_it(place: Place) -> None:
    orphan, named = place.stage("parquet", 0), place.stage("parquet", 0)
    place.commit(0, {"parquet": named})
    place.sinks = {name: sink for name, sink in place.sinks.items() if name != "parquet"}
    place.sweep_twice()
    left = {path.parent.name for path in (place.folder / "parquet").rglob("part-*.parquet")}
    assert left == {folder_of(named).rpartition("/")[2]} != {folder_of(orphan).rpartition("/")[2]}


def test_a_fenced_driver_deletes_nothing(place: Place) -> None:
    orphan = place.stage("delta", 0)
    sweep_outputs(place.driver, place.sinks, LINEAGE, lease_ms=LEASE)
    place.clock.advance(LEASE + 1)
    newer = place.log.acquire(current_owner(), takeover=True)
    with pytest.raises(FencedError):
        sweep_outputs(place.driver, place.sinks, LINEAGE, lease_ms=LEASE)
    assert place.there("delta", orphan)
    assert sweep_outputs(newer, place.sinks, LINEAGE, lease_ms=LEASE).deleted != ()


def test_published_stagings_leave_nothing_behind(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.sinks = {**place.sinks, "memory": BoundSink("memory", MemorySink("memory", "sweep-test", place.log.store))}
    outputs = {name: place.stage(name, 0) for name in ("parquet", "console", "memory")}
    for _ in range(2):
        place.publish(0, outputs)
    table = memory_table("sweep-test")
    clear_memory("sweep-test")
    assert table is not None
    assert table.num_rows == 1
    assert capsys.readouterr().out.count("epoch 0: 1 rows") == 1
    # The note of what was published is no staging.
    left = sorted(path.name for path in (place.folder / "parquet").rglob("*") if path.is_file())
    assert left == [f"part-{LINEAGE}-000000000000-00000.parquet", "published-=parquet.json"]
    assert not (place.folder / "store" / "fares" / "staging").exists()


@pytest.mark.parametrize("scheme", ["file", "s3"])
def test_folders_from_a_name_on(scheme: str, tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path)) if scheme == "file" else JobStore(Location("s3", "lake", ""), MemoryStore())
    for name in ("a/x", "b/x", "b/y/z", "c", "d/x", "in/b/x", "in/c/x", "in/d/x"):
        store.put(name, b"1")
    assert store.folders(start="b", stop="d") == ("b",)
    assert store.folders(start="b") == ("b", "d", "in")
    assert store.folders("in", start="c") == ("c", "d")
    assert store.at("in").folders(start="b", stop="d") == ("b", "c")
    assert store.folders("nowhere", start="b") == ()


def test_names_of_stagings() -> None:
    names = [new_staging(LINEAGE, epoch) for epoch in (9, 10, 11)]
    assert names == sorted(names)
    assert all(map(is_staging, names))
    assert first_staging(LINEAGE, 10) < names[1] < first_staging(LINEAGE, 11)
    assert new_staging(LINEAGE, 1) != new_staging(LINEAGE, 1)


@pytest.mark.parametrize("gone", [0, 1])
def test_what_was_shown_and_is_half_removed_is_not_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], gone: int) -> None:
    store = JobStore.open(str(tmp_path / "store")).at("fares")
    sink = ConsoleSink("console", 5, store)
    folder = sink.staging_folder(new_staging(LINEAGE, 0))
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1]}), buffer)
    paths = [f"{folder}/part-{number}.parquet" for number in range(2)]
    for path in paths:
        store.put(path, buffer.getvalue().to_pybytes())
    record = OutputRecord("console", None, SCHEMA, tuple(StagedFile(path, 1, 1) for path in paths), 2)
    store.delete([paths[gone]])
    sink.publish(record, LINEAGE, 0)
    assert capsys.readouterr().out == ""
    assert [file.path for file in store.list(folder)] == []
