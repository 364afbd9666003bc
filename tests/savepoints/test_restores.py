from __future__ import annotations

from dataclasses import replace

import pytest

from tests.savepoints.stored_jobs import StoredJob, live_files, store_in_memory
from tidemark.errors import CorruptStoreError, DefinitionError, StateMismatchError, UnknownSavepointError
from tidemark.savepoints.model.offset_log_sources import offset_log_sources
from tidemark.savepoints.model.restore import Restore, RestoreTargets
from tidemark.savepoints.model.restore_history import is_restore_due
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore
from tidemark.savepoints.restore.shared_files import release_all, shared_savepoints_of
from tidemark.state.gc.file_references import ABANDONED_MS, FileReference, FileReferences
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import ParentRef


@pytest.fixture
def job() -> StoredJob:
    return StoredJob(store_in_memory())


def test_a_restored_job_goes_on_from_the_savepoint_under_a_new_lineage(job: StoredJob) -> None:
    records = [job.commit(2) for _ in range(4)]
    job.savepoints.take("a", epoch=1)
    job.restart()
    begun = job.restore(Restore("a"))
    stored = records[1]
    assert (begun.epoch, begun.parent, begun.term) == (1, ParentRef(stored.lineage, 1), job.driver.term)
    assert begun.lineage != stored.lineage
    assert (begun.offsets, begun.sources, begun.operators, begun.totals) == (
        stored.offsets,
        stored.sources,
        stored.operators,
        stored.totals,
    )
    assert begun.outputs == {}
    assert (begun.progress.rows_in, begun.progress.sources["trips"].rows_read, begun.progress.operators["hourly"].rows_late) == (0, 0, 0)
    assert begun.progress.sources["trips"].watermark == 5_000
    after = job.commit()
    assert (after.epoch, after.lineage, after.restored) == (2, begun.lineage, begun.restored)
    assert JobLog(job.folder, "taxi").load().epoch == after
    # Both lineages have an epoch 1 now; the newest one's is meant unless the other is named.
    assert job.savepoints.take("new", epoch=1).record == begun
    assert job.savepoints.take("old", epoch=1, lineage=stored.lineage).record == stored


def test_a_restore_with_a_name_is_made_once_whatever_comes_after_it(job: StoredJob) -> None:
    job.commit()
    job.savepoints.take("a")
    restore = Restore("a", identity="generation-7")
    assert is_restore_due(job.folder, job.driver.last, restore)
    job.restore(restore)
    assert not is_restore_due(job.folder, job.driver.last, restore)
    job.commit()
    job.restore(Restore("a"))
    assert not is_restore_due(job.folder, job.driver.last, restore)
    assert is_restore_due(job.folder, job.driver.last, replace(restore, identity="generation-8"))


def test_state_goes_to_the_operator_that_the_map_names() -> None:
    job = StoredJob(store_in_memory(), uids=("hourly", "daily"))
    job.commit(2)
    job.savepoints.take("a")
    targets = RestoreTargets({"per-hour", "daily"}, {"trips", "zones"})
    begun = job.restore(Restore("a", uids={"hourly": "per-hour"}), targets=targets)
    stored = job.savepoints.get("a").record
    assert set(begun.operators) == {"per-hour", "daily"}
    assert begun.operators["per-hour"] == stored.operators["hourly"]
    assert set(begun.progress.operators) == {"per-hour", "daily"}
    assert begun.totals["operators"]["per-hour"] == stored.totals["operators"]["hourly"]


def test_what_nothing_claims_is_listed_whole_and_left_out_only_if_asked() -> None:
    job = StoredJob(store_in_memory(), uids=("hourly", "daily", "old"))
    job.commit(3)
    job.savepoints.take("a")
    targets = RestoreTargets({"daily", "new"}, {"zones"})
    with pytest.raises(StateMismatchError) as refused:
        job.restore(Restore("a"), targets=targets)
    message = str(refused.value)
    for part in ("'hourly' (30 rows)", "'old' (30 rows)", "source 'trips'", "--map hourly=new", "--allow-non-restored-state"):
        assert part in message
    begun = job.restore(Restore("a", allow_non_restored_state=True), targets=targets)
    assert set(begun.operators) == {"daily"}
    assert (offset_log_sources(begun.offsets), dict(begun.sources), dict(begun.source_logs)) == (("zones",), {}, {})
    assert (dict(job.savepoints.get("a").record.topics), dict(begun.topics)) == ({"trips": {"fares": "c/1"}}, {})


def test_a_source_that_never_had_input_may_go(job: StoredJob) -> None:
    job.commit()
    job.savepoints.take("a")
    begun = job.restore(Restore("a"), targets=RestoreTargets({"hourly"}, {"trips"}))
    assert offset_log_sources(begun.offsets) == ("trips",)


def test_positions_of_no_source_that_is_left_are_no_text_at_all(job: StoredJob) -> None:
    job.commit()
    job.savepoints.take("a")
    begun = job.restore(Restore("a", allow_non_restored_state=True), targets=RestoreTargets({"hourly"}, {"other"}))
    assert begun.offsets == ""


@pytest.mark.parametrize(
    ("uids", "said"),
    [
        ({"hurly": "daily"}, "no such operator (did you mean 'hourly'?)"),
        ({"hourly": "dayly"}, "no such operator (did you mean 'daily'?)"),
        ({"hourly": "daily"}, "two operators' state would go to daily"),
    ],
)
def test_a_map_that_cannot_be_is_refused(uids: dict[str, str], said: str) -> None:
    job = StoredJob(store_in_memory(), uids=("hourly", "daily"))
    job.commit()
    job.savepoints.take("a")
    with pytest.raises(DefinitionError) as refused:
        job.restore(Restore("a", uids=uids), targets=RestoreTargets({"hourly", "daily"}, {"trips", "zones"}))
    assert said in str(refused.value)


def test_what_is_said_to_leave_the_state_behind_whose_uid_another_is_to_have_can_be_done() -> None:
    job = StoredJob(store_in_memory(), uids=("hourly", "daily"))
    stored = job.commit().operators
    job.savepoints.take("a")
    with pytest.raises(DefinitionError) as refused:
        job.restore(Restore("a", uids={"hourly": "daily"}), targets=RestoreTargets({"daily"}, {"trips"}))
    assert "give the job's operator a uid without stored state" in refused.value.fix
    targets = RestoreTargets({"per-day"}, {"trips"})
    begun = job.restore(Restore("a", uids={"hourly": "per-day"}, allow_non_restored_state=True), targets=targets)
    assert begun.operators == {"per-day": stored["hourly"]}


def test_a_savepoint_that_is_not_there_or_lost_a_file_restores_nothing(job: StoredJob) -> None:
    job.commit(2)
    with pytest.raises(UnknownSavepointError, match="has no savepoint 'a'"):
        job.restore(Restore("a"))
    record = job.savepoints.take("a").record
    job.folder.delete([record.operators["hourly"].files[0].path])
    with pytest.raises(CorruptStoreError, match="of the state of 'hourly' is missing"):
        job.restore(Restore("a"))
    assert job.log.load().epoch == record


def test_a_forked_job_reads_the_files_where_they_lie_and_they_stay_as_long_as_it_does(job: StoredJob) -> None:
    job.commit(3)
    job.savepoints.take("a")
    fork = StoredJob(job.root, "what-if", job.clock)
    begun = fork.restore(Restore("a", job="taxi"))
    stored = live_files(job.savepoints.get("a").record)
    assert live_files(begun) == {("taxi", path) for _, path in stored}
    assert [reference.job for reference in job.savepoints.file_references("a")] == ["what-if"]
    # The owner goes on, forgets the epoch and the savepoint; the fork still needs the files.
    job.savepoints.dispose("a")
    for _ in range(3):
        job.commit(1, dropped=3)
        job.sweep_thoroughly(retained=1)
    assert {path for _, path in stored} <= job.state_files()
    fork.commit(1, dropped=2)
    fork.sweep_thoroughly(retained=1)
    job.sweep_thoroughly(retained=1)
    assert {path for _, path in stored} <= job.state_files()
    # A savepoint of the fork's needs them, too.
    fork.savepoints.take("later")
    fork.commit(1, dropped=1)
    fork.sweep_thoroughly(retained=1)
    job.sweep_thoroughly(retained=1)
    assert {path for _, path in stored} <= job.state_files()
    fork.savepoints.dispose("later")
    fork.keep_house(retained=1)
    job.sweep_thoroughly(retained=1)
    assert {path for _, path in stored}.isdisjoint(job.state_files())
    assert (FileReferences(job.folder).list(), shared_savepoints_of(fork.folder)) == ((), ())


def test_a_fork_of_a_fork_holds_files_with_both(job: StoredJob) -> None:
    job.commit(2)
    job.savepoints.take("a")
    fork = StoredJob(job.root, "fork", job.clock)
    fork.restore(Restore("a", job="taxi"))
    fork.commit(1)
    fork.savepoints.take("b")
    second = StoredJob(job.root, "second", job.clock)
    begun = second.restore(Restore("b", job="fork"))
    assert {owner for owner, _ in live_files(begun)} == {"taxi", "fork"}
    # Back into the job that it began with: those files are its own again.
    again = job.restore(Restore("b", job="fork"))
    assert {owner for owner, _ in live_files(again)} == {"", "fork"}
    fork.savepoints.dispose("b")
    for other in (fork, job):
        other.commit(0, dropped=9)
        other.sweep_thoroughly(retained=1)
    for owner, path in live_files(begun):
        assert job.root.at(owner).exists(path)
    release_all(second.folder, "second")
    job.savepoints.dispose("a")
    for other in (fork, job):
        other.sweep_thoroughly(retained=1)
    assert (fork.state_files(), job.state_files()) == (set(), set())


def test_a_savepoint_disposed_of_while_it_is_forked_is_not_forked(job: StoredJob) -> None:
    job.commit()
    job.savepoints.take("a")
    fork = StoredJob(job.root, "fork", job.clock)
    savepoint, record = prepare_restore(job.root, fork.driver, Restore("a", job="taxi"))
    job.savepoints.dispose("a")
    with pytest.raises(CorruptStoreError, match="was disposed of while"):
        begin_lineage(fork.driver, Restore("a", job="taxi"), savepoint, record)
    assert fork.log.load().epoch is None
    # What it held until then goes, since nothing of it came to be.
    fork.commit()
    fork.keep_house()
    assert FileReferences(job.folder).list() == ()


@pytest.mark.parametrize("own", [True, False])
def test_a_claimed_savepoint_goes_when_the_job_no_longer_goes_back_to_it(job: StoredJob, *, own: bool) -> None:
    job.commit()
    job.savepoints.take("a")
    borrower = job if own else StoredJob(job.root, "fork", job.clock)
    borrower.restore(Restore("a", job="taxi", mode="claim"))
    borrower.keep_house(retained=2)
    borrower.commit()
    borrower.keep_house(retained=2)
    assert [savepoint.name for savepoint in job.savepoints.list()] == ["a"]
    borrower.commit()
    borrower.keep_house(retained=2)
    assert job.savepoints.list() == ()


def test_a_claim_that_crashed_before_the_restore_disposes_of_nothing(job: StoredJob) -> None:
    job.commit()
    job.savepoints.take("a")
    restore = Restore("a", mode="claim", identity="once")
    savepoint, record = prepare_restore(job.root, job.driver, restore)
    job.folder.delete([record.operators["hourly"].files[0].path])
    with pytest.raises(CorruptStoreError):
        begin_lineage(job.driver, restore, savepoint, record)
    job.keep_house()
    assert [item.name for item in job.savepoints.list()] == ["a"]
    assert shared_savepoints_of(job.folder) == ()


def test_holds_that_were_abandoned_go_in_the_end(job: StoredJob) -> None:
    job.commit()
    job.folder.put("state/hourly/x", b"x")
    now = job.clock.now_ms()
    FileReferences(job.folder).put(FileReference("fork-1", "never-begun", now, "a", ("state/hourly/x",)))
    FileReferences(job.folder).put(FileReference("import-1", "taxi", now, "a", ("state/hourly/x",), lasting=False))
    job.sweep_thoroughly()
    assert "state/hourly/x" in job.state_files()
    job.clock.advance(ABANDONED_MS)
    job.sweep_thoroughly()
    assert "state/hourly/x" not in job.state_files()
