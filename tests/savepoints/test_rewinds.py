from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.killed import kill_at
from tests.savepoints.delta_jobs import TABLES, job_with_tables, maintain, publish, rows, run_epoch, write
from tests.savepoints.stored_jobs import StoredJob, live_files
from tidemark.errors import (
    CorruptStoreError,
    EngineError,
    JobRunningError,
    RewindError,
    SavepointInUseError,
    SinkError,
    UnknownSavepointError,
    UpgradeError,
)
from tidemark.savepoints.core import savepoint_store
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.delta.table_versions import table_versions
from tidemark.savepoints.export.exporting import export_savepoint
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind, require_no_rewind, write_rewind
from tidemark.savepoints.model.savepoint import TableVersion
from tidemark.savepoints.model.upgrade_lock import UpgradeLock, remove_upgrade_lock, write_upgrade_lock
from tidemark.savepoints.rewind import rewinding
from tidemark.savepoints.rewind.rewinding import preview_rewind, require_possible, rewind
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.driver_load import Load
from tidemark.state.status.status import JobStatus, State, read_status, write_status
from tidemark.state.store.store import JobStore


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    return six_epochs(tmp_path)


def six_epochs(folder: Path) -> StoredJob:
    """Return a job of six epochs, stopped: a savepoint after epoch 2, a compaction after epoch 3."""
    made = job_with_tables(folder)
    for epoch in range(6):
        run_epoch(made)
        if epoch == 2:
            made.savepoints.take("good")
        if epoch == 3:
            maintain(str(folder / "hourly"))
    made.driver.release()
    return made


def job_without_rows_at_last(folder: Path) -> StoredJob:
    """Return a job of six epochs, stopped: a savepoint after epoch 2, and the last one has rows for no table."""
    made = job_with_tables(folder)
    for epoch in range(5):
        run_epoch(made)
        if epoch == 2:
            made.savepoints.take("good")
    made.outputs = {name: replace(output, files=(), rows=0) for name, output in made.outputs.items()}
    run_epoch(made)
    made.driver.release()
    return made


def go(job: StoredJob, name: str) -> list[str]:
    said: list[str] = []
    rewind(job.root, "taxi", name, by="me", clock=job.clock, on_progress=said.append)
    return said


def begin_only(job: StoredJob, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a rewind whose first table cannot be put back, now or later."""

    def stops(*_: object) -> None:
        raise SinkError("no way", fix="none")

    monkeypatch.setattr(rewinding, "revert_table", stops)
    with pytest.raises(SinkError):
        go(job, name)


def test_state_and_tables_go_back_and_the_job_goes_on(job: StoredJob, tmp_path: Path) -> None:
    stored = job.savepoints.get("good").record
    said = go(job, "good")
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    assert "output raw is not reverted: files that were written since stay in the folder, and their rows come again" in said
    head = job.log.load().epoch
    assert head is not None
    assert (head.epoch, head.lineage != stored.lineage, live_files(head)) == (2, True, live_files(stored))
    assert [(item.info.kind, item.record.epoch) for item in job.savepoints.list()] == [("manual", 2), ("before-rewind", 5)]
    job.restart()
    for _ in range(2):
        run_epoch(job)
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2, 3, 4]] * 2
    # And forth again, to what there was before the rewind.
    job.driver.release()
    go(job, job.savepoints.list()[1].name)
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2, 3, 4, 5]] * 2


def test_versions_are_found_for_any_epoch_also_when_nobody_wrote_them_down(job: StoredJob, tmp_path: Path) -> None:
    for epoch in range(6):
        tables = job.savepoints.take(epoch=epoch, lineage=job.log.origin()).info.tables
        assert {name: table.version for name, table in tables.items()} == {
            "hourly": epoch + (1 if epoch >= 3 else 0),
            "late": epoch,
        }
        assert all(table.until is not None and table.until > 1_700_000_000_000 for table in tables.values())
    job.restart()
    unpublished = job.commit()
    assert dict(job.savepoints.take().info.tables) == {}
    publish(unpublished)
    assert {name: table.version for name, table in job.savepoints.take().info.tables.items()} == {"hourly": 7, "late": 6}
    # A restored lineage has no commit of its own at first: what is there then is what its first epoch shows.
    job.restore(Restore("good"))
    begun = job.savepoints.take("begun")
    run_epoch(job)
    job.driver.release()
    assert {name: table.version for name, table in begun.info.tables.items()} == {"hourly": 7, "late": 6}
    go(job, "begun")
    assert rows(tmp_path / "late") == [0, 1, 2, 3, 4, 5, 6]


def test_it_is_refused_with_every_reason_and_nothing_is_changed(job: StoredJob, tmp_path: Path) -> None:
    write(str(tmp_path / "hourly"), 99)
    plan = preview_rewind(job.root, "taxi", "good", clock=job.clock)
    assert plan.refusals == (
        f"output 'hourly': the table at {tmp_path / 'hourly'} has versions of somebody else's since, which would be undone: 7 (WRITE)",
    )
    assert (plan.changed, dict(plan.left)) == (
        ("late",),
        {"raw": "files that were written since stay in the folder, and their rows come again"},
    )
    before = job.folder.list("refs"), job.log.load().epoch
    with pytest.raises(RewindError) as refused:
        go(job, "good")
    assert "somebody else's" in str(refused.value)
    assert "--restore good" in refused.value.fix
    assert (job.folder.list("refs"), job.log.load().epoch) == before
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5, 99]


def test_what_somebody_deleted_is_not_brought_back_unless_they_undo_it(job: StoredJob, tmp_path: Path) -> None:
    place = str(tmp_path / "hourly")
    before = DeltaTable(place).version()
    DeltaTable(place).delete("epoch = 1")
    write(place, 99)
    with pytest.raises(
        RewindError, match=r"would be undone: 8 \(WRITE\), 7 \(DELETE\).*Fix: .*undo them by a RESTORE to the version before them"
    ):
        go(job, "good")
    assert rows(place) == [0, 2, 3, 4, 5, 99]
    # As the fix says; one that comes after that stands in the way again.
    DeltaTable(place).restore(before)
    plan = preview_rewind(job.root, "taxi", "good", clock=job.clock)
    assert (plan.refusals, plan.changed) == ((), ("hourly", "late"))
    write(place, 98)
    assert preview_rewind(job.root, "taxi", "good", clock=job.clock).refusals
    DeltaTable(place).restore(before)
    go(job, "good")
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    job.restart()
    run_epoch(job)
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2, 3]] * 2


def test_a_running_job_a_missing_savepoint_and_a_job_without_epochs_are_refused(job: StoredJob, tmp_path: Path) -> None:
    with pytest.raises(UnknownSavepointError):
        go(job, "bad")
    job.restart()
    with pytest.raises(JobRunningError, match=r"tidemark rewind taxi --to \S+ --stop"):
        go(job, "good")
    assert rows(tmp_path / "late") == [0, 1, 2, 3, 4, 5]


def test_what_stands_against_it_is_found_while_the_job_runs(job: StoredJob, tmp_path: Path) -> None:
    job.restart()
    before = job.folder.list("refs"), job.log.load()
    require_possible(job.root, "taxi", "good", clock=job.clock)
    with pytest.raises(UnknownSavepointError):
        require_possible(job.root, "taxi", "bad", clock=job.clock)
    write_upgrade_lock(job.folder, UpgradeLock("upgrade-1", (), 0))
    with pytest.raises(UpgradeError):
        require_possible(job.root, "taxi", "good", clock=job.clock)
    remove_upgrade_lock(job.folder)
    write(str(tmp_path / "hourly"), 99)
    with pytest.raises(RewindError, match="somebody else's"):
        require_possible(job.root, "taxi", "good", clock=job.clock)
    assert (job.folder.list("refs"), job.log.load()) == before


def test_one_that_is_half_done_may_be_gone_on_with_and_no_other(job: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_only(job, "good", monkeypatch)
    job.savepoints.take("other", epoch=5)
    require_possible(job.root, "taxi", "good", clock=job.clock)
    with pytest.raises(RewindError, match="to savepoint 'good' was begun"):
        require_possible(job.root, "taxi", "other", clock=job.clock)


def test_nothing_to_do_for_tables_that_did_not_change(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("now")
    maintain(str(tmp_path / "late"))
    said = go(job, "now")
    assert not any("is back at version" in line for line in said)
    assert rows(tmp_path / "late") == [0, 1, 2, 3, 4, 5]


@pytest.mark.crash
@pytest.mark.parametrize(
    "point", ["rewind-noted", "rewind-table-back", "rewind-table-back:2", "rewind-tables-back", "restored", "rewind-restored"]
)
def test_killed_at_any_point_it_says_so_and_goes_on(job: StoredJob, tmp_path: Path, point: str) -> None:
    kill_at("tests.savepoints.delta_jobs:rewind_in_process", point, [str(tmp_path), "good"])
    journal = read_rewind(job.folder)
    assert journal is not None
    with pytest.raises(RewindError, match=r"was begun and is not done.*tidemark rewind taxi --to good"):
        require_no_rewind(job.folder, "taxi")
    with pytest.raises(SavepointInUseError):
        job.savepoints.dispose("good")
    job.savepoints.take("other", epoch=5)
    job.clock.set(6_000_000_000_000)
    with pytest.raises(RewindError, match="to savepoint 'good' was begun"):
        go(job, "other")
    job.clock.advance(60_000)
    assert "going on with the rewind to good that was begun" in go(job, "good")
    assert read_rewind(job.folder) is None
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    records = list(job.log.epochs())
    assert [record.epoch for record in records] == [2, 5, 4, 3, 2, 1, 0]
    assert records[0].lineage == journal.lineage
    job.restart()
    run_epoch(job)
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2, 3]] * 2


@pytest.mark.crash
@pytest.mark.parametrize("point", ["rewind-table-back", "rewind-tables-back", "restored"])
def test_a_savepoint_taken_in_the_middle_of_it_notes_what_the_newest_epoch_shows(tmp_path: Path, point: str) -> None:
    job = job_without_rows_at_last(tmp_path)
    newest = job.savepoints.pins.find()
    kill_at("tests.savepoints.delta_jobs:rewind_in_process", point, [str(tmp_path), "good"])
    job.savepoints.take("between", epoch=newest.record.epoch)
    job.clock.set(6_000_000_000_000)
    go(job, "good")
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    go(job, "between")
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2, 3, 4]] * 2


def test_a_rewind_that_begins_while_a_savepoint_is_taken_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_without_rows_at_last(tmp_path)

    def rewound_first(*args: Any, **options: Any) -> dict[str, TableVersion]:
        monkeypatch.setattr(savepoint_store, "table_versions", table_versions)
        go(job, "good")
        return table_versions(*args, **options)

    monkeypatch.setattr(savepoint_store, "table_versions", rewound_first)
    job.savepoints.take("between")
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    go(job, "between")
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2, 3, 4]] * 2


def test_somebody_who_writes_in_the_middle_is_found(job: StoredJob, tmp_path: Path) -> None:
    kill_at("tests.savepoints.delta_jobs:rewind_in_process", "rewind-table-back", [str(tmp_path), "good"])
    write(str(tmp_path / "late"), 99)
    job.clock.set(6_000_000_000_000)
    with pytest.raises(RewindError, match="somebody else wrote version 6 of the table of output 'late'"):
        go(job, "good")
    assert read_rewind(job.folder) is not None


@pytest.mark.parametrize("lost", ["state", "sources"])
def test_a_savepoint_that_is_not_whole_refuses_it_before_any_table_is_put_back(job: StoredJob, tmp_path: Path, lost: str) -> None:
    record = job.savepoints.get("good").record
    path = record.operators["hourly"].files[0].path if lost == "state" else record.source_logs["trips"].files[0].path
    job.folder.delete([path])
    (reason,) = preview_rewind(job.root, "taxi", "good", clock=job.clock).refusals
    assert reason.startswith("savepoint 'good': ")
    assert "is missing" in reason
    with pytest.raises(RewindError, match="is missing"):
        go(job, "good")
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5]
    assert read_rewind(job.folder) is None


def test_a_savepoint_that_is_disposed_of_meanwhile_is_gone_back_to_all_the_same(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def disposed_first(folder: JobStore, journal: RewindJournal) -> bool:
        # As by a command that looked for a rewind just before there was one.
        job.savepoints.dispose("good")
        assert journal.pin in job.savepoints.pins.names()
        return write_rewind(folder, journal)

    monkeypatch.setattr(rewinding, "write_rewind", disposed_first)
    go(job, "good")
    assert rows(tmp_path / "hourly") == [0, 1, 2]
    head = job.log.load().epoch
    assert head is not None
    assert (head.epoch, head.restored and head.restored.savepoint) == (2, "good")
    assert {path for _, path in live_files(head)} <= job.state_files()
    assert [item.info.kind for item in job.savepoints.list()] == ["before-rewind"]


def test_what_a_rewind_keeps_is_not_disposed_of_while_it_is_under_way(job: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_only(job, "good", monkeypatch)
    journal = read_rewind(job.folder)
    assert journal is not None
    job.savepoints.retire(SavepointRetention(count=0, age_ms=0))
    assert {"good", journal.pin} <= set(job.savepoints.pins.names())
    assert {item.name for item in job.savepoints.all_protected()} - {item.name for item in job.savepoints.list()} == {journal.pin}
    with pytest.raises(SavepointInUseError, match="a rewind to savepoint 'good' is under way"):
        job.savepoints.dispose(journal.pin)


def test_a_savepoint_that_goes_before_the_rewind_has_it_stops_it(job: StoredJob, tmp_path: Path) -> None:
    def tell(text: str) -> None:
        if "keeps what there is now" in text:
            job.savepoints.dispose("good")
            job.savepoints.take("good", epoch=0)

    with pytest.raises(CorruptStoreError, match="was removed meanwhile"):
        rewind(job.root, "taxi", "good", clock=job.clock, on_progress=tell)
    assert read_rewind(job.folder) is None
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("state", "after"), [("stopped", "stopped"), ("finished", "stopped"), ("failed", "failed")])
def test_the_status_says_at_once_where_the_job_is(job: StoredJob, state: State, after: State) -> None:
    last = job.log.load().epoch
    assert last is not None
    error = EngineError("it broke", fix="mend it") if state == "failed" else None
    load, now = Load(10_000, 20, 200_000, 0.25, 2_500, 50_000, 4_000), job.clock.now_ms()
    written = JobStatus("taxi", last.lineage, state, now, now, last=last.progress, totals=last.totals, owner=OwnerInfo("h", 1), load=load)
    write_status(job.root, written.with_error(error))
    go(job, "good")
    head, found = job.log.load().epoch, read_status(job.root, "taxi")
    assert head is not None
    assert found is not None
    assert (found.lineage, found.last, found.totals, found.load) == (head.lineage, head.progress, head.totals, None)
    assert (found.state, found.owner, found.error_code) == (after, written.owner, error.code if error is not None else None)


def test_a_table_that_was_made_anew_is_not_the_savepoints(job: StoredJob, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "hourly")
    job.restart()
    for _ in range(5):
        run_epoch(job)
    (reason,) = preview_rewind(job.root, "taxi", "good", clock=job.clock).refusals
    assert reason.endswith("is another one than that of the savepoint: it was made anew")


def test_an_imported_savepoint_knows_no_versions_of_the_tables_here(job: StoredJob, tmp_path: Path) -> None:
    export_savepoint(job.folder, job.savepoints.get("good"), str(tmp_path / "export"))
    found = import_savepoint(job.savepoints, str(tmp_path / "export"), name="imported")
    assert dict(found.info.tables) == {}
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(tmp_path / "hourly")
    shutil.rmtree(tmp_path / "late")
    other = job_with_tables(tmp_path)
    for _ in range(4):
        run_epoch(other)
    import_savepoint(other.savepoints, str(tmp_path / "export"), name="imported")
    reasons = preview_rewind(other.root, "taxi", "imported", clock=other.clock).refusals
    assert [reason.partition(":")[0] for reason in reasons] == ["output 'hourly'", "output 'late'"]


def test_what_a_retired_lineage_wrote_is_not_taken_for_older(tmp_path: Path) -> None:
    job = job_with_tables(tmp_path)
    both = dict(job.outputs)
    job.outputs = {"hourly": both["hourly"]}
    for _ in range(3):
        run_epoch(job)
    job.savepoints.take("good")
    # The second lineage is the first one that writes to ``late``; the newest epoch has nothing for it.
    for epochs in (2, 4):
        job.restore(Restore("good"))
        job.outputs = both
        for _ in range(epochs):
            run_epoch(job)
    job.outputs = {**both, "late": replace(both["late"], files=(), rows=0)}
    run_epoch(job)
    for retained in (100, 2):
        job.keep_house(retained=retained)
        plan = preview_rewind(job.root, "taxi", "good", clock=job.clock)
        assert "late" not in plan.tables
        assert [reason.partition(":")[0] for reason in plan.refusals] == ["output 'late'"]
