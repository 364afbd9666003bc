"""Windows of local days: aligned windows on the local time of a zone, with their bounds as instants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.durations import format_duration
from tidemark.errors import DefinitionError, DurationError
from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling
from tidemark.semantics.windows.local_time import local_clock
from tidemark.semantics.windows.slices import Slices
from tidemark.semantics.windows.windows import TimeDomain, Window, WindowAssigner

DAY_MS: Final = 86_400_000
_LONGEST_CHANGE_MS: Final = 25 * 3_600_000
"""Clocks are never set back by more, so that no day is longer by more."""


@dataclass(frozen=True)
class LocalWindows:
    """Tumbling, sliding or cumulative windows of whole days of a zone, which is fixed or comes with each element.

    ``windows`` are on the zone's local time: their sizes, slides, steps and offset are times on its clocks. A bound is the first instant
    at which the clocks show that local time or a later one (``local_time``), so that a day has 23 to 25 hours where clocks change. Windows
    with the same bounds are one: a step that is skipped has no window of its own.

    Args:
        windows: on local time.
        zone: the name of a zone in the IANA database.
        zone_by: the SQL expression that gives the name, instead of ``zone``.

    Raises:
        DurationError: the windows are not of whole days.
        DefinitionError: not exactly one of ``zone`` and ``zone_by``, or windows of processing time.

    >>> LocalWindows(Tumbling(DAY_MS), "Asia/Tokyo").describe()
    "tumbling('1d', zone='Asia/Tokyo')"
    """

    windows: Tumbling | Sliding | Cumulative
    zone: str | None = None
    zone_by: str | None = None

    def __post_init__(self) -> None:
        if (self.zone is None) == (self.zone_by is None):
            raise DefinitionError(
                f"windows of local days are given {'no zone' if self.zone is None else 'both zone and zone_by'}",
                fix="give one of them: zone='Asia/Tokyo', or zone_by='city_zone' for a column",
            )
        if self.windows.domain != "event":
            raise DefinitionError(
                "windows of processing time take no zone",
                fix="leave out time='processing'; with watermarks=tm.ingestion_time() event time is that of the epoch that read an element",
            )
        for name, value in _days(self.windows).items():
            if value % DAY_MS:
                raise DurationError(
                    f"{name}={format_duration(value)!r} with a zone is not a whole number of days",
                    fix=f"give {name}='1 day' or '7 days'; for windows of hours leave the zone out",
                )

    @property
    def domain(self) -> TimeDomain:
        """Event time."""
        return "event"

    @property
    def merging(self) -> bool:
        """They never merge."""
        return False

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        """Return the windows of an element, where all elements have one zone.

        Raises:
            DefinitionError: each element has its own zone, or there is no such zone.
        """
        return self.assign_in(self.zone, timestamp)

    def assign_in(self, zone: str | None, timestamp: int) -> tuple[Window, ...]:
        """Return the windows of an element in a zone, in order.

        Raises:
            DefinitionError: there is no such zone.
        """
        if zone is None:
            raise DefinitionError(
                f"an element has no zone: {self.zone_by} is null", fix="filter such elements before, or give them a zone: coalesce(...)"
            )
        clock = local_clock(zone)
        local = self.windows.assign(clock.reading(timestamp))
        return tuple(dict.fromkeys(Window(clock.first_instant(each.start), clock.first_instant(each.end)) for each in local))

    def open_from(self, timestamp: int) -> int:
        """Return the least start of windows that have not ended by an instant; where each element has its own zone, a time before it."""
        if self.zone is None:
            return timestamp - max(_days(self.windows).values()) - _LONGEST_CHANGE_MS
        return min((window.start for window in self.assign(timestamp)), default=timestamp)

    def starts_between(self, first: int, last: int) -> int:
        """Return at how many instants after one and before another windows start.

        Raises:
            DefinitionError: each element has its own zone, or there is no such zone.

        >>> berlin = LocalWindows(Tumbling(DAY_MS), "Europe/Berlin")
        >>> saturday = 1_679_698_800_000  # 2023-03-25 00:00; the day after it has 23 hours
        >>> berlin.starts_between(saturday, saturday + 47 * 3_600_000)
        1
        """
        if self.zone is None:
            raise DefinitionError("windows with a zone of each element have no common starts", fix="give a fixed zone")
        clock, slices = local_clock(self.zone), Slices.of(self.windows)
        after, to = clock.reading(first), clock.reading(last - 1)
        following = after + slices.starts - (after - slices.offset) % slices.starts
        # A day that the zone skipped starts when the next one does.
        return len({clock.first_instant(local) for local in range(following, to + 1, slices.starts)})

    @property
    def distance_ms(self) -> int:
        """The time from one start to the next on the zone's clocks, in milliseconds."""
        return Slices.of(self.windows).starts

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        zone = f"zone={self.zone!r}" if self.zone is not None else f"zone_by={self.zone_by!r}"
        return f"{self.windows.describe().removesuffix(')')}, {zone})"


def windows_of_element(assigner: WindowAssigner, timestamp: int, gap_ms: int | None, zone: str | None) -> tuple[Window, ...]:
    """Return the windows of an element: with ``zone`` those of a zone of its own, with ``gap_ms`` of a gap of its own."""
    if isinstance(assigner, LocalWindows) and assigner.zone_by is not None:
        return assigner.assign_in(zone, timestamp)
    return assigner.assign(timestamp, gap_ms)


def _days(windows: Tumbling | Sliding | Cumulative) -> dict[str, int]:
    """Return the lengths that are whole days, by name."""
    match windows:
        case Tumbling():
            return {"size": windows.size_ms}
        case Sliding():
            return {"size": windows.size_ms, "slide": windows.slide_ms}
        case Cumulative():
            return {"max_size": windows.max_size_ms}
