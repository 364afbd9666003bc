from __future__ import annotations

import pytest

from tests.savepoints.stored_jobs import StoredJob, live_files, store_in_memory
from tidemark.errors import CorruptStoreError
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind, remove_rewind, write_rewind
from tidemark.savepoints.restore import restoring
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore
from tidemark.savepoints.restore.shared_files import shared_savepoints_of
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.state.store.layout import FILE_REFERENCES, shared_savepoint_path


@pytest.fixture
def owner() -> StoredJob:
    made = StoredJob(store_in_memory())
    made.commit()
    made.savepoints.take("s")
    return made


def borrower(owner: StoredJob, *, claim: bool = False) -> StoredJob:
    made = StoredJob(owner.root, "next", owner.clock)
    made.restore(Restore("s", job="taxi", mode="claim" if claim else "no-claim"))
    return made


class Killed(BaseException):
    """Stands for the end of the process."""


def test_a_rewind_that_was_killed_when_it_had_borrowed_goes_on(owner: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = borrower(owner)
    fork.savepoints.take("mine")
    fork.commit()
    fork.driver.release()

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_require_still_there", killed)
        with pytest.raises(Killed):
            rewind(owner.root, "next", "mine", clock=owner.clock)
    assert len(shared_savepoints_of(fork.folder)) == 2
    owner.clock.advance(60_000)
    head = rewind(owner.root, "next", "mine", clock=owner.clock)
    assert (head.epoch, read_rewind(fork.folder)) == (0, None)
    assert {owner_of for owner_of, _ in live_files(head)} == {"taxi"}


def test_a_damaged_note_is_named_with_the_hold_that_goes_with_it(owner: StoredJob) -> None:
    fork = borrower(owner)
    (loan,) = shared_savepoints_of(fork.folder)
    (hold,) = owner.folder.list(FILE_REFERENCES)
    fork.folder.put(shared_savepoint_path(loan.token), b"nonsense")
    with pytest.raises(CorruptStoreError) as caught:
        fork.keep_house()
    place = str(fork.folder.location.joined(shared_savepoint_path(loan.token)))
    assert (caught.value.what, caught.value.place, caught.value.job) == (f"{place} is not whole JSON", place, "next")
    assert f"delete it, and {hold.path} in the folder of the job" in caught.value.fix
    # As it says: the file and its hold deleted, once nothing of the other job's is read any more.
    fork.commit(dropped=1)
    fork.folder.delete([shared_savepoint_path(loan.token)])
    owner.folder.delete([hold.path])
    fork.keep_house(retained=1)


def test_a_claimed_savepoint_is_disposed_of_once_and_no_other_of_its_name(owner: StoredJob) -> None:
    fork = borrower(owner, claim=True)
    for _ in range(4):
        fork.commit()
    fork.keep_house(retained=2)
    assert owner.savepoints.list() == ()
    assert [shared.disposed for shared in shared_savepoints_of(fork.folder)] == [True], "it still reads the files"
    owner.clock.advance(1)
    owner.commit()
    owner.savepoints.take("s")
    fork.keep_house(retained=2)
    assert [item.record.epoch for item in owner.savepoints.list()] == [1]
    for _ in range(2):
        fork.commit(dropped=9)
    fork.keep_house(retained=1)
    assert (shared_savepoints_of(fork.folder), len(owner.savepoints.list())) == ((), 1)


def test_another_savepoint_of_the_name_is_not_the_claimed_one(owner: StoredJob) -> None:
    fork = borrower(owner, claim=True)
    owner.clock.advance(1)
    owner.savepoints.dispose("s")
    owner.savepoints.take("s")
    for _ in range(4):
        fork.commit(dropped=9)
    fork.keep_house(retained=1)
    assert (len(owner.savepoints.list()), shared_savepoints_of(fork.folder)) == (1, ())


def test_a_claimed_savepoint_that_its_job_is_being_put_back_to_waits(owner: StoredJob) -> None:
    fork = borrower(owner, claim=True)
    for _ in range(4):
        fork.commit(dropped=9)
    write_rewind(owner.folder, RewindJournal("rewind-x", "s", "x", 0, {}, 0))
    fork.keep_house(retained=1)
    assert [item.name for item in owner.savepoints.list()] == ["s"]
    remove_rewind(owner.folder, "rewind-x")
    fork.keep_house(retained=1)
    assert (owner.savepoints.list(), shared_savepoints_of(fork.folder)) == ((), ())


def test_a_restore_does_not_take_another_savepoint_of_the_name_for_its_own(owner: StoredJob) -> None:
    fork = StoredJob(owner.root, "next", owner.clock)
    restore = Restore("s", job="taxi")
    savepoint, record = prepare_restore(owner.root, fork.driver, restore)
    owner.clock.advance(1)
    owner.commit()
    owner.savepoints.dispose("s")
    owner.savepoints.take("s")
    with pytest.raises(CorruptStoreError, match="was disposed of while"):
        begin_lineage(fork.driver, restore, savepoint, record)
