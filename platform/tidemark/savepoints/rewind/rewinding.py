"""Rewinding: a job and its result tables back to a savepoint. Starts no JVM, and needs no code of the job's.

What is to be done is written down first (``rewind_journal``), and every step may be done twice: whoever is interrupted is followed by
somebody who gives the same command. Readers who want all tables of one epoch filter by the epoch that is committed.
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
from tidemark.savepoints.model.rewind_journal import IDENTITY, RewindJournal, how_to_end, read_rewind, remove_rewind, write_rewind
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.savepoints.model.upgrade_lock import require_no_upgrade
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore, require_whole
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
"""Is told of each step, in words."""

Publish = Callable[[Driver, EpochRecord, Collection[str]], Mapping[str, str]]
"""Publishes the newest epoch, for the driver that rewinds; with the names of the tables that do not show it yet. Again it does nothing.
Returns outputs whose places have lost epochs, and how: to those nothing is published."""


def preview_rewind(root: JobStore, job: str, name: str, *, clock: Clock = SYSTEM_CLOCK) -> RewindPlan:
    """Return what a rewind would do and why it may not; nothing is written, and the job may run.

    What a driver that is alive has not published yet does not stand against it: the driver is just about to.

    Raises:
        UnknownSavepointError: there is no such savepoint.
        RewindError: the job has no epoch to go back from.
        SinkError: a table cannot be read.
    """
    store = SavepointStore(root, job, clock)
    savepoint = store.get(name)
    log = store.pins.log
    driven = log.is_driven()
    return _plan(store, savepoint, _require_head(log.load().epoch, job), although_unpublished=driven)


def require_possible(root: JobStore, job: str, name: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """Refuse what ``rewind`` would refuse, as far as it can be told while the job runs; called before the job is stopped for it.

    Raises:
        UpgradeError: an upgrade of the job is under way.
        UnknownSavepointError: there is no such savepoint.
        RewindError: it may not be done, for the reasons that it lists. Or another rewind is half done.
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
    """Put a job back to a savepoint, with its Delta tables; or go on with a rewind that was begun. Returns the job's newest epoch.

    Args:
        root: the root store.
        job: the job's name; it must not run.
        name: the savepoint.
        by: who does it.
        why: what for.
        clock: the time.
        on_progress: is told of each step.
        upgrade: the upgrade that it is a step of, by its identity.
        kept: a savepoint that was taken just before; while it is of the newest epoch, no other is taken.
        although_unpublished: whether rows of the newest epoch that a table does not show yet may be dropped for good.
        publish: publishes these first, where they may not be dropped; without it they refuse the rewind.
        require: raises where it is not wanted any more; called first, once more when nobody else can begin, and again when all can see
            that it was begun and nothing is changed yet: of this one and who decides otherwise one sees the other.

    Raises:
        DefinitionError: who does it or what for holds a secret.
        JobRunningError: a driver of the job is alive.
        UpgradeError: an upgrade of the job is under way, and this is none of its steps; or the one that it is a step of is over.
        UnknownSavepointError: there is no such savepoint.
        RewindError: it may not be done, for the reasons that it lists; nothing was changed. Or another rewind is half done.
        PublishError: a table could not be put back; the same command goes on with it.
    """
    if not upgrade:
        require_no_secret(job, by=by, why=why)
    log = JobLog(root.at(job_folder(job)), job, clock)
    # Before anything is written: a name that is no job's must not become one.
    _require_head(log.load().epoch, job)
    require()
    require_no_upgrade(log.store, job, but=upgrade)
    driver = log.acquire(
        current_owner("rewind"), instead=f"let a submitted job be stopped for it: `tidemark rewind {job} --to {name} --stop`"
    )
    report = on_progress or (lambda _: None)
    try:
        # Once more: since the first look the job may have gone on, and have been stopped by its owner.
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
            report(f"going on with the rewind to {name} that was begun")
        for output, version in journal.tables.items():
            driver.beat()
            if revert_table(job, output, version, journal):
                report(f"table of {output} is back at version {version.version}")
            crash_point("rewind-table-back")
        crash_point("rewind-tables-back")
        head = _restored(root, driver, journal)
        crash_point("rewind-restored")
        # Who slept until now must not touch what somebody does who came after.
        driver.confirm()
        write_rewound(root, head)
        if journal.pin:
            Pins(log).remove(journal.pin)
        remove_rewind(log.store, journal.identity)
        report(f"{job} goes on after epoch {head.epoch}, as lineage {head.lineage}")
        return head
    finally:
        with suppress(TidemarkError):
            driver.release()


def _possible(
    store: SavepointStore, driver: Driver, name: str, *, report: OnProgress, although_unpublished: bool, publish: Publish | None
) -> RewindPlan:
    """Return what is to be done, once it may be: what is committed and not shown yet is published before."""
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
                f"epoch {head.epoch} is committed and cannot be published, without which there is no way back to it: {error.what}",
                fix=f"mend that, and give the command again; nothing was changed ({error.code})",
                job=store.job,
                epoch=head.epoch,
            ) from error
        for output, what in lost.items():
            report(f"epoch {head.epoch} of output {output} is not published first: {what}")
        plan = _plan(store, store.get(name), head, although_unpublished=False)
        # What a place has lost is no epoch that can still be published, and no reason against going back to where the place is.
        plan = replace(plan, unpublished=tuple(output for output in plan.unpublished if output not in lost))
    refused = tuple(
        f"the table of output {output!r} does not show epoch {head.epoch} yet, which is committed" for output in plan.unpublished
    )
    _require_no_refusal(replace(plan, refusals=(*plan.refusals, *refused)), store.job)
    return plan


def _begin(store: SavepointStore, driver: Driver, plan: RewindPlan, *, by: str, why: str, kept: str, report: OnProgress) -> RewindJournal:
    """Keep what there is now, and write down what is to be done."""
    name = plan.savepoint
    savepoint, head = store.get(name), _require_head(driver.last, store.job)
    for output, meaning in plan.left.items():
        report(f"output {output} is not put back: {meaning}")
    if not _is_of(store, kept, head):
        before = store.take(kind="before-rewind", by=by, note=why or f"before the rewind to {name}")
        report(f"savepoint {before.name} keeps what there is now")
    lineage = secrets.token_hex(8)
    pin = f"{IDENTITY}{lineage}"
    # The savepoint may be disposed of until the note is there: the rewind keeps what it needs itself.
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
    )
    # Who slept since it began its term must not leave a note behind that nobody looks after.
    driver.confirm()
    if not write_rewind(store.folder, journal):
        store.pins.remove(pin)
        raise RewindError(
            "another rewind was begun just now", fix="see what it does; then give the command again", job=store.job, epoch=plan.epoch
        )
    crash_point("rewind-noted")
    return journal


def _is_of(store: SavepointStore, name: str, head: EpochRecord) -> bool:
    """Say whether there is a savepoint of this name, and it is of the newest epoch."""
    if name not in store.pins.names():
        return False
    record = store.get(name).record
    return (record.lineage, record.epoch) == (head.lineage, head.epoch)


def _require_wanted(driver: Driver, journal: RewindJournal, require: Callable[[], None], upgrade: str) -> None:
    """Make sure that a rewind that was just begun is wanted still; otherwise it is as if it had not been."""
    try:
        require()
        require_no_upgrade(driver.log.store, driver.log.job, but=upgrade)
    except TidemarkError:
        driver.confirm()
        # In this order: a rewind whose note is there may be gone on with, and needs what its pin keeps.
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
        undo = " (others' versions: undo them by a RESTORE to the version before them, and make them again afterwards)" if others else ""
        raise RewindError(
            f"the job cannot be put back to savepoint {name!r} with its tables: {'; '.join(plan.refusals)}",
            fix=f"mend what is listed{undo}, choose another savepoint, or put back the state alone, which leaves tables as they are: "
            f"`tidemark run MODULE:JOB --restore {name}`",
            job=job,
            epoch=plan.epoch,
        )


def _require_same(folder: JobStore, journal: RewindJournal, name: str, job: str) -> None:
    if journal.savepoint != name:
        raise RewindError(
            f"a rewind of the job to savepoint {journal.savepoint!r} was begun and is not done",
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
    """Return an output with where its table stands now that it is back, so that the job's next start finds it there."""
    version = journal.tables.get(name)
    table = open_table(name, version.location) if version is not None else None
    if version is None or table is None or version.location != output.location:
        return kept_position(stored, name, output) if name in stored.outputs else output
    done = table.transaction_version(f"{stored.lineage}/{name}")
    epoch = -1 if done is None else min(done, stored.epoch)
    return replace(output, before=position_of(table, JobStore.open(version.location), lineage=stored.lineage, epoch=epoch))


def _require_head(head: EpochRecord | None, job: str) -> EpochRecord:
    if head is None:
        raise RewindError("the job has no epoch to go back from", fix="run it with --restore instead", job=job)
    return head
