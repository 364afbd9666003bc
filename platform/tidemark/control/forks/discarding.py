"""Discards forks: deletes a fork's tables, state and spec. The list is written first, so that a crashed discard can be resumed."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.alerts.engine.gone_jobs import keep_alerts
from tidemark.control.desired.request_log import log_request
from tidemark.control.desired.spec_store import current_user, read_spec, require_spec
from tidemark.control.model.paths import CONTROL
from tidemark.control.model.spec import ForkOrigin, SpecGeneration
from tidemark.control.observed.observe import job_names
from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, DefinitionError, SavepointInUseError, TidemarkError
from tidemark.locations import Location, stays_within
from tidemark.savepoints.model.isolation import overlaps
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.restore.pending_restores import release_for
from tidemark.savepoints.restore.shared_files import release_all
from tidemark.state.gc.file_references import FileReferences
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.records import FOLDER_SINKS, EpochRecord
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import DISCARD, LOG, job_folder
from tidemark.state.store.local_files import links_in_the_way
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

KIND: Final = "discard-note"


@dataclass(frozen=True)
class DiscardNote:
    """A fork that is being deleted.

    Args:
        tables: locations of the tables to delete.
        at: when that was begun, milliseconds.
        restore: the restore in its spec, whose file references are released.
        of: the job that was forked; empty if unknown.
    """

    tables: tuple[str, ...]
    at: int
    restore: Restore | None = None
    of: str = ""


def read_discard(folder: JobStore) -> DiscardNote | None:
    """Return the note of an unfinished discard, None if there is none. ``folder`` is the store at the fork's folder.

    Raises:
        CorruptStoreError: the note is damaged.
    """
    return read_document(folder, DISCARD, kind=KIND, form=DiscardNote)


def require_fork_of(origin: ForkOrigin | None, name: str, job: str) -> None:
    """Raise if a fork is of another job.

    Raises:
        DefinitionError: it is a fork of another job.
    """
    if origin is not None:
        _require_of(origin.job, name, job)


def discard(store: JobStore, name: str, *, of: str = "", by: str = "", clock: Clock = SYSTEM_CLOCK) -> tuple[str, ...]:
    """Delete a fork that does not run, with its tables, and release the files it references; returns the deleted locations.

    A table whose location overlaps another job's is left. Called again after a crash it continues.

    Args:
        store: the root store.
        name: the fork's.
        of: the job that it must be a fork of; any by default.
        by: who requests it, for the history of the job that was forked; ``user@host`` by default.
        clock: processing time.

    Raises:
        DefinitionError: it is not a fork, or another job's.
        JobRunningError: a driver of it is alive.
        LinkedPathError: there are symbolic links in its folder or its tables; nothing was deleted.
        SavepointInUseError: other jobs read its state. If such a job has just started, savepoints may be deleted; state and tables stay.
        CorruptStoreError: the table locations of another job cannot be determined; nothing was deleted.
        UnknownJobError: there is no such job.
        StoreError: something cannot be deleted now; the same call resumes.
    """
    folder = store.at(job_folder(name))
    log = JobLog(folder, name, clock)
    begun = read_discard(folder)
    if begun is not None:
        return _resume(store, log, begun, of=of)
    generation, root = _fork(store, name)
    if of:
        require_fork_of(generation.spec.origin, name, of)
    if generation.spec.wanted == "running":
        raise DefinitionError(f"the fork {name!r} is not stopped", fix=f"stop it first: `tidemark stop {name}`", job=name)
    _require_no_readers(folder, name)
    driver = log.acquire(current_owner("discard"), instead=f"stop the fork: `tidemark stop {name}`")
    try:
        _log_discard(store, name, generation.spec.origin, by or current_user(), clock)
        return _delete(store, name, _begin(store, driver, name, generation, root))
    except BaseException:
        with suppress(TidemarkError):
            driver.release()
        raise


def locations_of_other_jobs(store: JobStore, name: str) -> dict[str, tuple[str, ...]]:
    """Return the locations of other jobs: their folders, the outputs of their head and savepoints, the output roots of forks.

    Raises:
        CorruptStoreError: those of a job cannot be determined.
    """
    found = {}
    for job in job_names(store):
        if job == name:
            continue
        folder = store.at(job_folder(job))
        log = JobLog(folder, job)
        try:
            head = log.load().epoch
        except CorruptStoreError:
            if read_discard(folder) is None:
                raise
            # It is being discarded, and its tables are deleted already.
            continue
        records = [*([head] if head is not None else []), *(pin.record for pin in Pins(log).list())]
        locations = {
            output.location for record in records for output in record.outputs.values() if output.location and output.sink in FOLDER_SINKS
        }
        generation = read_spec(store, job)
        if generation is not None and generation.spec.outputs_root is not None:
            # A fork without an epoch has no records of its outputs.
            locations.add(str(Location.parse(generation.spec.outputs_root)))
        found[f"job {job!r}"] = (str(folder.location), *sorted(locations))
    return found


def _log_discard(store: JobStore, name: str, origin: ForkOrigin | None, by: str, clock: Clock) -> None:
    """Record it with the job that was forked, if there is that still: the fork's own history is deleted."""
    if origin is not None and LOG in store.at(job_folder(origin.job)).folders():
        log_request(store, origin.job, f"discard of its fork {name}", by=by, clock=clock)


def _fork(store: JobStore, name: str) -> tuple[SpecGeneration, str]:
    there = LOG in store.at(job_folder(name)).folders()
    generation = read_spec(store, name) if there else require_spec(store, name)
    root = generation.spec.outputs_root if generation is not None else None
    if generation is None or root is None:
        raise DefinitionError(
            f"job {name!r} is not a fork, and only forks can be discarded", fix="name a fork that `tidemark fork` made", job=name
        )
    return generation, root


def _begin(store: JobStore, driver: Driver, name: str, generation: SpecGeneration, root: str) -> DiscardNote:
    """Make sure that no other job needs the fork's files, and write the note of what to delete."""
    tables = _tables(driver.last, root)
    _require_no_links(driver.log.store, root, tables)
    others = [place for places in locations_of_other_jobs(store, name).values() for place in places]
    # A job that restores from it references its files first, and then checks that the savepoint still exists.
    pins = Pins(driver.log)
    for pin in pins.names():
        pins.remove(pin)
    _require_no_readers(driver.log.store, name)
    apart = []
    for place in tables:
        if any(overlaps(place, other) for other in others):
            logger.warning("%s is not deleted: another job writes there", place)
        else:
            apart.append(place)
    origin = generation.spec.origin
    note = DiscardNote(tuple(apart), driver.log.clock.now_ms(), generation.spec.restore, origin.job if origin is not None else "")
    driver.confirm()
    write_document(driver.log.store, DISCARD, kind=KIND, value=note)
    crash_point("discard-noted")
    return note


def _resume(store: JobStore, log: JobLog, begun: DiscardNote, *, of: str) -> tuple[str, ...]:
    if of and begun.of:
        _require_of(begun.of, log.job, of)
    _require_not_resubmitted(store, log.job, begun)
    # While its records are intact, a driver may be running again.
    with suppress(CorruptStoreError):
        log.acquire(current_owner("discard"), instead=f"stop the fork: `tidemark stop {log.job}`")
    return _delete(store, log.job, begun)


def _delete(store: JobStore, name: str, begun: DiscardNote) -> tuple[str, ...]:
    folder = store.at(job_folder(name))
    for place in begun.tables:
        _remove_table(place)
    crash_point("discard-tables-gone")
    with suppress(CorruptStoreError):
        release_all(folder, name)
    if begun.restore is not None:
        release_for(store, name, begun.restore)
    keep_alerts(store, name)
    # A job without a spec is not started. The note is deleted last.
    folder.remove_folder(CONTROL)
    crash_point("discard-specs-gone")
    folder.delete(file.path for file in folder.list() if file.path != DISCARD)
    crash_point("discard-nearly-done")
    store.remove_folder(name)
    return (*begun.tables, str(folder.location))


def _require_not_resubmitted(store: JobStore, name: str, note: DiscardNote) -> None:
    generation = read_spec(store, name)
    if generation is not None and generation.at > note.at:
        raise DefinitionError(
            f"job {name!r} was submitted again while a fork of that name was being deleted",
            fix="stop it, or submit it under another name, and delete its folder in the job store manually",
            job=name,
        )


def _require_of(origin: str, name: str, job: str) -> None:
    if origin != job:
        raise DefinitionError(f"{name!r} is a fork of job {origin!r}", fix=f"name that job, or a fork of {job!r}", job=job)


def _require_no_readers(folder: JobStore, name: str) -> None:
    holders = sorted({reference.job for reference in FileReferences(folder).list()} - {name})
    if holders:
        raise SavepointInUseError(f"the state of {name!r} is read by {', '.join(holders)}", fix="discard these first", job=name)


def _tables(head: EpochRecord | None, root: str) -> list[str]:
    """Return the locations of a fork's outputs inside its root; others in its records are ignored."""
    within = f"{Location.parse(root)}/"
    outputs = head.outputs.values() if head is not None else ()
    # Parsed, so without '..' segments, with which another folder could seem to be inside.
    places = [str(Location.parse(output.location)) for output in outputs if output.location is not None and output.sink in FOLDER_SINKS]
    return [place for place in places if place.startswith(within) and stays_within(place.removeprefix(within))]


def _require_no_links(folder: JobStore, root: str, tables: list[str]) -> None:
    """Raise if a fork contains symbolic links, since their targets would be left."""
    links = list(folder.links())
    if tables:
        within, outputs = f"{Location.parse(root)}/", JobStore.open(root)
        links += [link for place in tables for link in outputs.links(place.removeprefix(within))]
    if links:
        raise links_in_the_way(sorted(set(links)))


def _remove_table(place: str) -> None:
    """Delete a table's folder through its parent folder: it may have been replaced by a link since."""
    location = Location.parse(place)
    above, _, name = location.path.rpartition("/")
    JobStore.open(replace(location, path=above or ("/" if location.scheme == "file" else ""))).remove_folder(name)
