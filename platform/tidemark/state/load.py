"""How hard a running driver works: the share of its time that epochs take, rows per second, what waits, how long catching up takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

EPOCHS: Final = 20
"""Over so many epochs figures are taken: enough to be steady, few enough to show a change within minutes."""


@dataclass(frozen=True)
class Waiting:
    """What waits to be read of a source, as far as the source tells."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Load:
    """Back-pressure of a driver that runs on, over its last epochs.

    Args:
        trigger_ms: the interval between epochs.
        epochs: how many epochs the figures are taken over.
        span_ms: how long ago the first of them began when the last one ended.
        busy_share: of that time in which an epoch was at hand; 1 when one follows the other without a pause.
        epoch_ms: how long one took, on average; more than ``trigger_ms`` when they come late.
        rows_in: read in them.
        rows_out: written in them.
        catch_up_ms: how long it takes at this pace until the watermark is where it is without a backlog; None when it does not come
            nearer, or is not behind.
        intake: the share of its usual bound that an epoch may read of each source; 1 unless intake adapts to the interval.
        waiting: by source.
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
    waiting: Mapping[str, Waiting] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochSample:
    """One epoch as the load sees it; ``begun`` and ``ended`` are milliseconds that never go back.

    ``lag_ms`` is the greatest of the sources', None where none is known.
    """

    begun: int
    ended: int
    rows_in: int
    rows_out: int
    lag_ms: int | None = None


class LoadGauge:
    """Keeps the last epochs of a driver and says what load they are.

    Args:
        trigger_ms: the interval between epochs.
    """

    def __init__(self, trigger_ms: int) -> None:
        self._trigger_ms = trigger_ms
        self._samples: deque[EpochSample] = deque(maxlen=EPOCHS)
        self.intake = 1.0
        self.waiting: Mapping[str, Waiting] = {}

    def add(self, sample: EpochSample) -> Load:
        """Take an epoch in and return the load."""
        self._samples.append(sample)
        return load_of(tuple(self._samples), self._trigger_ms, intake=self.intake, waiting=self.waiting)


def load_of(samples: Sequence[EpochSample], trigger_ms: int, *, intake: float = 1.0, waiting: Mapping[str, Waiting] | None = None) -> Load:
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
        catch_up_ms=catch_up_ms(first, last, trigger_ms),
        intake=intake,
        waiting=dict(waiting or {}),
    )


def catch_up_ms(first: EpochSample, last: EpochSample, trigger_ms: int) -> int | None:
    """Return how long it takes, at the pace between two epochs, until the watermark does not lag.

    The watermark of a job that keeps up goes on as fast as the clock. One that goes faster has a backlog and eats it up. None where it
    does not go faster, or is no further behind than two intervals.

    >>> catch_up_ms(EpochSample(0, 0, 1, 1, 3_600_000), EpochSample(60_000, 60_000, 1, 1, 3_000_000), 10_000)
    300000
    """
    if first.lag_ms is None or last.lag_ms is None or last.ended <= first.ended:
        return None
    passed, gained = last.ended - first.ended, first.lag_ms - last.lag_ms
    # Less than a tenth of the clock's pace is how watermarks jitter.
    if last.lag_ms <= 2 * trigger_ms or gained * 10 < passed:
        return None
    return round(last.lag_ms * passed / gained)
