from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.savepoints.delta_jobs import TABLES, job_with_tables, maintain, publish, rows, run_epoch, write
from tests.savepoints.stored_jobs import StoredJob, live_files
from tidemark.errors import JobRunningError, RewindError, SavepointInUseError, UnknownSavepointError
from tidemark.savepoints.restore import Restore
from tidemark.savepoints.rewind_note import read_rewind, require_no_rewind
from tidemark.savepoints.rewinding import look, rewind
from tidemark.testing.crash import run_until_crash


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    """Six epochs: a savepoint after epoch 2, a compaction after epoch 3; stopped."""
    made = job_with_tables(tmp_path)
    for epoch in range(6):
        run_epoch(made)
        if epoch == 2:
            made.savepoints.take("good")
        if epoch == 3:
            maintain(str(tmp_path / "hourly"))
    made.driver.release()
    return made


def go(job: StoredJob, name: str) -> list[str]:
    said: list[str] = []
    rewind(job.root, "taxi", name, by="me", clock=job.clock, tell=said.append)
    return said


def test_state_and_tables_go_back_and_the_job_goes_on(job: StoredJob, tmp_path: Path) -> None:
    stored = job.savepoints.get("good").record
    said = go(job, "good")
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    assert "output raw is not put back: files that were written since stay in the folder, and their rows come again" in said
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
    plan = look(job.root, "taxi", "good", clock=job.clock)
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


def test_files_that_were_vacuumed_and_logs_that_were_cleaned_refuse_it(job: StoredJob, tmp_path: Path) -> None:
    for path in (tmp_path / "late").glob("*.parquet"):
        path.unlink()
    DeltaTable(str(tmp_path / "hourly")).create_checkpoint()
    for version in range(6):
        (tmp_path / "hourly" / "_delta_log" / f"{version:020d}.json").unlink()
    refusals = look(job.root, "taxi", "good", clock=job.clock).refusals
    assert refusals == (
        f"output 'hourly': the table at {tmp_path / 'hourly'} no longer has version 2: its log was cleaned up",
        f"output 'late': the table at {tmp_path / 'late'} has lost 3 of 3 files of version 2 to a vacuum",
    )


def test_a_running_job_a_missing_savepoint_and_a_job_without_epochs_are_refused(job: StoredJob, tmp_path: Path) -> None:
    with pytest.raises(UnknownSavepointError):
        go(job, "bad")
    job.restart()
    with pytest.raises(JobRunningError):
        go(job, "good")
    assert rows(tmp_path / "late") == [0, 1, 2, 3, 4, 5]


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
    run_until_crash("tests.savepoints.delta_jobs:rewind_in_process", point, [str(tmp_path), "good"]).require_killed()
    note = read_rewind(job.folder)
    assert note is not None
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
    assert records[0].lineage == note.lineage
    job.restart()
    run_epoch(job)
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2, 3]] * 2


def test_somebody_who_writes_in_the_middle_is_found(job: StoredJob, tmp_path: Path) -> None:
    run_until_crash("tests.savepoints.delta_jobs:rewind_in_process", "rewind-table-back", [str(tmp_path), "good"]).require_killed()
    write(str(tmp_path / "late"), 99)
    job.clock.set(6_000_000_000_000)
    with pytest.raises(RewindError, match="somebody else wrote version 6 of the table of output 'late'"):
        go(job, "good")
    assert read_rewind(job.folder) is not None
