"""The lag of a job's watermark, what holds it back, and its thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from tidemark.assets.values.instants import instant_or_none, newest_event
from tidemark.clock import format_ms
from tidemark.durations import short_duration, to_ms
from tidemark.graph import Job
from tidemark.state import EpochProgress

LagReference = Literal["processing_time", "newest_event"]
"""What a watermark is compared with: the epoch's processing time or, for historical data, the newest event the job has read."""

Level = Literal["ok", "warn", "error"]
LEVELS: tuple[Level, ...] = ("ok", "warn", "error")

_LEAST_WARN_MS = 300_000


@dataclass(frozen=True)
class Thresholds:
    """The lags (milliseconds, inclusive) from which there is a warning and an error."""

    warn_ms: int
    error_ms: int

    def level(self, lag_ms: int | None) -> Level:
        """Return the level of a lag; an unknown lag is ok."""
        if lag_ms is None or lag_ms < self.warn_ms:
            return "ok"
        return "error" if lag_ms >= self.error_ms else "warn"


@dataclass(frozen=True)
class SourceLag:
    """The lag of one source, and the split that holds its watermark back, where it has splits."""

    source: str
    lag_ms: int
    watermark: int
    held_by: str | None

    def describe(self) -> str:
        """Return it as text."""
        split = f", held back by split {self.held_by!r}" if self.held_by else ""
        return f"source {self.source!r} is {short_duration(self.lag_ms)} behind (watermark {format_ms(self.watermark)}{split})"


def lag_thresholds(job: Job, *, warn_after: str | timedelta | None = None, error_after: str | timedelta | None = None) -> Thresholds:
    """Return the thresholds of a job.

    Args:
        job: the job.
        warn_after: by default five times the largest out-of-orderness bound of its sources, at least 5 minutes.
        error_after: by default three times that.

    Raises:
        DurationError: a duration cannot be read.
    """
    bound = max((source.watermarks.generator.bound_ms for source in job.sources.values()), default=0)
    warn = max(5 * bound, _LEAST_WARN_MS) if warn_after is None else to_ms(warn_after, what="warn_after", minimum=1)
    error = 3 * warn if error_after is None else to_ms(error_after, what="error_after", minimum=warn)
    return Thresholds(warn, error)


def source_lags(progress: EpochProgress, reference: LagReference, *, now_ms: int | None = None) -> tuple[SourceLag, ...]:
    """Return the lag of every source that has a watermark, the largest first.

    A source before its first event and one at the end of its input have none.

    Args:
        progress: the epoch.
        reference: what its watermarks are compared with.
        now_ms: for a stalled job: adds the time since the epoch.
    """
    found = []
    since = 0 if now_ms is None else max(now_ms - progress.processing_time, 0)
    for name, source in progress.sources.items():
        watermark = instant_or_none(source.watermark)
        now = progress.processing_time if reference == "processing_time" else newest_event(source)
        if watermark is not None and now is not None:
            found.append(SourceLag(name, max(now - watermark, 0) + since, watermark, source.held_by or None))
    return tuple(sorted(found, key=lambda lag: (-lag.lag_ms, lag.source)))
