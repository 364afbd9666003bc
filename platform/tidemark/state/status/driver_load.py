"""The load of a running driver: the share of its time that epochs take, rows per second, backlog, and the time to catch up.

Two kinds of figures. Share and rows are of the last epochs, and displays let them fall as time passes without one
(``Load.recent``). The time to catch up follows from how the backlog shrank from epoch to epoch, in the source's own unit.
Event time does not matter: a job that reads last year's data lags a year behind, and may be done in a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidemark.state.encoding.codec import added_field, added_mapping_field

EPOCHS: Final = 20
"""How many epochs the figures cover: enough to be steady, few enough to show a change within minutes."""

_MIN_EPOCHS: Final = 2
"""How many epochs must lie between two samples of a backlog before its rate of change is reported."""


@dataclass(frozen=True)
class Backlog:
    """The unread input of a source, as far as the source reports it; ``splits`` are the rows by split, where they are known."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    splits: Mapping[str, int] = added_mapping_field()

    @property
    def amount(self) -> int | None:
        """The backlog in the source's own unit: files, else rows (Kafka), else bytes."""
        return next((count for count in (self.files, self.rows, self.bytes) if count is not None), None)


@dataclass(frozen=True)
class Work:
    """What a driver has done since it started: counters, so that two statuses of a driver give the rates between them.

    Args:
        epochs: epochs that it has run.
        busy_ms: how long these took.
        rows_in: rows that they read.
        parallelism: of the last one.
        cores: of the driver's Spark.
        max_intake: the greatest share of its usual bounds at which an epoch may read more: 1 if the sources declare their bounds.
        backlog_rows: rows that wait to be read of all sources: of those that count files or bytes estimated by what the last epochs read;
            None if unknown.
    """

    epochs: int
    busy_ms: int
    rows_in: int
    parallelism: int
    cores: int
    max_intake: float
    backlog_rows: int | None = None


@dataclass(frozen=True)
class Load:
    """Back-pressure of a continuously running driver, over its last epochs.

    Args:
        trigger_ms: the interval between epochs.
        epochs: how many epochs the figures are taken over.
        span_ms: how long ago the first of them began when the last one ended.
        busy_share: of that time in which an epoch ran; 1 when one follows the other without a pause.
        epoch_ms: how long one took, on average; more than ``trigger_ms`` when they come late.
        rows_in: read in them.
        rows_out: written in them.
        catch_up_ms: how long it takes until an epoch reads the whole backlog, at the current rate; None if the next one does, the
            backlog does not shrink, or too few epochs have shown its rate.
        intake: the share of its usual bound that an epoch may read of each source; 1 unless intake adapts to the interval.
        waiting: by source.
        work: what the driver has done since it started; None from an earlier release.
    """

    trigger_ms: int
    epochs: int
    span_ms: int
    busy_share: float
    epoch_ms: int
    rows_in: int
    rows_out: int
    catch_up_ms: int | None = None
    intake: float = 1.0
    waiting: Mapping[str, Backlog] = field(default_factory=dict)
    work: Work | None = added_field(None)  # noqa: RUF009 - it returns a field

    def recent(self, *, since_ms: int, epoch_ms: int | None = None) -> Recent:
        """Return the figures of the time up to now: over a window of the same length that ends now.

        So they fall to 0 once the job has been idle for that long, and the share rises to 1 while one long epoch runs.

        Args:
            since_ms: how long ago the last epoch ended.
            epoch_ms: how long the current epoch has been running, None if none runs.

        >>> load = Load(10_000, 5, 50_000, 0.5, 5_000, 1_000, 100)
        >>> load.recent(since_ms=25_000), load.recent(since_ms=50_000)
        (Recent(busy_share=0.25, rows_in=10.0, rows_out=1.0), Recent(busy_share=0.0, rows_in=0.0, rows_out=0.0))
        """
        pause = max(since_ms, 0)
        if pause <= 2 * max(self.trigger_ms, self.epoch_ms):
            # Until the next epoch can have ended, the figures stay as they were.
            pause = 0
        span = max(self.span_ms, self.trigger_ms, 1)
        left = max(0.0, 1 - pause / span)
        running = min(max(epoch_ms or 0, 0), span)
        share = min(1.0, self.busy_share * self.span_ms / span * left + running / span) if pause else self.busy_share
        seconds = max(self.span_ms, 1) / 1000
        return Recent(round(share, 4), self.rows_in / seconds * left, self.rows_out / seconds * left)


@dataclass(frozen=True)
class Recent:
    """The share of the time up to now in which epochs ran, and rows per second."""

    busy_share: float
    rows_in: float
    rows_out: float


@dataclass(frozen=True)
class EpochSample:
    """One epoch as a sample of the load; ``begun`` and ``ended`` are monotonic milliseconds, ``read`` the rows of each source."""

    begun: int
    ended: int
    rows_in: int
    rows_out: int
    read: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BacklogSample:
    """The backlog of each source after an epoch, and what that epoch read of it, in the source's own unit (``Backlog.amount``).

    ``at`` is in monotonic milliseconds; ``rows`` are the rows that it read. Sources that report no backlog are left out.
    """

    at: int
    waiting: Mapping[str, int]
    read: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


class LoadGauge:
    """Keeps the last epochs of a driver and computes their load.

    Args:
        trigger_ms: the interval between epochs.
        cores: returns the number of the driver's cores; called after each epoch.
        max_intake: as ``Work`` has it.
    """

    def __init__(self, trigger_ms: int, *, cores: Callable[[], int] = lambda: 0, max_intake: float = 1.0) -> None:
        self._trigger_ms = trigger_ms
        self._cores = cores
        self._work = Work(0, 0, 0, parallelism=0, cores=0, max_intake=max_intake)
        self._samples: deque[EpochSample] = deque(maxlen=EPOCHS)
        self._samples_of_backlog: deque[BacklogSample] = deque(maxlen=EPOCHS)
        self.intake = 1.0
        self.waiting: Mapping[str, Backlog] = {}
        self.catch_up_ms: int | None = None

    def add(self, sample: EpochSample, *, parallelism: int = 0) -> Load:
        """Add an epoch that had so many shuffle partitions, and return the load."""
        self._samples.append(sample)
        before = self._work
        self._work = Work(
            before.epochs + 1,
            before.busy_ms + max(sample.ended - sample.begun, 0),
            before.rows_in + sample.rows_in,
            parallelism=parallelism,
            cores=self._cores(),
            max_intake=before.max_intake,
        )
        found = load_of(tuple(self._samples), self._trigger_ms, intake=self.intake, waiting=self.waiting, catch_up_ms=self.catch_up_ms)
        return replace(found, work=self.work)

    @property
    def work(self) -> Work:
        """What the driver has done, and the backlog in rows as it was last observed."""
        return replace(self._work, backlog_rows=self._backlog_rows())

    def _backlog_rows(self) -> int | None:
        """Return the rows that wait; None while that is unknown of a source."""
        sources = self._samples[-1].read if self._samples else {}
        found = [self._rows_waiting(name) for name in sources]
        known = [rows for rows in found if rows is not None]
        return sum(known) if known and len(known) == len(found) else None

    def _rows_waiting(self, name: str) -> int | None:
        waiting = self.waiting.get(name, Backlog())
        if waiting.rows is not None or not waiting.amount:
            return waiting.rows if waiting.rows is not None else waiting.amount
        # An epoch without rows says nothing of how many a file has.
        seen = [sample for sample in self._samples_of_backlog if sample.rows.get(name) and sample.read.get(name)]
        units = sum(sample.read[name] for sample in seen)
        return round(waiting.amount * sum(sample.rows[name] for sample in seen) / units) if units else None

    def observe_backlog(self, at: int, waiting: Mapping[str, Backlog], *, read: Mapping[str, int] | None = None) -> None:
        """Add a sample of the backlog.

        Args:
            at: now, in monotonic milliseconds.
            waiting: the backlog, by source.
            read: what the newest epoch read, by source; None if there was none since the last sample.
        """
        self.waiting = waiting
        if read is not None:
            known = {name: item.amount for name, item in waiting.items()}
            rows = self._samples[-1].read if self._samples else {}
            amounts = {name: amount for name, amount in known.items() if amount is not None}
            self._samples_of_backlog.append(BacklogSample(at, amounts, read, rows))
        self.catch_up_ms = catch_up_ms(tuple(self._samples_of_backlog)) if self._is_recent(at) else None

    def _is_recent(self, at: int) -> bool:
        """Return whether the samples show the current rate of a backlog: they do not if nothing was read for too long."""
        return bool(self._samples_of_backlog) and at - self._samples_of_backlog[-1].at <= max(
            self._samples_of_backlog[-1].at - self._samples_of_backlog[0].at, 2 * self._trigger_ms
        )


def load_of(
    samples: Sequence[EpochSample],
    trigger_ms: int,
    *,
    intake: float = 1.0,
    waiting: Mapping[str, Backlog] | None = None,
    catch_up_ms: int | None = None,
) -> Load:
    """Return the load of some epochs, oldest first; there is one at least.

    >>> load_of([EpochSample(0, 4_000, 10, 1), EpochSample(10_000, 16_000, 30, 2)], 10_000).busy_share
    0.625
    """
    first, last = samples[0], samples[-1]
    span = max(last.ended - first.begun, 1)
    busy = sum(max(sample.ended - sample.begun, 0) for sample in samples)
    return Load(
        trigger_ms=trigger_ms,
        epochs=len(samples),
        span_ms=span,
        busy_share=round(min(busy / span, 1.0), 4),
        epoch_ms=round(busy / len(samples)),
        rows_in=sum(sample.rows_in for sample in samples),
        rows_out=sum(sample.rows_out for sample in samples),
        catch_up_ms=catch_up_ms,
        intake=intake,
        waiting=dict(waiting or {}),
    )


def catch_up_ms(samples: Sequence[BacklogSample]) -> int | None:
    """Return how long it takes to read the backlog of every source, None if none has one or that of one is not known.

    A backlog shrinks by what epochs read of it less what arrives, measured since its last maximum, so that a burst counts from
    its end on.

    Args:
        samples: one after each of the last epochs, oldest first.

    >>> catch_up_ms([BacklogSample(second * 1000, {"trips": 40 - 2 * second}, {"trips": 2}) for second in range(5)])
    16000
    """
    if not samples:
        return None
    times = [_source_ms(name, amount, samples) for name, amount in samples[-1].waiting.items()]
    known = [time for time in times if time is not None]
    return max(known, default=0) or None if len(known) == len(times) else None


def _source_ms(name: str, amount: int, samples: Sequence[BacklogSample]) -> int | None:
    """Return how long it takes to read a source's backlog: 0 if it has none, None if that is not known."""
    seen = [sample for sample in samples if name in sample.waiting]
    # Input that the next epoch reads is no backlog.
    if amount <= max(sample.read.get(name, 0) for sample in seen):
        return 0
    most = max(sample.waiting[name] for sample in seen)
    peak = max(number for number, sample in enumerate(seen) if sample.waiting[name] == most)
    first, last = seen[peak], seen[-1]
    if len(seen) - 1 - peak < _MIN_EPOCHS:
        return None
    return round(amount * (last.at - first.at) / (most - amount))
