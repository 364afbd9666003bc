"""Evictors: which elements are removed from a window when it fires, before or after the function. Removal is permanent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidemark.durations import format_duration
from tidemark.errors import DefinitionError, DurationError
from tidemark.semantics.triggers.element_triggers import DeltaFunction, delta_name, measured_delta


class TimedRow(NamedTuple):
    """An element of a window: its time in the domain of the windows, milliseconds, and its row."""

    timestamp: int
    row: object


class Evictor(Protocol):
    """Chooses elements of a window that fires. Immutable; one object serves all keys and windows.

    It is called once for each pane: before the window function, which then does not see the evicted elements, or after it
    (``after``).
    """

    @property
    def after(self) -> bool:
        """Whether elements are evicted after the function has seen them."""
        ...

    def evicted(self, elements: Sequence[TimedRow]) -> frozenset[int]:
        """Return the places of the elements to evict.

        Args:
            elements: all of the window, at least one, in the order in which they arrived.
        """
        ...

    def describe(self) -> str:
        """Return the evictor as a user would write it."""
        ...


@dataclass(frozen=True)
class CountEvictor:
    """Keeps the last ``count`` elements that arrived.

    Raises:
        DefinitionError: the count is not a positive whole number.

    >>> sorted(CountEvictor(2).evicted([TimedRow(5, {}), TimedRow(3, {}), TimedRow(4, {})]))
    [0]
    """

    count: int
    after: bool = False

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count <= 0:
            raise DefinitionError(f"count={self.count!r} is not a positive number of elements", fix="give a whole number, such as 100")

    def evicted(self, elements: Sequence[TimedRow]) -> frozenset[int]:
        """Return the places of all but the last."""
        return frozenset(range(len(elements) - self.count))

    def describe(self) -> str:
        """Return the evictor as a user would write it."""
        return f"count_evictor({self.count}{', after' if self.after else ''})"


@dataclass(frozen=True)
class TimeEvictor:
    """Keeps the elements of the last ``size_ms`` before the greatest time among them: those with ``t > greatest - size``.

    Raises:
        DurationError: the size is not positive.

    >>> sorted(TimeEvictor(2).evicted([TimedRow(5, {}), TimedRow(3, {}), TimedRow(4, {})]))
    [1]
    """

    size_ms: int
    after: bool = False

    def __post_init__(self) -> None:
        if type(self.size_ms) is not int or self.size_ms <= 0:
            raise DurationError(f"size={self.size_ms!r} must be a positive number of milliseconds", fix="give such as '1 minute'")

    def evicted(self, elements: Sequence[TimedRow]) -> frozenset[int]:
        """Return the places of older elements."""
        last_gone = max(element.timestamp for element in elements) - self.size_ms
        return frozenset(place for place, element in enumerate(elements) if element.timestamp <= last_gone)

    def describe(self) -> str:
        """Return the evictor as a user would write it."""
        return f"time_evictor({format_duration(self.size_ms)!r}{', after' if self.after else ''})"


@dataclass(frozen=True)
class DeltaEvictor:
    """Keeps the elements nearer than the threshold to the one that arrived last: those with ``delta(element, last) < threshold``."""

    threshold: float
    delta: DeltaFunction | str
    after: bool = False

    def evicted(self, elements: Sequence[TimedRow]) -> frozenset[int]:
        """Return the places of elements that differ by the threshold or more.

        Raises:
            DefinitionError: the delta is an SQL text.
            UserCodeError: the delta failed.
        """
        last = _row(elements[-1])
        return frozenset(
            place for place, element in enumerate(elements) if measured_delta(self.delta, _row(element), last) >= self.threshold
        )

    def describe(self) -> str:
        """Return the evictor as a user would write it."""
        return f"delta_evictor({self.threshold}, {delta_name(self.delta)}{', after' if self.after else ''})"


def _row(element: TimedRow) -> Mapping[str, object]:
    if isinstance(element.row, Mapping):
        return element.row
    raise DefinitionError(f"a delta evictor takes rows, not {element.row!r}", fix="give elements as dicts")
