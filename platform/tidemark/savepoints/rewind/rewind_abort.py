"""Giving up a rewind that was begun: the job goes on from where it was, as long as no table was put back.

Who rewinds may be asleep, and wake later. So each table gets a commit first that says that this rewind is given up: a rewind that looks
before finds it, and one that looked already cannot commit. Every step may be done twice, and until the last one the rewind may be gone on
with instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.crashpoints import crash_point
from tidemark.errors import RewindError, TidemarkError
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind, remove_rewind, write_tries
from tidemark.savepoints.model.upgrade_lock import require_no_upgrade
from tidemark.savepoints.rewind.rewind_tables import applied_change, fence_aborted_rewind
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


def abort_rewind(
    root: JobStore,
    job: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    on_progress: Callable[[str], None] = lambda _: None,
    upgrade: str = "",
    require: Callable[[], None] = lambda: None,
) -> RewindJournal:
    """Give up the rewind of a job that was begun and is not done; returns what it was to do. No table and no state is changed.

    Args:
        root: the root store.
        job: the job's name.
        clock: the time.
        on_progress: is told of each step.
        upgrade: the upgrade that gives it up, by its identity.
        require: raises where it is not to be given up any more; called first, and once more when nobody else can go on with it.

    Raises:
        RewindError: none was begun, or a table was put back already; the rewind can be gone on with then.
        JobRunningError: who rewinds is alive.
        UpgradeError: it is a step of an upgrade, which has a way back of its own; or the upgrade that gives it up is over.
        PublishError: a table cannot be written to; the same command goes on with it.
        SinkError: a table cannot be read.
    """
    log = JobLog(root.at(job_folder(job)), job, clock)
    folder = log.store
    _require(folder, job)
    require()
    require_no_upgrade(folder, job, but=upgrade)
    driver = log.acquire(current_owner("rewind"), instead="let that go on: what is half done is not given up while somebody does it")
    try:
        require()
        require_no_upgrade(folder, job, but=upgrade)
        journal = _require(folder, job)
        _require_nothing_applied(journal, driver.last, job)
        journal = replace(journal, tries=journal.tries + 1)
        write_tries(folder, journal)
        crash_point("rewind-given-up")
        for output, version in journal.tables.items():
            driver.beat()
            reason = fence_aborted_rewind(output, version, journal, driver.last)
            if reason is not None:
                raise _refused(journal, [reason], job)
            crash_point("rewind-table-kept")
        # Not the note of somebody who came after: who slept until now does nothing more.
        driver.confirm()
        # In this order: a rewind whose note is there may be gone on with, and needs what its pin keeps.
        remove_rewind(folder, journal.identity)
        crash_point("rewind-note-gone")
        if journal.pin:
            Pins(log).remove(journal.pin)
    finally:
        with suppress(TidemarkError):
            driver.release()
    epoch = f"after epoch {driver.last.epoch}" if driver.last is not None else "from its beginning"
    on_progress(f"the rewind to {journal.savepoint} is given up: no table was put back, and {job} goes on {epoch}")
    return journal


def _require(folder: JobStore, job: str) -> RewindJournal:
    journal = read_rewind(folder)
    if journal is None:
        raise RewindError("no rewind of the job is under way", fix="nothing is to be given up; see `tidemark status`", job=job)
    return journal


def _require_nothing_applied(journal: RewindJournal, head: EpochRecord | None, job: str) -> None:
    """Make sure that nothing of the rewind can be seen yet, and name all that can."""
    if head is not None and head.restored is not None and head.restored.identity == journal.identity:
        raise _refused(journal, ["tables and state are put back already, only its note is left"], job)
    found = (applied_change(output, version, journal, head) for output, version in journal.tables.items())
    reasons = [reason for reason in found if reason is not None]
    if reasons:
        raise _refused(journal, reasons, job)


def _refused(journal: RewindJournal, reasons: list[str], job: str) -> RewindError:
    return RewindError(
        f"the rewind to savepoint {journal.savepoint!r} cannot be given up any more: {'; '.join(reasons)}",
        fix=f"let it go on to its end (`tidemark rewind {job} --to {journal.savepoint}`); "
        "the savepoint that it took of what there was before is the way back",
        job=job,
        epoch=journal.epoch,
    )
