"""Aborting an unfinished rewind: the job resumes from its newest epoch, provided no table has been reverted.

The rewinding process may be suspended and wake later. So each table first gets a commit that marks this rewind as aborted: a rewind that
reads the table after that finds the mark, and one that read it before cannot commit. Every step is idempotent, and until the last one the
rewind can be resumed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.crashpoints import crash_point
from tidemark.errors import RewindError, TidemarkError
from tidemark.savepoints.model.rewind_journal import RewindJournal, output_of, read_rewind, remove_rewind, write_tries
from tidemark.savepoints.model.upgrade_lock import require_no_upgrade
from tidemark.savepoints.rewind.place_rewinds import PLACE_REWINDS
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
    """Abort a job's unfinished rewind and return its journal. No table's contents and no state change.

    Args:
        root: the root store.
        job: the job's name.
        clock: the time.
        on_progress: called with each step, in words.
        upgrade: the identity of the upgrade that aborts it, if one does.
        require: raises if the rewind must no longer be aborted; called first, and again once no other process can resume it.

    Raises:
        RewindError: no rewind is under way, or a table was reverted already; the rewind can then be resumed.
        JobRunningError: the rewinding process is alive.
        UpgradeError: it is a step of an upgrade, which has its own way back; or the upgrade that aborts it has ended.
        PublishError: a table cannot be written to; the same command continues the abort.
        SinkError: a table cannot be read.
    """
    log = JobLog(root.at(job_folder(job)), job, clock)
    folder = log.store
    _require(folder, job)
    require()
    require_no_upgrade(folder, job, but=upgrade)
    driver = log.acquire(current_owner("rewind"), instead="let that finish: a rewind is not aborted while its process runs")
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
        for output, place in journal.places.items():
            driver.beat()
            reason = PLACE_REWINDS[place.sink].fence_aborted(job, output_of(output), place.location, journal)
            if reason is not None:
                raise _refused(journal, [reason], job)
            crash_point("rewind-table-kept")
        # A process that was suspended until now must not remove the journal of a later rewind.
        driver.confirm()
        # In this order: a rewind whose journal exists may be resumed, and needs what its pin keeps.
        remove_rewind(folder, journal.identity)
        crash_point("rewind-note-gone")
        if journal.pin:
            Pins(log).remove(journal.pin)
    finally:
        with suppress(TidemarkError):
            driver.release()
    epoch = f"after epoch {driver.last.epoch}" if driver.last is not None else "from its beginning"
    on_progress(f"the rewind to {journal.savepoint} is aborted: no table was reverted, and {job} resumes {epoch}")
    return journal


def _require(folder: JobStore, job: str) -> RewindJournal:
    journal = read_rewind(folder)
    if journal is None:
        raise RewindError("no rewind of the job is under way", fix="there is nothing to abort; see `tidemark status`", job=job)
    return journal


def _require_nothing_applied(journal: RewindJournal, head: EpochRecord | None, job: str) -> None:
    """Make sure that no effect of the rewind is visible yet; the error names every one that is."""
    if head is not None and head.restored is not None and head.restored.identity == journal.identity:
        raise _refused(journal, ["tables and state are reverted already, only its journal is left"], job)
    found = (applied_change(output, version, journal, head) for output, version in journal.tables.items())
    there = (
        PLACE_REWINDS[place.sink].applied_change(job, output_of(name), place.location, journal) for name, place in journal.places.items()
    )
    reasons = [reason for reason in (*found, *there) if reason is not None]
    if reasons:
        raise _refused(journal, reasons, job)


def _refused(journal: RewindJournal, reasons: list[str], job: str) -> RewindError:
    return RewindError(
        f"the rewind to savepoint {journal.savepoint!r} can no longer be aborted: {'; '.join(reasons)}",
        fix=f"finish it (`tidemark rewind {job} --to {journal.savepoint}`); "
        "to undo it, rewind to the savepoint that it took of the state before",
        job=job,
        epoch=journal.epoch,
    )
