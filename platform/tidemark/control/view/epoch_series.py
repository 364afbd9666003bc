"""How a job's lag, rows and late rows were in its newest epochs, from its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidemark.control.model.view import JobView
from tidemark.errors import CorruptStoreError
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history import read_history
from tidemark.state.store.store import JobStore

EPOCHS: Final = 41
"""How many epochs are read; of the first the rate is not known."""

MOST_READS: Final = 20
"""How many histories are read in one refresh: with more jobs their lines follow in the next ones."""


@dataclass(frozen=True)
class JobSeries:
    """Figures of a job's newest epochs, oldest first.

    Args:
        lag_ms: the longest lag of a source; None before the first watermark.
        rows_per_second: rows read, since the epoch before; None of the first.
        late: late rows.
    """

    lag_ms: tuple[int | None, ...] = ()
    rows_per_second: tuple[float | None, ...] = ()
    late: tuple[int, ...] = ()


@dataclass(frozen=True)
class JobHistory:
    """A job's newest epochs, oldest first; or the error with which its history cannot be read, while the rest of the job is shown."""

    epochs: tuple[EpochProgress, ...] = ()
    problem: str = ""

    @property
    def series(self) -> JobSeries:
        """The figures of the epochs."""
        return series_of(self.epochs)


def series_of(epochs: Sequence[EpochProgress]) -> JobSeries:
    """Return the figures of epochs, oldest first."""
    lags = [[source.lag_ms for source in epoch.sources.values() if source.lag_ms is not None] for epoch in epochs]
    rates = [_rate(before, epoch) for before, epoch in pairwise(epochs)]
    return JobSeries(
        lag_ms=tuple(max(each, default=None) for each in lags),
        rows_per_second=(*([None] if epochs else []), *rates),
        late=tuple(epoch.rows_late for epoch in epochs),
    )


def _rate(before: EpochProgress, epoch: EpochProgress) -> float:
    """Return the rows per second of the time since the epoch before; a clock that was set back is no time."""
    return epoch.rows_in * 1000 / max(epoch.processing_time - before.processing_time, epoch.duration_ms, 1)


class HistoryReader:
    """Reads the histories of jobs, each only after an epoch, or while it cannot be read.

    Args:
        root: the root store.
    """

    def __init__(self, root: JobStore) -> None:
        self._root = root
        self._found: dict[str, JobHistory] = {}
        self._read_at: dict[str, tuple[str, int | None]] = {}

    def refresh(self, views: Sequence[JobView], *, first: str = "", most: int | None = MOST_READS) -> Mapping[str, JobHistory]:
        """Return the histories of jobs by name; those that were not read yet are missing.

        Args:
            views: the jobs.
            first: name of the job whose history is read before those of the others.
            most: read at most this many; None reads all.

        Raises:
            StoreError: the store cannot be reached.
        """
        changed = [view for view in views if self._read_at.get(view.job) != (view.lineage, view.epoch)]
        # Those that were never read go before those that were.
        changed.sort(key=lambda view: (view.job != first, view.job in self._read_at))
        for view in changed[:most]:
            found = self._found[view.job] = self._read(view.job)
            if not found.problem:
                self._read_at[view.job] = (view.lineage, view.epoch)
        return {view.job: self._found[view.job] for view in views if view.job in self._found}

    def _read(self, job: str) -> JobHistory:
        try:
            return JobHistory(tuple(read_history(self._root, job, EPOCHS)))
        except CorruptStoreError as error:
            return JobHistory(problem=str(error))
