"""Rates of a driver between samples of its counters. Pure; times are milliseconds, rates are rows per second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemark.control.model.autoscaler_records import LoadSample
from tidemark.control.model.autoscaler_settings import AutoscalerSettings


@dataclass(frozen=True)
class Measure:
    """What a driver did between two samples.

    Args:
        span_ms: the time between them.
        epochs: epochs that it ran.
        busy_share: of the time, in which an epoch ran, at most 1.
        input_rate: rows that arrived: those that it read, and those by which the backlog grew.
        read_rate: rows that it read.
        processing_rate: rows per second in which an epoch ran; None if none had rows.
        epoch_ms: how long an epoch took, None without one.
        rows_per_epoch: read by an epoch, None without one.
        backlog_rows: rows that wait at the end, 0 where that is unknown.
        standing_rows: those among them that one epoch after another leaves behind: the least number that waited in the last third of the
            time, without what arrives between two epochs.
    """

    span_ms: int
    epochs: int
    busy_share: float
    input_rate: float
    read_rate: float
    processing_rate: float | None
    epoch_ms: float | None
    rows_per_epoch: float | None
    backlog_rows: int
    standing_rows: float

    def needed_rate(self, settings: AutoscalerSettings, *, utilization: float = 1.0) -> float:
        """Return the rows per second that must be processed for the input, at a utilization, and to read the backlog in time."""
        return self.input_rate / utilization + self.standing_rows * 1000 / settings.catch_up_ms


def measure(samples: Sequence[LoadSample], trigger_ms: int) -> Measure | None:
    """Return what a driver did between the first and the last of its samples; None with fewer than two.

    >>> begin = LoadSample(0, "a", 0, 0, 0, 2, 1.0, 0)
    >>> found = measure([begin, LoadSample(60_000, "a", 6, 30_000, 60_000, 2, 1.0, 30_000)], 10_000)
    >>> found.busy_share, found.read_rate, found.input_rate, found.processing_rate, found.standing_rows
    (0.5, 1000.0, 1500.0, 2000.0, 15000.0)
    """
    if len(samples) < 2 or samples[-1].at <= samples[0].at:
        return None
    first, last = samples[0], samples[-1]
    span = last.at - first.at
    epochs, busy, rows = last.epochs - first.epochs, last.busy_ms - first.busy_ms, last.rows - first.rows
    grown = last.backlog_rows - first.backlog_rows if last.backlog_rows is not None and first.backlog_rows is not None else 0
    input_rate = max(rows + grown, 0) * 1000 / span
    standing = min(sample.backlog_rows or 0 for sample in samples if sample.at >= last.at - span // 3)
    epoch_ms = busy / epochs if epochs > 0 else None
    # What arrives between two epochs always waits for the next one.
    arriving = input_rate * max(trigger_ms, epoch_ms or 0) / 1000
    return Measure(
        span_ms=span,
        epochs=epochs,
        busy_share=min(busy / span, 1.0),
        input_rate=input_rate,
        read_rate=rows * 1000 / span,
        processing_rate=rows * 1000 / busy if rows > 0 and busy > 0 else None,
        epoch_ms=epoch_ms,
        rows_per_epoch=rows / epochs if epochs > 0 else None,
        backlog_rows=last.backlog_rows or 0,
        standing_rows=max(standing - arriving, 0.0),
    )


def same_configuration(samples: Sequence[LoadSample]) -> Sequence[LoadSample]:
    """Return the newest samples in a row that have one driver, one parallelism and one intake."""
    last = samples[-1]
    first = len(samples)
    while first and (samples[first - 1].driver, samples[first - 1].parallelism, samples[first - 1].intake) == (
        last.driver,
        last.parallelism,
        last.intake,
    ):
        first -= 1
    return samples[first:]


def peak_needed_rate(
    samples: Sequence[LoadSample], settings: AutoscalerSettings, *, now: int, window_ms: int, trigger_ms: int
) -> float | None:
    """Return the greatest rate that was needed in a metrics window since the scale-down interval began, at the target utilization.

    None if there are no samples of that time.
    """
    since = now - settings.scale_down_interval_ms
    if samples[0].at > since + settings.sample_interval_ms:
        return None
    found = [
        made.needed_rate(settings, utilization=settings.utilization_target)
        for part in _windows(samples, since, now, window_ms)
        if (made := measure(part, trigger_ms)) is not None
    ]
    return max(found, default=None)


def _windows(samples: Sequence[LoadSample], since: int, now: int, window_ms: int) -> Iterator[Sequence[LoadSample]]:
    """Yield the samples of each window back to an instant, each with the one before it; of each only those of its last driver."""
    end = now
    while end > since:
        begin = max(end - window_ms, since)
        inside = [sample for sample in samples if begin < sample.at <= end]
        before = [sample for sample in samples if sample.at <= begin][-1:]
        part = [*before, *inside]
        if inside:
            yield [sample for sample in part if sample.driver == part[-1].driver]
        end = begin
