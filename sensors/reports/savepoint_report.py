"""Reports savepoints taken outside Dagster (by a command, a supervisor, a driver) as observations, once on each output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from tidemark.assets.report.savepoint_observations import savepoint_observations
from tidemark.clock import Clock
from tidemark.errors import TidemarkError, UnknownSavepointError
from tidemark.sensors.reports.progress_cursor import SavepointMark, SavepointMarks
from tidemark.sensors.reports.reported_events import ReportedEvents
from tidemark.state import JobStore

if TYPE_CHECKING:
    from tidemark.savepoints import Restorability, Savepoint

SAVEPOINTS_AT_ONCE = 20
"""Savepoints that one tick reports, over all jobs; the next tick continues with the others."""

SETTLES_MS = 30_000
"""A Dagster run that takes a savepoint observes it itself right afterwards; so one this young is left to the next tick."""

InTime = Callable[[], bool]
"""Returns whether there is time for one more."""


@dataclass(frozen=True)
class JobSavepoints:
    """A job's savepoints before any is opened: when the file of each was written; and its outputs' assets."""

    root: JobStore
    files: Mapping[str, int]
    keys: Mapping[str, dg.AssetKey]


@dataclass(frozen=True)
class SavepointReport:
    """Observations of new savepoints, the marks after them, the number of reported and of waiting savepoints, and errors."""

    events: tuple[dg.AssetObservation, ...]
    marks: SavepointMarks
    reported: int
    waiting: int
    errors: Mapping[str, TidemarkError]

    @property
    def summary(self) -> tuple[str, ...]:
        """The report as text; empty without new savepoints."""
        parts = (f"{self.reported} savepoints reported",) if self.reported else ()
        return (*parts, f"{self.waiting} savepoints wait for the next tick") if self.waiting else parts


def report_savepoints(
    jobs: Mapping[str, JobSavepoints], marks: SavepointMarks, *, reported: ReportedEvents, clock: Clock, in_time: InTime
) -> SavepointReport:
    """Return the report of new savepoints of jobs; one that cannot be read does not affect the others.

    Args:
        jobs: by name.
        marks: marks of the reported savepoints; those of other jobs stay unchanged.
        reported: events that Dagster has already.
        clock: processing time.
        in_time: returns whether there is time for one more.
    """
    tick = _Tick(reported, clock, in_time)
    kept = dict(marks)
    for name, job in jobs.items():
        known = marks.get(name, {})
        kept[name] = {savepoint: mark for savepoint, mark in known.items() if savepoint in job.files}
        new = new_savepoints(job.files, known)
        if new:
            kept[name] = tick.report(name, job, new, kept[name])
    left = {name: known for name, known in kept.items() if known}
    return SavepointReport(tuple(tick.events), left, tick.reported, tick.waiting, tick.errors)


def new_savepoints(files: Mapping[str, int], marks: Mapping[str, SavepointMark]) -> list[str]:
    """Return the names of the savepoints without a mark, or whose file has changed, oldest first.

    Args:
        files: when the file of each was written, by name.
        marks: marks of the reported savepoints, by name.
    """
    new = [name for name, modified in files.items() if name not in marks or marks[name].modified != modified]
    return sorted(new, key=lambda name: (files[name], name))


class _Tick:
    """Collects the report of one tick."""

    def __init__(self, reported: ReportedEvents, clock: Clock, in_time: InTime) -> None:
        self._known = reported
        self._clock = clock
        self._in_time = in_time
        self.events: list[dg.AssetObservation] = []
        self.errors: dict[str, TidemarkError] = {}
        self.reported = 0
        self.waiting = 0

    def report(self, name: str, job: JobSavepoints, new: list[str], marks: Mapping[str, SavepointMark]) -> Mapping[str, SavepointMark]:
        """Report a job's new savepoints, and return the marks with them."""
        from tidemark.savepoints import SavepointStore  # its import loads the Delta library

        savepoints, kept = SavepointStore(job.root, name, self._clock), dict(marks)
        restorability = savepoints.restorability()
        for place, each in enumerate(new):
            if self.reported >= SAVEPOINTS_AT_ONCE or not self._in_time():
                self.waiting += len(new) - place
                break
            try:
                savepoint = savepoints.get(each)
                if 0 <= self._clock.now_ms() - savepoint.taken_at < SETTLES_MS:
                    self.waiting += 1
                    continue
                # A copied store has the same savepoints, in files with other times.
                if each not in marks or marks[each].taken_at != savepoint.taken_at:
                    self._observe(savepoint, restorability, savepoints.folder, job.keys)
                kept[each] = SavepointMark(job.files[each], savepoint.taken_at)
            except UnknownSavepointError:
                continue  # disposed of in between
            except TidemarkError as error:
                self.errors.setdefault(name, error)
        return kept

    def _observe(self, savepoint: Savepoint, restorability: Restorability, folder: JobStore, keys: Mapping[str, dg.AssetKey]) -> None:
        left = {output: key for output, key in keys.items() if not self._known.knows_savepoint(key, savepoint)}
        if left:
            self.events += savepoint_observations(savepoint, restorability.of(savepoint), folder, left)
            self.reported += 1
