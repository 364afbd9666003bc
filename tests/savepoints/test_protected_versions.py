"""What savepoints need of tables stays, also where nobody noted it; what is lost of it is said, and stops no upkeep."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.savepoints.delta_jobs import job_with_tables, maintain, publish, rows, run_epoch
from tests.savepoints.stored_jobs import StoredJob
from tidemark.errors import SinkError
from tidemark.savepoints.api.maintenance import vacuum_tables
from tidemark.savepoints.core import savepoint_store
from tidemark.savepoints.core.protected_versions import RECHECK_MS, ProtectedVersionsSearch
from tidemark.savepoints.model.savepoint import Savepoint, TableVersion
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind
from tidemark.spark.loop.housekeeping import SWEEP_INTERVAL_MS, Housekeeping
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.state.status.status import read_status

AT_ONCE = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    """Two epochs; tables that give old files up at once."""
    for name in ("hourly", "late"):
        write_deltalake(str(tmp_path / name), pa.table({"epoch": pa.array([], pa.int64())}), configuration=AT_ONCE)
    made = job_with_tables(tmp_path)
    for _ in range(2):
        run_epoch(made)
    return made


class NotingSink(DeltaSink):
    """Notes which versions of its table it was told to keep."""

    kept: frozenset[int] | None = None

    def protect_versions(self, versions: frozenset[int] | None) -> None:
        self.kept = versions


def taken_unpublished(job: StoredJob) -> Savepoint:
    """Take a savepoint between an epoch's commit and its publication."""
    record = job.commit()
    savepoint = job.savepoints.take("keep")
    assert dict(savepoint.info.tables) == {}
    publish(record)
    return savepoint


def refuse(*_: object) -> None:
    raise SinkError("no way", fix="none")


def needed(job: StoredJob, folder: Path, search: ProtectedVersionsSearch | None = None) -> tuple[frozenset[int] | None, tuple[str, ...]]:
    savepoints, head = job.savepoints.list(), job.log.load().epoch
    assert head is not None
    found = (search or ProtectedVersionsSearch(job.savepoints)).of(str(folder / "hourly"), savepoints, head)
    return found.versions, found.lost


def test_a_vacuum_leaves_what_a_savepoint_needs_that_noted_nothing(job: StoredJob, tmp_path: Path) -> None:
    taken_unpublished(job)
    run_epoch(job)
    maintain(str(tmp_path / "hourly"))
    # The one is the last epoch's, which went when files were put into one.
    assert vacuum_tables(job.root, "taxi", clock=job.clock) == {"hourly": 1, "late": 0}
    run_epoch(job)
    job.driver.release()
    assert preview_rewind(job.root, "taxi", "keep", clock=job.clock).refusals == ()
    rewind(job.root, "taxi", "keep", clock=job.clock)
    assert [rows(tmp_path / name) for name in ("hourly", "late")] == [[0, 1, 2]] * 2


def test_nothing_is_given_up_before_the_table_shows_what_a_savepoint_needs(job: StoredJob, tmp_path: Path) -> None:
    maintain(str(tmp_path / "hourly"))
    record = job.commit()
    job.savepoints.take("keep")
    assert needed(job, tmp_path) == (None, ())
    assert vacuum_tables(job.root, "taxi", clock=job.clock) == {}
    publish(record)
    assert needed(job, tmp_path) == (frozenset({4}), ())
    assert vacuum_tables(job.root, "taxi", clock=job.clock) == {"hourly": 2, "late": 0}


def test_an_epoch_that_no_table_will_ever_show_keeps_nothing(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("good")
    job.commit()
    job.savepoints.take("never")
    job.driver.release()
    rewind(job.root, "taxi", "good", clock=job.clock, although_unpublished=True)
    assert preview_rewind(job.root, "taxi", "never", clock=job.clock).refusals != ()
    assert needed(job, tmp_path) == (frozenset({2}), ())


def test_what_upkeep_may_still_move_on_is_looked_up_anew_and_nothing_else(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ProtectedVersionsSearch(job.savepoints)
    taken_unpublished(job)
    assert needed(job, tmp_path, search) == (frozenset({3}), ())
    maintain(str(tmp_path / "hourly"))
    run_epoch(job)
    # As a rewind would find it.
    assert preview_rewind(job.root, "taxi", "keep", clock=job.clock).tables["hourly"].version == 4
    assert needed(job, tmp_path, search) == (frozenset({4}), ())
    monkeypatch.setattr("tidemark.savepoints.core.protected_versions.table_versions", None)
    assert needed(job, tmp_path, search) == (frozenset({4}), ())


@pytest.mark.parametrize("known", [True, False], ids=["by-its-id", "of-an-older-release"])
def test_a_table_that_was_made_anew_is_vacuumed_all_the_same(job: StoredJob, tmp_path: Path, *, known: bool) -> None:
    old = job.savepoints.take("old")
    shutil.rmtree(tmp_path / "hourly")
    run_epoch(job)
    job.savepoints.take("new")
    if not known:
        tables = {name: replace(version, table=None) for name, version in old.info.tables.items()}
        old = replace(old, info=replace(old.info, tables=tables))
    head = job.log.load().epoch
    assert head is not None
    found = ProtectedVersionsSearch(job.savepoints).of(str(tmp_path / "hourly"), (old, job.savepoints.get("new")), head)
    reason = "of a table that was recreated since" if known else "the table is at version 0: it was recreated"
    assert (found.versions, found.lost) == (frozenset({0}), (f"'old' (version 2: {reason})",))
    assert vacuum_tables(job.root, "taxi", clock=job.clock) == {"hourly": 0, "late": 0}


def test_a_version_whose_log_was_cleaned_up_is_not_kept(job: StoredJob, tmp_path: Path) -> None:
    search = ProtectedVersionsSearch(job.savepoints)
    for name in ("two", "three"):
        job.savepoints.take(name)
        run_epoch(job)
    DeltaTable(str(tmp_path / "hourly"), version=3).create_checkpoint()
    assert needed(job, tmp_path, search) == (frozenset({2, 3}), ())
    log = tmp_path / "hourly" / "_delta_log"
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    assert needed(job, tmp_path, search) == (frozenset({2, 3}), ()), "what was seen is believed for a while"
    job.clock.advance(RECHECK_MS)
    # What a checkpoint sums up can be read without the commits before it.
    assert needed(job, tmp_path, search) == (frozenset({3}), ("'two' (version 2: the table's log was cleaned up)",))
    assert DeltaTable(str(tmp_path / "hourly"), version=3).version() == 3
    assert vacuum_tables(job.root, "taxi", clock=job.clock) == {"hourly": 0, "late": 0}


def test_the_driver_tells_its_tables_and_says_what_is_lost(job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = {name: NotingSink(name, str(tmp_path / name)) for name in ("hourly", "late")}
    stream = tm.source("t", tm.from_elements([(1,)], schema="at BIGINT"), watermarks=tm.ingestion_time())
    definition = tm.Job("taxi", outputs={"rows": tm.memory(stream, "rows")})
    bound = {name: BoundSink(name, sink) for name, sink in sinks.items()}
    keeping = Housekeeping(job.root, definition, job.driver, sinks=bound, clock=job.clock)

    def kept() -> list[frozenset[int] | None]:
        record = run_epoch(job)
        job.clock.advance(SWEEP_INTERVAL_MS)
        keeping.after_epoch(record, record.progress)
        return [sink.kept for sink in sinks.values()]

    def put_off() -> list[str]:
        status = read_status(job.root, "taxi")
        assert status is not None
        return [f"{item.work}: {item.why}" for item in status.put_off]

    taken_unpublished(job)
    keeping.begin(job.driver.last, job.log.origin())
    assert kept() == [frozenset({3})] * 2
    lost = {"hourly": TableVersion(str(tmp_path / "hourly"), 3, None, "another")}
    job.savepoints.pins.put("old", 1)
    kept_ = savepoint_store.SavepointStore.all_protected

    def with_lost(store: savepoint_store.SavepointStore) -> tuple[Savepoint, ...]:
        return tuple(replace(item, info=replace(item.info, tables=lost)) if item.name == "old" else item for item in kept_(store))

    with monkeypatch.context() as patch:
        patch.setattr(savepoint_store.SavepointStore, "all_protected", with_lost)
        assert kept() == [frozenset({3}), frozenset({2, 3})]
        (said,) = put_off()
    assert said.startswith("keeping all that savepoints need of tables: [TM300] tables no longer have versions that savepoints")
    assert "'old' (version 3: of a table that was recreated since)" in said
    assert "`tidemark savepoint dispose taxi NAME`" in said
    assert kept() == [frozenset({2, 3})] * 2
    assert put_off() == []
    with monkeypatch.context() as patch:
        patch.setattr(savepoint_store, "read_rewind", lambda _: SimpleNamespace(pin="old", savepoint="other"))
        assert "old" not in [savepoint.name for savepoint in job.savepoints.list()]
        assert kept() == [frozenset({2, 3})] * 2, "what a rewind keeps for itself is needed, too"
    # As long as a table cannot be read nothing is given up.
    monkeypatch.setattr("tidemark.savepoints.core.protected_versions.open_table", refuse)
    assert kept() == [None, None]
    assert "no way" in put_off()[0]


def test_one_that_is_taken_while_its_epoch_is_published_waits_for_that(job: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [job.commit()]

    def sleep(_seconds: float) -> None:
        if waiting:
            publish(waiting.pop())

    monkeypatch.setattr(job.clock, "sleep", sleep)
    assert {name: table.version for name, table in job.savepoints.take().info.tables.items()} == {"hourly": 3, "late": 3}
