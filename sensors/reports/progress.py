"""A sensor that reports the progress of submitted jobs: observations, complete partitions of their outputs, savepoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import dagster as dg

from tidemark.assets.definitions.bound_job import JOB_KEY, BoundJob, bound_job
from tidemark.assets.values.store_location import store_location
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.durations import format_duration, to_ms
from tidemark.errors import CorruptStoreError, DefinitionError, StoreError, TidemarkError
from tidemark.graph import Job
from tidemark.sensors.job_sensor import SensorOptions
from tidemark.sensors.reports.progress_cursor import JobMark, SavepointMarks, decode_marks, decode_savepoints, encode_marks
from tidemark.sensors.reports.progress_report import (
    Event,
    has_corrections,
    is_due,
    report_complete,
    report_corrections,
    report_epochs,
)
from tidemark.sensors.reports.reported_events import ReportedEvents
from tidemark.sensors.reports.savepoint_report import JobSavepoints, report_savepoints
from tidemark.state import JobLog, JobStatus, JobStore, Pins, job_folder, read_status

TICK_SECONDS = 2.5
"""The time after which a tick reads no further history; the next tick starts with the remaining jobs."""

LEAST_SECONDS = 1.0
"""Minimum time for reading histories, however long it took to find the jobs with new epochs."""

_THREADS = 32
_NAMED = 5


def build_progress_sensor(
    specs: Iterable[dg.AssetSpec],
    *,
    name: str = "tidemark_progress",
    interval: str | timedelta = "5 minutes",
    options: SensorOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dg.SensorDefinition:
    """Return a sensor that reports the outputs of jobs that run outside Dagster.

    Each output gets an observation when there are new epochs and the last one is ``interval`` old; it covers all epochs since. A time
    partition gets a materialization when it is complete through the watermark, and another one when late rows corrected it, each at the
    next tick, with lineage and epoch as the data version. A savepoint that no Dagster run took is observed once on each output.
    Each event is reported exactly once, even if a tick fails.

    Args:
        specs: specs from ``build_output_asset_specs``, of one or many jobs.
        name: the sensor's name.
        interval: minimum time between two observations of an output.
        options: store, time between ticks, status (it runs as soon as it is deployed). It sends no alerts and requests no runs.
        clock: processing time.

    Raises:
        DefinitionError: the specs are not a streaming job's, or no store is known.
        DurationError: a duration cannot be read.
    """
    chosen = options or SensorOptions()
    progress = Progress(_followed(specs), chosen, to_ms(interval, what="interval", minimum=1), clock)

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        # Dagster stores a cursor after all events reported with it are written; this one it has stored.
        complete = context.cursor is not None and context.cursor == progress.returned
        reported = ReportedEvents(context.instance, complete=complete, keys=progress.keys)
        result = progress.tick(decode_marks(context.cursor), reported, savepoints=decode_savepoints(context.cursor))
        progress.returned = encode_marks(result.marks, result.savepoints)
        for job, error in result.errors.items():
            context.log.warning("%s is skipped: %s", job, error)
        return dg.SensorResult(skip_reason=result.summary, asset_events=list(result.events), cursor=progress.returned)

    return dg.SensorDefinition(
        name=name,
        evaluation_fn=evaluate,
        description="Reports observations (at most one per output in "
        f"{format_duration(progress.interval_ms)}), complete partitions and savepoints of {', '.join(progress.names) or 'no job'}.",
        minimum_interval_seconds=max(1, to_ms(chosen.every, what="every", minimum=1000) // 1000),
        default_status=chosen.default_status or dg.DefaultSensorStatus.RUNNING,
    )


@dataclass(frozen=True)
class TickResult:
    """The result of a tick: events, marks for the cursor, errors of jobs whose files could not be read, and a summary."""

    events: tuple[Event, ...]
    marks: dict[str, JobMark]
    savepoints: SavepointMarks
    errors: dict[str, TidemarkError]
    summary: str


class _JobSnapshot(NamedTuple):
    """A job's store, its driver's last status, and when the file of each of its savepoints was written, if they were listed."""

    root: JobStore
    status: JobStatus
    savepoints: Mapping[str, int] | None


class Progress:
    """Reports a number of jobs, tick by tick.

    Args:
        jobs: the jobs.
        options: the location of their stores.
        interval_ms: minimum time between two observations.
        clock: processing time.

    Attributes:
        returned: the cursor that this process returned last; None before the first.
    """

    def __init__(self, jobs: Sequence[BoundJob], options: SensorOptions, interval_ms: int, clock: Clock) -> None:
        for job in jobs:
            _store_of(options, job.job)
        self._jobs = {job.job.name: job for job in jobs}
        self._options = options
        self._clock = clock
        self.interval_ms = interval_ms
        self.returned: str | None = None
        self._listed_at: int | None = None
        self._behind: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The jobs' names."""
        return tuple(self._jobs)

    @property
    def keys(self) -> Iterable[dg.AssetKey]:
        """Asset keys of the jobs' outputs."""
        return (key for job in self._jobs.values() for key in job.keys.values())

    def tick(self, marks: dict[str, JobMark], reported: ReportedEvents, *, savepoints: SavepointMarks) -> TickResult:
        """Report all jobs once; an error of one job does not affect the others.

        Args:
            marks: how far each job was reported.
            reported: events that Dagster has beyond that.
            savepoints: those that were reported.

        Raises:
            StoreError: no store can be reached.
        """
        begun = self._clock.monotonic()
        lists = self._lists_savepoints()
        statuses, errors = self._read(savepoints=lists)
        kept = {name: mark for name, mark in marks.items() if name in self._jobs}
        observed, waiting, events = self._observe(statuses, kept, errors, reported, begun=begun)
        events += self._correct(statuses, kept, errors, reported)
        for name, (_, status, _) in statuses.items():
            mark = kept.get(name)
            # If another lineage began, the epochs in between are reported first.
            if self._jobs[name].partitions and mark is not None and status.last is not None and status.last.lineage == mark.corrected_to[0]:
                report = report_complete(self._jobs[name], status.last, mark, reported=reported)
                events += report.events
                kept[name] = report.mark
        until = max(begun + TICK_SECONDS, self._clock.monotonic() + LEAST_SECONDS)
        taken = report_savepoints(
            {
                name: JobSavepoints(snapshot.root, snapshot.savepoints, self._jobs[name].keys)
                for name, snapshot in statuses.items()
                if snapshot.savepoints is not None
            },
            # The marks of a job that cannot be read now are kept.
            {name: known for name, known in savepoints.items() if name in self._jobs},
            reported=reported,
            clock=self._clock,
            in_time=lambda: self._clock.monotonic() < until,
        )
        if lists:
            self._listed_at = None if taken.waiting else self._clock.now_ms()
        errors = {**taken.errors, **errors}
        summary = [_summary(observed, waiting, events, errors, len(self._jobs)), *taken.summary]
        return TickResult((*events, *taken.events), kept, taken.marks, errors, "; ".join(summary))

    def _observe(
        self,
        statuses: Mapping[str, _JobSnapshot],
        marks: dict[str, JobMark],
        errors: dict[str, TidemarkError],
        reported: ReportedEvents,
        *,
        begun: float,
    ) -> tuple[int, int, list[Event]]:
        """Observe the due jobs, longest waiting first; returns the number of observed and of waiting jobs, and the events."""
        now, until = self._clock.now_ms(), max(begun + TICK_SECONDS, self._clock.monotonic() + LEAST_SECONDS)
        due = [name for name, (_, status, _) in statuses.items() if is_due(status, marks.get(name), now=now, interval_ms=self.interval_ms)]
        due.sort(key=lambda name: marks[name].at if name in marks else 0)
        observed, events = 0, list[Event]()
        for place, name in enumerate(due):
            if self._clock.monotonic() >= until:
                return observed, len(due) - place, events
            root, status, _ = statuses[name]
            try:
                report = report_epochs(root, self._jobs[name], status, marks.get(name), now=now, reported=reported)
            except TidemarkError as error:
                errors[name] = error
                continue
            if report is not None:
                observed += 1
                events += report.events
                marks[name] = report.mark
        return observed, 0, events

    def _correct(
        self, statuses: Mapping[str, _JobSnapshot], marks: dict[str, JobMark], errors: dict[str, TidemarkError], reported: ReportedEvents
    ) -> list[Event]:
        """Return the corrected partitions of all jobs with new epochs; jobs that the previous tick did not reach come first."""
        until = self._clock.monotonic() + LEAST_SECONDS
        names = [name for name in dict.fromkeys((*self._behind, *statuses)) if name in statuses and name in marks and name not in errors]
        followed, self._behind = [name for name in names if self._jobs[name].partitions], ()
        events = list[Event]()
        for place, name in enumerate(followed):
            root, status, _ = statuses[name]
            if not has_corrections(status, marks[name]):
                continue
            if self._clock.monotonic() >= until:
                self._behind = tuple(followed[place:])
                return events
            try:
                report = report_corrections(root, self._jobs[name], marks[name], reported=reported)
            except TidemarkError as error:
                errors[name] = error
                continue
            if report is not None:
                events += report.events
                marks[name] = report.mark
        return events

    def _lists_savepoints(self) -> bool:
        """Return whether to list savepoints: listing costs more than reading on object stores, so it is done once per interval."""
        return self._listed_at is None or not 0 <= self._clock.now_ms() - self._listed_at < self.interval_ms

    def _read(self, *, savepoints: bool) -> tuple[dict[str, _JobSnapshot], dict[str, TidemarkError]]:
        """Return snapshots of the jobs that have committed an epoch, and the errors of those that cannot be read."""
        places, errors = self._open()
        statuses: dict[str, _JobSnapshot] = {}
        for name, found in _read_jobs(places, savepoints=savepoints):
            if isinstance(found, TidemarkError):
                errors[name] = found
            elif found is not None:
                statuses[name] = found
        if errors and not statuses and all(isinstance(error, StoreError) for error in errors.values()):
            raise next(iter(errors.values()))
        return statuses, errors

    def _open(self) -> tuple[dict[str, JobStore], dict[str, TidemarkError]]:
        """Return the stores of the jobs, and the errors of those whose store cannot be opened; each store is tried once.

        Raises:
            TidemarkError: no store can be opened.
        """
        roots: dict[str, JobStore | TidemarkError] = {}
        places: dict[str, JobStore] = {}
        errors: dict[str, TidemarkError] = {}
        for name, job in self._jobs.items():
            try:
                uri = store_location(_store_of(self._options, job.job), name)
            except TidemarkError as error:
                errors[name] = error
                continue
            if uri not in roots:
                roots[uri] = _opened(uri)
            opened = roots[uri]
            if isinstance(opened, TidemarkError):
                errors[name] = opened
            else:
                places[name] = opened
        if errors and not places:
            raise next(iter(errors.values()))
        return places, errors


def _opened(uri: str) -> JobStore | TidemarkError:
    """Return a store, or the error of one that cannot be opened, which takes long where nothing answers."""
    try:
        return JobStore.open(uri)
    except TidemarkError as error:
        return error


def _read_jobs(places: Mapping[str, JobStore], *, savepoints: bool) -> Iterable[tuple[str, _JobSnapshot | TidemarkError | None]]:
    read = partial(_read_job, savepoints=savepoints)
    if all(root.location.scheme == "file" for root in places.values()) or len(places) < 2:
        return [(name, read(root, name)) for name, root in places.items()]
    with ThreadPoolExecutor(min(_THREADS, len(places)), thread_name_prefix="tidemark-look") as pool:
        return list(zip(places, pool.map(read, places.values(), places), strict=True))


def _read_job(root: JobStore, name: str, *, savepoints: bool) -> _JobSnapshot | TidemarkError | None:
    """Return a job's snapshot, None if it has committed nothing yet."""
    try:
        status = read_status(root, name)
        if status is None or status.last is None:
            return None
        return _JobSnapshot(root, status, Pins(JobLog(root.at(job_folder(name)), name)).files() if savepoints else None)
    except TidemarkError as error:
        return error


def _store_of(options: SensorOptions, job: Job) -> str | dg.EnvVar:
    store = options.store if options.store is not None else job.store
    if store is None:
        raise DefinitionError("a progress sensor has no job store", fix="set SensorOptions(store=...), or Job(store=...)", job=job.name)
    return store


def _followed(specs: Iterable[dg.AssetSpec]) -> list[BoundJob]:
    by_job: dict[str, list[dg.AssetSpec]] = {}
    for spec in specs:
        by_job.setdefault(str(spec.metadata.get(JOB_KEY)), []).append(spec)
    return [bound_job(found) for found in by_job.values()]


def _summary(observed: int, waiting: int, events: Sequence[Event], errors: dict[str, TidemarkError], jobs: int) -> str:
    partitions = sum(isinstance(event, dg.AssetMaterialization) for event in events)
    parts = [f"{observed} of {jobs} jobs observed, {partitions} partitions reported"]
    parts += [f"{waiting} jobs wait for the next tick"] if waiting else []
    if errors:
        damaged = sum(isinstance(error, CorruptStoreError) for error in errors.values())
        named = ", ".join(sorted(errors)[:_NAMED])
        parts.append(f"{len(errors)} jobs cannot be read ({damaged} of them damaged): {named}")
    return "; ".join(parts)
