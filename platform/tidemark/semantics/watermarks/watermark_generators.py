"""Watermark generators: compute a split's watermark from its statistics.

A generator is stateless: the history that it needs is in ``SplitStats``, and
``tidemark.semantics.watermarks.watermark_progress.advance`` makes sure that a watermark never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tidemark.errors import DefinitionError, DurationError

_MARKER = "marker"


@dataclass(frozen=True)
class SplitStats:
    """The input of a generator when an epoch ends, for one split.

    ``max_event_time`` is the greatest of all epochs so far, ``metrics`` are the generator's own expressions over this epoch's
    well-formed rows (each None if there were no rows), ``processing_time`` is the epoch's, ``previous`` the split's watermark before.
    """

    max_event_time: int | None
    metrics: Mapping[str, int | None]
    processing_time: int
    previous: int


class WatermarkGenerator(Protocol):
    """Computes a split's watermark from its statistics."""

    @property
    def bound_ms(self) -> int:
        """The out-of-orderness it allows for; 0 where that has no meaning."""
        ...

    @property
    def metrics(self) -> Mapping[str, str]:
        """SQL aggregate expressions (integer milliseconds) that it needs per split and epoch, by name."""
        ...

    def watermark(self, stats: SplitStats) -> int | None:
        """Return the split's watermark in milliseconds, None for no change; it never moves back, whatever is returned.

        Called once per split and epoch, also for splits without rows in it. Must depend only on its argument.
        """
        ...


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """Elements come at most ``bound_ms`` behind the latest: the watermark is the greatest event time - bound - 1.

    Raises:
        DurationError: the bound is negative or no whole number.
    """

    bound_ms: int

    def __post_init__(self) -> None:
        if type(self.bound_ms) is not int or self.bound_ms < 0:
            raise DurationError(
                f"bound={self.bound_ms!r} must be a whole number of milliseconds, 0 or more", fix="give a bound such as '5 minutes'"
            )

    @property
    def metrics(self) -> Mapping[str, str]:
        """None: the greatest event time is enough."""
        return {}

    def watermark(self, stats: SplitStats) -> int | None:
        """Return the greatest event time - bound - 1, None before the first element."""
        return None if stats.max_event_time is None else stats.max_event_time - self.bound_ms - 1


@dataclass(frozen=True)
class Ascending:
    """Event times of a split never go back: the watermark is the greatest event time - 1."""

    @property
    def bound_ms(self) -> int:
        """0: nothing is expected out of order."""
        return 0

    @property
    def metrics(self) -> Mapping[str, str]:
        """None: the greatest event time is enough."""
        return {}

    def watermark(self, stats: SplitStats) -> int | None:
        """Return the greatest event time - 1, None before the first element."""
        return None if stats.max_event_time is None else stats.max_event_time - 1


@dataclass(frozen=True)
class Punctuated:
    """Elements carry the watermark: it is the greatest marker seen, unchanged.

    ``marker`` is an SQL expression over an element: TIMESTAMP, DATE or whole milliseconds, null if it has none. Markers are
    trusted: unlike event times, they are not compared with ``max_future_skew``.

    Raises:
        DefinitionError: the marker is empty.
    """

    marker: str

    def __post_init__(self) -> None:
        if type(self.marker) is not str or not self.marker.strip():
            raise DefinitionError(
                f"marker={self.marker!r} is not an SQL expression", fix="name the column or expression that holds the watermark"
            )

    @property
    def bound_ms(self) -> int:
        """0: markers have no bound."""
        return 0

    @property
    def metrics(self) -> Mapping[str, str]:
        """The greatest marker of the epoch, in milliseconds whatever its type.

        ``typeof`` is a constant to the engine, so one branch remains; the way through STRING makes the other one valid for every type.
        """
        marker = f"({self.marker})"
        return {
            _MARKER: (
                f"max(CASE WHEN typeof({marker}) IN ('timestamp', 'timestamp_ntz', 'date') THEN unix_millis(CAST({marker} AS TIMESTAMP))"
                f" ELSE CAST(CAST({marker} AS STRING) AS BIGINT) END)"
            )
        }

    def watermark(self, stats: SplitStats) -> int | None:
        """Return the epoch's greatest marker, None if no element had one."""
        return stats.metrics.get(_MARKER)


@dataclass(frozen=True)
class IngestionTime:
    """Elements are timed by the epoch that reads them: the watermark is its processing time - 1, with or without rows."""

    @property
    def bound_ms(self) -> int:
        """0: the clock of epochs never goes back."""
        return 0

    @property
    def metrics(self) -> Mapping[str, str]:
        """None: the clock is enough."""
        return {}

    def watermark(self, stats: SplitStats) -> int | None:
        """Return the epoch's processing time - 1."""
        return stats.processing_time - 1
