"""All that the page of a job shows, as it was read from the store: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation
from tidemark.control.view.change_log import Change
from tidemark.savepoints.model.savepoint import SavepointInfo
from tidemark.state.gc.pins import PinOutline
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.job_graph import JobGraph


@dataclass(frozen=True)
class SavepointLine:
    """A savepoint as a page lists it."""

    outline: PinOutline
    info: SavepointInfo


@dataclass(frozen=True)
class JobFacts:
    """All that the page of a job shows, as it was read.

    Args:
        observation: of the job.
        view: the same as commands show it.
        graph: as the newest driver stored it; None if none has.
        epochs: the newest epochs, oldest first.
        savepoints: the newest savepoints, newest first.
        savepoints_in_all: how many there are.
        changes: the newest changes of the spec, starts and failures, oldest first.
        problems: a text for each part that cannot be read.
        store: the root store's URI if commands need it, else None.
    """

    observation: Observation
    view: JobView
    graph: JobGraph | None = None
    epochs: tuple[EpochProgress, ...] = ()
    savepoints: tuple[SavepointLine, ...] = ()
    savepoints_in_all: int = 0
    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    store: str | None = None
