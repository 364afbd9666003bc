"""The elements of the pages on windows, and what ``tidemark.semantics`` makes of them, window kind by window kind."""
# ruff: noqa: INP001 - beside a script, not a package

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_results import Element, Fold
from tidemark.semantics.triggers.builtin_triggers import CountTrigger
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.watermarks.watermark_strategy import WatermarkStrategy
from tidemark.semantics.watermarks.watermarks import BoundedOutOfOrderness
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window, WindowAssigner

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE

Fare = tuple[str, str, float]
"""Zone, time of day and dollars."""

FARES: Final[tuple[tuple[Fare, ...], ...]] = (
    (("JFK", "09:02", 12.0), ("JFK", "09:11", 20.0), ("Midtown", "09:05", 8.0)),
    (("JFK", "09:24", 15.0), ("Midtown", "09:17", 9.0)),
    (("JFK", "09:41", 30.0), ("JFK", "09:14", 7.0)),
    (("JFK", "10:04", 18.0), ("JFK", "09:03", 5.0)),
)
"""Epoch by epoch, for all kinds of windows but sessions."""

RIDES: Final[tuple[tuple[Fare, ...], ...]] = (
    (("JFK", "09:02", 12.0), ("JFK", "09:09", 20.0), ("Midtown", "09:05", 8.0)),
    (("JFK", "09:21", 15.0), ("Midtown", "09:14", 9.0)),
    (("JFK", "09:39", 30.0),),
    (("JFK", "09:58", 18.0), ("JFK", "09:14", 7.0)),
    (("Midtown", "09:04", 5.0),),
)
"""For sessions: the fourth epoch brings a ride that joins two."""

GENERATOR: Final = BoundedOutOfOrderness(5 * MINUTE)


class Total(NamedTuple):
    """Of the elements of a pane: how many, their dollars, the least and the greatest time."""

    rides: int
    dollars: float
    first: int
    last: int


NOTHING: Final = Total(0, 0.0, 2**62, 0)


@dataclass(frozen=True)
class Scene:
    """One picture: windows over elements.

    Args:
        name: of the picture and of the page.
        title: in words.
        assigner: the windows.
        fares: the elements, epoch by epoch.
        lateness_ms: allowed.
        trigger: the windows', where it is not the default.
    """

    name: str
    title: str
    assigner: WindowAssigner
    fares: tuple[tuple[Fare, ...], ...] = FARES
    lateness_ms: int = 0
    trigger: Trigger | None = None

    def results(self) -> tuple[EpochResult, ...]:
        """Return what the reference says of each epoch."""
        count = Fold(create=lambda: NOTHING, add=_add, result=lambda total: total)
        strategy = WatermarkStrategy("pickup_at", GENERATOR, max_future_skew_ms=None)
        job = ReferenceJob(
            {"source": strategy}, self.assigner, count, self.lateness_ms, trigger=self.trigger
        )  # fmt: skip
        return run_reference(job, [Epoch(tuple(map(_element, epoch, range(len(epoch))))) for epoch in self.fares])


def panes_of(results: tuple[EpochResult, ...]) -> list[Pane]:
    """Return all panes, in order of epochs."""
    return [pane for result in results for pane in result.panes]


def total_of(result: object) -> Total:
    """Return a result of the reference as what the fold of a scene makes."""
    return cast("Total", result)


def extent(window: Window, total: object) -> tuple[int, int]:
    """Return where to draw a pane: its window, or its elements where that has no bounds."""
    if window != GLOBAL_WINDOW:
        return window.start, window.end
    return total_of(total).first, total_of(total).last


def milliseconds(clock: str) -> int:
    """Return a time of day in milliseconds.

    >>> milliseconds("09:30") // MINUTE
    570
    """
    hours, minutes = clock.split(":")
    return int(hours) * HOUR + int(minutes) * MINUTE


def time_of_day(time: int) -> str:
    """Return a time of day as text.

    >>> time_of_day(milliseconds("09:30"))
    '09:30'
    """
    return f"{time // HOUR:02d}:{time // MINUTE % 60:02d}"


def _element(fare: Fare, place: int) -> Element:
    zone, clock, dollars = fare
    return Element((zone,), milliseconds(clock), dollars, position=(place,))


def _add(total: Total, value: object, time: int, _: object) -> Total:
    return Total(total.rides + 1, total.dollars + cast("float", value), min(total.first, time), max(total.last, time))


SCENES: Final = (
    Scene("tumbling", "Tumbling windows of 15 minutes", Tumbling(15 * MINUTE), lateness_ms=15 * MINUTE),
    Scene("sliding", "Sliding windows of 30 minutes every 15", Sliding(30 * MINUTE, 15 * MINUTE), lateness_ms=15 * MINUTE),
    Scene("cumulative", "Cumulative windows up to an hour in steps of 15 minutes", Cumulative(HOUR, 15 * MINUTE), lateness_ms=15 * MINUTE),
    Scene("session", "Sessions with a gap of 10 minutes", Session(10 * MINUTE), RIDES, lateness_ms=20 * MINUTE),
    Scene("count", "Count windows of 3 elements", CountWindows(3)),
    Scene("global", "The global window with a trigger that counts to 2", GlobalWindows(), trigger=CountTrigger(2)),
)
