"""Savepoints taken outside Dagster (by a command, a supervisor, a driver), as observations. Each is reported once on each output."""

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
"""Savepoints that one tick reports, of all jobs together; the next one continues with the others."""

SETTLES_MS = 30_000
"""A run of Dagster's that takes one observes it itself, right afterwards; so one as young as this is left to the next tick."""

InTime = Callable[[], bool]
"""Says whether there is time for one more."""


@dataclass(frozen=True)
class JobSavepoints:
    """What is known of a job's savepoints before any is opened: when the file of each was written; and its outputs' assets."""

    root: JobStore
    files: Mapping[str, int]
    keys: Mapping[str, dg.AssetKey]


@dataclass(frozen=True)
class SavepointReport:
    """The observations of new savepoints, those that are reported with them, how many those are and how many wait, what was wrong."""

    events: tuple[dg.AssetObservation, ...]
    marks: SavepointMarks
    reported: int
    waiting: int
    errors: Mapping[str, TidemarkError]

    @property
    def summary(self) -> tuple[str, ...]:
        """It in words; nothing where nothing is new."""
        parts = (f"{self.reported} savepoints reported",) if self.reported else ()
        return (*parts, f"{self.waiting} savepoints wait for the next tick") if self.waiting else parts


def report_savepoints(
    jobs: Mapping[str, JobSavepoints], marks: SavepointMarks, *, reported: ReportedEvents, clock: Clock, in_time: InTime
) -> SavepointReport:
    """Return what is to be reported of the savepoints of jobs; one that cannot be read does not keep the others from their turn.

    Args:
        jobs: by name.
        marks: of the savepoints that were reported; those of other jobs stay as they are.
        reported: what Dagster knows already.
        clock: the time.
        in_time: whether there is time for one more.
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
    """Return the names of the savepoints that are not marked, or whose file is another one now, the oldest first.

    Args:
        files: when the file of each was written, by name.
        marks: of the savepoints that were reported, by name.
    """
    new = [name for name, modified in files.items() if name not in marks or marks[name].modified != modified]
    return sorted(new, key=lambda name: (files[name], name))


class _Tick:
    """Gathers what one tick reports."""

    def __init__(self, reported: ReportedEvents, clock: Clock, in_time: InTime) -> None:
        self._known = reported
        self._clock = clock
        self._in_time = in_time
        self.events: list[dg.AssetObservation] = []
        self.errors: dict[str, TidemarkError] = {}
        self.reported = 0
        self.waiting = 0

    def report(self, name: str, job: JobSavepoints, new: list[str], marks: Mapping[str, SavepointMark]) -> Mapping[str, SavepointMark]:
        """Tell of a job's new savepoints, and return the marks with them."""
        from tidemark.savepoints import SavepointStore  # it loads what reads Delta tables

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
                # A store that was copied has the same savepoints, in files of another time.
                if each not in marks or marks[each].taken_at != savepoint.taken_at:
                    self._observe(savepoint, restorability, savepoints.folder, job.keys)
                kept[each] = SavepointMark(job.files[each], savepoint.taken_at)
            except UnknownSavepointError:
                continue  # disposed of meanwhile
            except TidemarkError as error:
                self.errors.setdefault(name, error)
        return kept

    def _observe(self, savepoint: Savepoint, restorability: Restorability, folder: JobStore, keys: Mapping[str, dg.AssetKey]) -> None:
        left = {output: key for output, key in keys.items() if not self._known.knows_savepoint(key, savepoint)}
        if left:
            self.events += savepoint_observations(savepoint, restorability.of(savepoint), folder, left)
            self.reported += 1
