"""Rewinding a job and its result tables to a savepoint. Starts no JVM, and needs none of the job's code.

The plan is written first (``rewind_journal``), and every step is idempotent: after an interruption the same command resumes the rewind.
To read all tables at one epoch, filter by the committed epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, RewindError, TidemarkError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.delta.folder_note import kept_position
from tidemark.savepoints.delta.table_position import position_of
from tidemark.savepoints.delta.table_versions import open_table
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.rewind_journal import (
    IDENTITY,
    RewindJournal,
    how_to_end,
    output_of,
    read_rewind,
    remove_rewind,
    write_rewind,
)
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.savepoints.model.upgrade_lock import require_no_upgrade
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore, require_whole
from tidemark.savepoints.rewind.place_plans import place_of
from tidemark.savepoints.rewind.place_rewinds import PLACE_REWINDS
from tidemark.savepoints.rewind.rewind_plan import FOREIGN_COMMITS, RewindPlan, plan_rewind
from tidemark.savepoints.rewind.rewind_tables import revert_table
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.records import EpochRecord, OutputRecord, ParentRef, RestoreRef
from tidemark.state.status.status import write_rewound
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

OnProgress = Callable[[str], None]
"""Called with each step, in words."""

Publish = Callable[[Driver, EpochRecord, Collection[str]], Mapping[str, str]]
"""Publishes the newest epoch for the driver that rewinds; called with the names of the tables that do not show it yet. Idempotent.
Returns outputs whose places have lost epochs, and how: to those nothing is published."""


def preview_rewind(root: JobStore, job: str, name: str, *, clock: Clock = SYSTEM_CLOCK) -> RewindPlan:
    """Return what a rewind would do and what blocks it; writes nothing, and the job may run.

    An epoch that a live driver has not published yet does not block it: the driver is about to publish it.

    Raises:
        UnknownSavepointError: there is no such savepoint.
        RewindError: the job has no epoch to rewind from.
        SinkError: a table cannot be read.
    """
    store = SavepointStore(root, job, clock)
    savepoint = store.get(name)
    log = store.pins.log
    driven = log.is_driven()
    return _plan(store, savepoint, _require_head(log.load().epoch, job), although_unpublished=driven)


def require_possible(root: JobStore, job: str, name: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """Refuse what ``rewind`` would refuse, as far as it can be checked while the job runs; called before the job is stopped for it.

    Raises:
        UpgradeError: an upgrade of the job is under way.
        UnknownSavepointError: there is no such savepoint.
        RewindError: it is refused, for the reasons that the error lists. Or another rewind is unfinished.
        SinkError: a table cannot be read.
    """
    folder = root.at(job_folder(job))
    require_no_upgrade(folder, job)
    journal = read_rewind(folder)
    if journal is None:
        _require_no_refusal(preview_rewind(root, job, name, clock=clock), job)
    else:
        _require_same(folder, journal, name, job)


def rewind(
    root: JobStore,
    job: str,
    name: str,
    *,
    by: str = "",
    why: str = "",
    clock: Clock = SYSTEM_CLOCK,
    on_progress: OnProgress | None = None,
    upgrade: str = "",
    kept: str = "",
    although_unpublished: bool = False,
    publish: Publish | None = None,
    require: Callable[[], None] = lambda: None,
) -> EpochRecord:
    """Rewind a job to a savepoint, with its Delta tables, or resume an unfinished rewind. Returns the job's newest epoch.

    Args:
        root: the root store.
        job: the job's name; it must not run.
        name: the savepoint.
        by: the user who rewinds.
        why: the reason, in words.
        clock: the time.
        on_progress: called with each step, in words.
        upgrade: the identity of the upgrade that it is a step of, if any.
        kept: a savepoint that was taken just before; no other is taken if it is of the newest epoch.
        although_unpublished: whether rows of the newest epoch that a table does not show yet may be dropped.
        publish: publishes these rows first if they may not be dropped; without it the rewind is refused.
        require: raises if the rewind is no longer wanted; called first, again once no other process can begin one, and again after the
            journal is visible and before anything changes, so that of this process and one that decides otherwise one sees the other.

    Raises:
        DefinitionError: ``by`` or ``why`` holds a secret.
        JobRunningError: a driver of the job is alive.
        UpgradeError: an upgrade of the job is under way, and this is none of its steps; or the one that it is a step of has ended.
        UnknownSavepointError: there is no such savepoint.
        RewindError: it is refused, for the reasons that the error lists; nothing was changed. Or another rewind is unfinished.
        PublishError: a table could not be reverted; the same command resumes the rewind.
    """
    if not upgrade:
        require_no_secret(job, by=by, why=why)
    log = JobLog(root.at(job_folder(job)), job, clock)
    # Before anything is written: rewinding an unknown name must not create a job.
    _require_head(log.load().epoch, job)
    require()
    require_no_upgrade(log.store, job, but=upgrade)
    driver = log.acquire(
        current_owner("rewind"), instead=f"have a submitted job stopped for it: `tidemark rewind {job} --to {name} --stop`"
    )
    report = on_progress or (lambda _: None)
    try:
        # Checked again: since the first check the job may have committed epochs and been stopped by its owner.
        require()
        require_no_upgrade(log.store, job, but=upgrade)
        journal = read_rewind(log.store)
        if journal is None:
            store = SavepointStore(root, job, clock)
            plan = _possible(store, driver, name, report=report, although_unpublished=although_unpublished, publish=publish)
            journal = _begin(store, driver, plan, by=by, why=why, kept=kept, report=report)
            _require_wanted(driver, journal, require, upgrade)
        else:
            _require_same(log.store, journal, name, job)
            report(f"resuming the rewind to {name}")
        _revert_outputs(driver, journal, report)
        crash_point("rewind-tables-back")
        head = _restored(root, driver, journal)
        crash_point("rewind-restored")
        # A process that was suspended until now must not touch a later rewind.
        driver.confirm()
        write_rewound(root, head)
        if journal.pin:
            Pins(log).remove(journal.pin)
        remove_rewind(log.store, journal.identity)
        report(f"{job} resumes after epoch {head.epoch}, as lineage {head.lineage}")
        return head
    finally:
        with suppress(TidemarkError):
            driver.release()


def _revert_outputs(driver: Driver, journal: RewindJournal, report: OnProgress) -> None:
    job = driver.log.job
    for output, version in journal.tables.items():
        driver.beat()
        if revert_table(job, output, version, journal):
            report(f"table of {output} is back at version {version.version}")
        crash_point("rewind-table-back")
    for output, place in journal.places.items():
        driver.beat()
        if PLACE_REWINDS[place.sink].revert(job, output_of(output), place.location, journal):
            report(f"{output} no longer has rows of epochs after {journal.epoch}")
        crash_point("rewind-table-back")


def _possible(
    store: SavepointStore, driver: Driver, name: str, *, report: OnProgress, although_unpublished: bool, publish: Publish | None
) -> RewindPlan:
    """Return the plan of a rewind that is possible; a committed epoch that tables do not show yet is published first."""
    head = _require_head(driver.last, store.job)
    plan = _plan(store, store.get(name), head, although_unpublished=although_unpublished)
    _require_no_refusal(plan, store.job)
    if publish is not None and not although_unpublished:
        if plan.unpublished:
            report(f"epoch {head.epoch}, which is committed, is published first: {', '.join(plan.unpublished)}")
        try:
            lost = publish(driver, head, plan.unpublished)
        except TidemarkError as error:
            raise RewindError(
                f"epoch {head.epoch} is committed and cannot be published, without which a rewind could not be undone: {error.what}",
                fix=f"repair that, and give the command again; nothing was changed ({error.code})",
                job=store.job,
                epoch=head.epoch,
            ) from error
        for output, what in lost.items():
            report(f"epoch {head.epoch} of output {output} is not published first: {what}")
        plan = _plan(store, store.get(name), head, although_unpublished=False)
        # An epoch that a place has lost can no longer be published, and does not block a rewind to what the place holds.
        plan = replace(plan, unpublished=tuple(output for output in plan.unpublished if output not in lost))
    refused = tuple(
        f"the table of output {output!r} does not show epoch {head.epoch} yet, which is committed" for output in plan.unpublished
    )
    _require_no_refusal(replace(plan, refusals=(*plan.refusals, *refused)), store.job)
    return plan


def _begin(store: SavepointStore, driver: Driver, plan: RewindPlan, *, by: str, why: str, kept: str, report: OnProgress) -> RewindJournal:
    """Take a savepoint of the newest epoch, and write the journal."""
    name = plan.savepoint
    savepoint, head = store.get(name), _require_head(driver.last, store.job)
    for output, meaning in plan.left.items():
        report(f"output {output} is not reverted: {meaning}")
    if not _is_of(store, kept, head):
        before = store.take(kind="before-rewind", by=by, note=why or f"before the rewind to {name}")
        report(f"savepoint {before.name} keeps the state before the rewind")
    lineage = secrets.token_hex(8)
    pin = f"{IDENTITY}{lineage}"
    # The savepoint may be disposed of until the journal is written: the rewind pins what it needs itself.
    info = replace(savepoint.info, kind="before-rewind", by=by, note=f"kept until the rewind to {name} is done")
    store.pins.copy(name, pin, pinned_at=savepoint.taken_at, record=savepoint.record, about=to_jsonable(info))
    journal = RewindJournal(
        f"{IDENTITY}{lineage}",
        name,
        lineage,
        plan.epoch,
        plan.tables,
        store.clock.now_ms(),
        by,
        why,
        pin=pin,
        ended=ParentRef(head.lineage, head.epoch),
        places=plan.places,
    )
    # A process that was suspended since its term began must not leave a journal that no process removes.
    driver.confirm()
    if not write_rewind(store.folder, journal):
        store.pins.remove(pin)
        raise RewindError(
            "another rewind was started just now", fix="let it finish, then give the command again", job=store.job, epoch=plan.epoch
        )
    crash_point("rewind-noted")
    return journal


def _is_of(store: SavepointStore, name: str, head: EpochRecord) -> bool:
    """Return whether there is a savepoint of this name and it is of the newest epoch."""
    if name not in store.pins.names():
        return False
    record = store.get(name).record
    return (record.lineage, record.epoch) == (head.lineage, head.epoch)


def _require_wanted(driver: Driver, journal: RewindJournal, require: Callable[[], None], upgrade: str) -> None:
    """Make sure that a rewind that was just begun is still wanted; otherwise remove its journal and pin."""
    try:
        require()
        require_no_upgrade(driver.log.store, driver.log.job, but=upgrade)
    except TidemarkError:
        driver.confirm()
        # In this order: a rewind whose journal exists may be resumed, and needs what its pin keeps.
        remove_rewind(driver.log.store, journal.identity)
        Pins(driver.log).remove(journal.pin)
        raise


def _plan(store: SavepointStore, savepoint: Savepoint, head: EpochRecord, *, although_unpublished: bool) -> RewindPlan:
    later, now = store.lineages_after(savepoint.record), store.clock.now_ms()
    between = store.records_after(savepoint.record)
    plan = plan_rewind(savepoint, head, later, now_ms=now, between=between, although_unpublished=although_unpublished)
    try:
        require_whole(store.folder, savepoint.record)
    except CorruptStoreError as error:
        return replace(plan, refusals=(*plan.refusals, f"savepoint {savepoint.name!r}: {error.what}"))
    return plan


def _require_no_refusal(plan: RewindPlan, job: str) -> None:
    if plan.refusals:
        name = plan.savepoint
        others = any(FOREIGN_COMMITS in reason for reason in plan.refusals)
        undo = " (other writers' versions: undo them by a RESTORE to the version before, and write them again afterwards)" if others else ""
        raise RewindError(
            f"the job cannot be rewound to savepoint {name!r} with its tables: {'; '.join(plan.refusals)}",
            fix=f"repair what is listed{undo}, choose another savepoint, or restore the state alone, which leaves tables as they are: "
            f"`tidemark run MODULE:JOB --restore {name}`",
            job=job,
            epoch=plan.epoch,
        )


def _require_same(folder: JobStore, journal: RewindJournal, name: str, job: str) -> None:
    if journal.savepoint != name:
        raise RewindError(
            f"a rewind of the job to savepoint {journal.savepoint!r} is unfinished",
            fix=how_to_end(folder, job, journal),
            job=job,
        )


def _restored(root: JobStore, driver: Driver, journal: RewindJournal) -> EpochRecord:
    last = driver.last
    if last is not None and last.restored is not None and last.restored.identity == journal.identity:
        return last
    restore = Restore(journal.pin or journal.savepoint, identity=journal.identity)
    savepoint, record = prepare_restore(root, driver, restore, lineage=journal.lineage)
    outputs = {name: _at_position(name, output, journal, savepoint.record) for name, output in record.outputs.items()}
    named = replace(record, restored=RestoreRef(journal.identity, savepoint.job, journal.savepoint), outputs=outputs)
    return begin_lineage(driver, restore, savepoint, named)


def _at_position(name: str, output: OutputRecord, journal: RewindJournal, stored: EpochRecord) -> OutputRecord:
    """Return an output with its table's position after the revert, so that the job's next start finds it there."""
    place = place_of(name, output, journal.places)
    if place is not None:
        return replace(output, before=PLACE_REWINDS[place.sink].position(name, place.location, stored))
    version = journal.tables.get(name)
    table = open_table(name, version.location) if version is not None else None
    if version is None or table is None or version.location != output.location:
        return kept_position(stored, name, output) if name in stored.outputs else output
    done = table.transaction_version(f"{stored.lineage}/{name}")
    epoch = -1 if done is None else min(done, stored.epoch)
    return replace(output, before=position_of(table, JobStore.open(version.location), lineage=stored.lineage, epoch=epoch))


def _require_head(head: EpochRecord | None, job: str) -> EpochRecord:
    if head is None:
        raise RewindError("the job has no epoch to rewind from", fix="run it with --restore instead", job=job)
    return head
