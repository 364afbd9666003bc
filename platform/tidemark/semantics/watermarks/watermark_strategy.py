"""The declaration of a source's timestamps and watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.errors import DefinitionError, DurationError
from tidemark.semantics.watermarks.watermark_generators import IngestionTime, WatermarkGenerator

MIN_WATERMARK: Final = -(2**63)
"""No event time has passed: the watermark before the first element."""

MAX_WATERMARK: Final = 2**63 - 1
"""All event time has passed: the watermark at the end of input."""

DEFAULT_FUTURE_SKEW_MS: Final = 86_400_000


@dataclass(frozen=True)
class WatermarkStrategy:
    """How a source's elements get timestamps, and how its watermark is generated.

    ``timestamp`` is an SQL expression of type TIMESTAMP, DATE or BIGINT (milliseconds); None means ingestion time.
    ``split_by`` names a column whose values are the source's splits. Durations are milliseconds, None is off.
    ``advance_when_idle``: see ``tidemark.semantics.watermarks.watermark_progress.advance``.

    Raises:
        DurationError: ``idle_after_ms`` is not positive, or ``max_future_skew_ms`` is negative.
        DefinitionError: settings that contradict each other.
    """

    timestamp: str | None
    generator: WatermarkGenerator
    idle_after_ms: int | None = None
    split_by: str | None = None
    max_future_skew_ms: int | None = DEFAULT_FUTURE_SKEW_MS
    advance_when_idle: bool = False

    def __post_init__(self) -> None:
        if self.idle_after_ms is not None and self.idle_after_ms <= 0:
            raise DurationError(f"idle_after={self.idle_after_ms} ms must be positive", fix="give such as '1 minute', or leave it out")
        if self.max_future_skew_ms is not None and self.max_future_skew_ms < 0:
            raise DurationError(
                f"max_future_skew={self.max_future_skew_ms} ms must not be negative", fix="give such as '1 day', or None to turn it off"
            )
        if self.advance_when_idle and self.idle_after_ms is None:
            raise DefinitionError("advance_when_idle needs to know when the source is idle", fix="add idle_after='1 minute' or such")
        if not isinstance(self.generator, IngestionTime):
            return
        if self.timestamp is not None:
            raise DefinitionError(
                f"timestamp={self.timestamp!r} contradicts ingestion time, where an element's time is that of the epoch that read it",
                fix="leave out timestamp, or use bounded_out_of_orderness",
            )
        if self.idle_after_ms is not None:
            raise DefinitionError(
                "ingestion time is never idle: its watermark follows the clock, with or without rows", fix="leave out idle_after"
            )


def clamp_watermark(watermark: int) -> int:
    """Return a watermark, or a time computed from one, clamped to the range of watermarks."""
    return max(MIN_WATERMARK, min(MAX_WATERMARK, watermark))
