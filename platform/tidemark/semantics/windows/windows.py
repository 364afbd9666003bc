"""Windows and the assigners that put elements into them. All times are integer milliseconds, windows are ``[start, end)``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable


@dataclass(frozen=True, order=True)
class Window:
    """A window of event time."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The greatest event time that belongs to the window, ``end - 1``; also the time of its results."""
        return self.end - 1


TimeDomain = Literal["event", "processing"]
"""The time domain of windows. In processing time an element's time is that of the epoch that read it, PT(n), and the
watermark of the operator is PT(n) - 1, as for ingestion time: the windows of the epoch's own elements have never expired."""

GLOBAL_WINDOW: Final = Window(-(2**63), 2**63)
"""All of event time: what count and global windows assign. It is never late and due only at the end of input; its bounds are
shown as null."""


class WindowAssigner(Protocol):
    """Assigns an element's event time to windows.

    Sliding and cumulative assigners return several windows; count and global ones return ``GLOBAL_WINDOW``, which counts or a
    trigger fire; sessions also are a ``MergingWindowAssigner``.
    """

    @property
    def domain(self) -> TimeDomain:
        """The time that elements are assigned by."""
        ...

    @property
    def merging(self) -> bool:
        """Whether windows of a key may merge (sessions)."""
        ...

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:
        """Return the windows of an element, in order of their start.

        Args:
            timestamp: of the element, in the assigner's domain.
            gap_ms: the element's own gap, for sessions whose gap comes from a column.
        """
        ...

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        ...


@dataclass(frozen=True)
class MergedWindow:
    """A window and the windows it was merged from, in order of their start; only itself if nothing merged."""

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
