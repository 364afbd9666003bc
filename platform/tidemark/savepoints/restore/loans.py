"""Loans: what a job that was restored from a savepoint still needs of it, and what it does with it in the end.

A note lies with the borrower, a hold on the files with each job that they lie with. The note comes first, so that what a crash leaves
is found again; both go once none of the borrower's epochs names a file of the owner's. A savepoint that was claimed goes then, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, SavepointInUseError, UnknownSavepointError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore_marks import read_mark
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.encoding.codec import from_plain, later, to_plain
from tidemark.state.encoding.envelope import seal, unseal
from tidemark.state.gc.holds import Hold, Holds
from tidemark.state.gc.sweep import KeptEpochs
from tidemark.state.log.joblog import Driver
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import LOANS, hold_path, job_folder, loan_path
from tidemark.state.store.store import JobStore

KIND: Final = "loan"

_MEND: Final = (
    "restore the file from a backup of the job store; or, if this job's epochs read no file of another job's any more, delete it, and "
    "{hold} in the folder of the job that it was restored from; until then no file of this job is swept"
)


@dataclass(frozen=True)
class Loan:
    """A savepoint that a job was restored from.

    Args:
        token: of the lineage that began with it; the holds have it in their names.
        identity: of the restore.
        job: whose savepoint it is.
        savepoint: its name.
        claim: whether the borrower disposes of it.
        epoch: that was restored.
        owners: other jobs that files lie with.
        at: when, milliseconds.
        lineage: of the savepoint's epoch.
        pinned_at: when the savepoint was taken, milliseconds; None in notes of older releases. With the epoch it tells the savepoint
            from another one of its name.
        disposed: whether a claimed savepoint was disposed of: that is done once.
    """

    token: str
    identity: str
    job: str
    savepoint: str
    claim: bool
    epoch: int
    owners: tuple[str, ...]
    at: int
    lineage: str = later("")
    pinned_at: int | None = later(None)
    disposed: bool = later(False)


def borrow(driver: Driver, savepoint: Savepoint, record: EpochRecord, *, claim: bool) -> None:
    """Keep what a lineage's first record needs of other jobs; called under the driver's term, before the record is appended.

    Args:
        driver: of the job that is restored.
        savepoint: from which.
        record: the first of the lineage.
        claim: whether the savepoint becomes the job's.
    """
    files = _files_by_owner(record)
    if not files and not claim:
        return
    folder, now = driver.log.store, driver.log.clock.now_ms()
    identity = record.restored.identity if record.restored is not None else ""
    loan = Loan(
        record.lineage,
        identity,
        savepoint.job,
        savepoint.name,
        claim,
        record.epoch,
        tuple(sorted(files)),
        now,
        savepoint.record.lineage,
        savepoint.taken_at,
    )
    _note(folder, loan)
    for owner, paths in files.items():
        hold = Hold(_hold_name(driver.log.job, loan.token), driver.log.job, now, savepoint.name, tuple(sorted(paths)))
        _hold(Holds(folder.beside(job_folder(owner))), hold)
    crash_point("files-held")


def loans_of(folder: JobStore) -> tuple[Loan, ...]:
    """Return the loans of a job. ``folder`` is the store at its folder.

    Raises:
        CorruptStoreError: a note is damaged.
    """
    found = []
    for file in folder.list(LOANS):
        with suppress(FileNotFoundError):  # who has the job now has settled it meanwhile
            found.append(_read(folder, file.path))
    return tuple(found)


def settle(driver: Driver, kept: KeptEpochs) -> None:
    """Let go of what no epoch needs any more; called by the driver between epochs, beside the sweep.

    Args:
        driver: of the job.
        kept: its epochs, read since the driver's last one.

    Raises:
        FencedError: a newer driver has begun, which may be just borrowing; nothing was let go.
        CorruptStoreError: a note or a hold is damaged.
    """
    folder = driver.log.store
    loans = loans_of(folder)
    if not loans:
        return
    needed: dict[str, set[str]] = defaultdict(set)
    for decoded in kept.all:
        for owner, paths in _files_by_owner(decoded.record).items():
            needed[owner] |= paths
    retained = {(decoded.record.lineage, decoded.record.epoch) for decoded in kept.retained}
    driver.confirm()
    for loan in loans:
        settled = [_let_go(folder, driver.log.job, loan, owner, needed) for owner in loan.owners]
        # Claimed: it is what the job goes back to as long as the epoch that was restored is not superseded.
        claimed = loan.claim and not loan.disposed and (loan.token, loan.epoch) in retained
        if loan.claim and not loan.disposed and not claimed and _was_made(folder, loan):
            claimed = not _disposed_of(driver, loan)
            if not claimed and not all(settled):
                folder.put(loan_path(loan.token), seal(KIND, to_plain(replace(loan, disposed=True))))
        if all(settled) and not claimed:
            folder.delete([loan_path(loan.token)])


def give_up(folder: JobStore, job: str) -> None:
    """Let go of all that a job has borrowed, since the job itself goes. ``folder`` is the store at its folder."""
    for loan in loans_of(folder):
        for owner in loan.owners:
            Holds(folder.beside(job_folder(owner))).remove(_hold_name(job, loan.token))
        folder.delete([loan_path(loan.token)])


def _note(folder: JobStore, loan: Loan) -> None:
    """Write the note, unless it is there: a rewind that was killed borrows once more what it has borrowed."""
    path = loan_path(loan.token)
    try:
        folder.create(path, seal(KIND, to_plain(loan)))
    except FileExistsError:
        if replace(_read(folder, path), at=loan.at) != loan:
            raise


def _read(folder: JobStore, path: str) -> Loan:
    """Return the loan of a note.

    Raises:
        FileNotFoundError: there is none.
        CorruptStoreError: it is damaged.
    """
    data, shown = folder.get(path), str(folder.location.joined(path))
    try:
        _, plain = unseal(data, kind=KIND, path=shown)
        return from_plain(Loan, plain, path=shown)
    except CorruptStoreError as error:
        token, job = path.removeprefix(f"{LOANS}/").removesuffix(".json"), folder.prefix.rpartition("/")[2]
        fix = _MEND.format(hold=hold_path(_hold_name(job, token)))
        raise CorruptStoreError(error.what, fix=fix, job=job, place=shown) from error


def _hold(holds: Holds, hold: Hold) -> None:
    try:
        holds.put(hold)
    except FileExistsError:
        there = holds.get(hold.name)
        if there is None or replace(there, held_at=hold.held_at) != hold:
            raise


def _disposed_of(driver: Driver, loan: Loan) -> bool:
    """Dispose of a claimed savepoint; returns whether it is gone. One that its own job needs just now is left to a later sweep."""
    savepoints = SavepointStore(driver.log.store.above, loan.job, driver.log.clock)
    try:
        there = savepoints.get(loan.savepoint)
        of_loan = (loan.pinned_at, loan.lineage, loan.epoch)
        if loan.pinned_at is None or (there.taken_at, there.record.lineage, there.record.epoch) == of_loan:
            savepoints.dispose(loan.savepoint)
    except UnknownSavepointError:
        return True
    except SavepointInUseError:
        return False
    return True


def _was_made(folder: JobStore, loan: Loan) -> bool:
    """Say whether the restore was made that a loan was for; what crashed before that claims nothing."""
    mark = read_mark(folder, loan.identity)
    return mark is not None and mark.lineage == loan.token


def _let_go(folder: JobStore, job: str, loan: Loan, owner: str, needed: Mapping[str, set[str]]) -> bool:
    """Remove the hold on an owner's files if none of them is needed; returns whether there is none any more."""
    holds = Holds(folder.beside(job_folder(owner)))
    hold = holds.get(_hold_name(job, loan.token))
    if hold is not None and not needed.get(owner, set()).isdisjoint(hold.files):
        return False
    holds.remove(_hold_name(job, loan.token))
    return True


def _hold_name(job: str, token: str) -> str:
    # A job's name may have a hundred letters, as many as a hold's: the token alone tells holds apart.
    return f"fork-{token}-{job}"[:100].rstrip(".-")


def _files_by_owner(record: EpochRecord) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for state in record.operators.values():
        for file in state.files:
            if file.owner:
                found[file.owner].add(file.path)
    return dict(found)
