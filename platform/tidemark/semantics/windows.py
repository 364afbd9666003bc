"""Windows and the assigners that put elements into them. All times are integer milliseconds, windows are ``[start, end)``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from tidemark.errors import DurationError


@dataclass(frozen=True, order=True)
class Window:
    """A window of event time."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The greatest event time that belongs to the window, ``end - 1``; also the time of its results."""
        return self.end - 1


GLOBAL_WINDOW: Final = Window(-(2**63), 2**63)
"""All of event time: what count and global windows assign. It is never late and due only at the end of input; its bounds are
shown as null."""


class WindowAssigner(Protocol):
    """Puts an element's event time into windows.

    Sliding and cumulative assigners return several windows; count and global ones return ``GLOBAL_WINDOW`` and leave it to a trigger when
    it fires; sessions also are a ``MergingWindowAssigner``.
    """

    @property
    def merging(self) -> bool:
        """Whether windows of a key may merge (sessions)."""
        ...

    def assign(self, timestamp: int) -> tuple[Window, ...]:
        """Return the windows of an element, in order of their start."""
        ...

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        ...


@dataclass(frozen=True)
class MergedWindow:
    """A window and the windows it was made of, in order of their start; only itself where nothing merged."""

    window: Window
    parts: tuple[Window, ...]


@runtime_checkable
class MergingWindowAssigner(WindowAssigner, Protocol):
    """An assigner whose windows of one key grow together; ``merging`` is true."""

    def merge(self, windows: Iterable[Window]) -> tuple[MergedWindow, ...]:
        """Return the windows of one key merged as far as they go, in order of their start; every window is part of exactly one."""
        ...


def merge_touching(windows: Iterable[Window]) -> tuple[MergedWindow, ...]:
    """Merge windows that overlap or touch, as sessions do: ``[a, b)`` and ``[b, c)`` become ``[a, c)``.

    >>> [merged.window for merged in merge_touching([Window(20, 30), Window(0, 10), Window(10, 15)])]
    [Window(start=0, end=15), Window(start=20, end=30)]
    """
    merged: list[MergedWindow] = []
    for window in sorted(set(windows)):
        if merged and window.start <= merged[-1].window.end:
            last = merged.pop()
            grown = Window(last.window.start, max(last.window.end, window.end))
            merged.append(MergedWindow(grown, (*last.parts, window)))
        else:
            merged.append(MergedWindow(window, (window,)))
    return tuple(merged)


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size, side by side, aligned to 1970-01-01 UTC plus the offset.

    Raises:
        DurationError: the size is not positive, or the offset not less than it, either way.
    """

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if type(self.size_ms) is not int or self.size_ms <= 0:
            raise DurationError(f"size={self.size_ms!r} must be a positive number of milliseconds", fix="give a size such as '1 hour'")
        if type(self.offset_ms) is not int or abs(self.offset_ms) >= self.size_ms:
            raise DurationError(
                f"offset={self.offset_ms!r} ms must be less than the size, {self.size_ms} ms, either way",
                fix="give the offset modulo the size, such as '-8 hours' for days in UTC+8",
            )

    @property
    def merging(self) -> bool:
        """Tumbling windows never merge."""
        return False

    def assign(self, timestamp: int) -> tuple[Window, ...]:
        """Return the one window of an element."""
        start = timestamp - (timestamp - self.offset_ms) % self.size_ms
        return (Window(start, start + self.size_ms),)

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return f"tumbling({self.size_ms} ms, offset {self.offset_ms} ms)"
