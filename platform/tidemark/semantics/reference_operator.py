"""A keyed window operator that takes one element at a time: the contract written out, for tests to hold the engine against.

Nothing here is fast. A window keeps its elements and folds them anew for each pane, so that no incremental shortcut can be wrong,
and so that merging, evicting and full-window functions are the same few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidemark.semantics.lateness import is_expired, is_late
from tidemark.semantics.panes import Pane, due_timing, next_index
from tidemark.semantics.watermark_strategy import MIN_WATERMARK
from tidemark.semantics.windows import MergingWindowAssigner, Window, WindowAssigner

Accumulator = TypeVar("Accumulator")

Key = tuple[object, ...]
"""Values of the key columns; they must be hashable. A null key, ``(None,)``, is a key like any other; ``()`` is ``window_all``."""

Position = tuple[int | str, ...]
"""Where an element stands in its source (partition and offset; path and row). Positions of one job must be comparable."""


@dataclass(frozen=True)
class Element:
    """One row as a source read it.

    ``timestamp`` is its event time in milliseconds, none where the record has none (or by ingestion time). ``marks`` are what the watermark
    generator's metrics are the greatest of, by the metric's name: ``{"marker": 5}`` for punctuated watermarks.
    """

    key: Key
    timestamp: int | None
    value: object = None
    source: str = "source"
    split: str = ""
    position: Position = ()
    marks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Fold(Generic[Accumulator]):
    """An aggregate in plain Python: ``add(accumulator, value, timestamp, position)`` per element, in the order they were taken."""

    create: Callable[[], Accumulator]
    add: Callable[[Accumulator, object, int, Position], Accumulator]
    result: Callable[[Accumulator], object]

    def over(self, contents: Iterable[tuple[Element, int]]) -> object:
        """Return the result over elements with their event times."""
        accumulator = self.create()
        for element, timestamp in contents:
            accumulator = self.add(accumulator, element.value, timestamp, element.position)
        return self.result(accumulator)


@dataclass(frozen=True)
class OpenWindow:
    """State that is left after an epoch: a window that may still fire, how many elements it took, panes out, and the result so far."""

    key: Key
    window: Window
    elements: int
    panes: int
    result: object


@dataclass
class _Contents:
    """What is kept of one key and window; ``replaced`` are starts of absorbed sessions whose results are out."""

    elements: list[tuple[Element, int]] = field(default_factory=list)
    panes: int = 0
    touched: bool = False
    replaced: tuple[int, ...] = ()


class WindowOperator(Generic[Accumulator]):
    """Keyed windows with event-time firing and allowed lateness.

    Call ``process_element`` for each element of an epoch, in the contract's order, then ``advance_watermark`` once. Elements are
    judged against the watermark of the last ``advance_watermark``. Where a trigger other than the event-time rule is to decide, it
    is asked in ``process_element`` (on element) and in ``advance_watermark`` (on time, on merge in ``_absorb``).

    Args:
        assigner: puts event times into windows, and merges them if it is a ``MergingWindowAssigner``.
        fold: the aggregate.
        allowed_lateness_ms: for how long after its end a window still takes elements.
    """

    def __init__(self, assigner: WindowAssigner, fold: Fold[Accumulator], *, allowed_lateness_ms: int = 0) -> None:
        self._assigner = assigner
        self._fold = fold
        self._lateness = allowed_lateness_ms
        self._windows: dict[tuple[Key, Window], _Contents] = {}
        self.watermark = MIN_WATERMARK

    def process_element(self, element: Element, timestamp: int) -> bool:
        """Put an element into each of its windows that is not over; return whether any took it."""
        taken = False
        for assigned in self._assigner.assign(timestamp):
            window, absorbed = self._merge(element.key, assigned)
            if is_late(window, self._lateness, self.watermark):
                continue
            contents = self._absorb(element.key, window, absorbed)
            contents.elements.append((element, timestamp))
            contents.touched = True
            taken = True
        return taken

    def advance_watermark(self, watermark: int) -> tuple[Pane, ...]:
        """End an epoch: fire what is due, forget what is over. Return the panes, earliest window first."""
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        panes = []
        for (key, window), contents in self._by_end():
            timing = due_timing(window, before=before, after=self.watermark, touched=contents.touched)
            if timing is not None:
                result = self._fold.over(contents.elements)
                panes.append(Pane(key, window, timing, next_index(contents.panes), result, contents.replaced))
                contents.panes += 1
                contents.replaced = ()
            contents.touched = False
            if is_expired(window, self._lateness, self.watermark):
                del self._windows[key, window]
        return tuple(panes)

    def open_windows(self) -> tuple[OpenWindow, ...]:
        """Return the operator's state, earliest window first."""
        return tuple(
            OpenWindow(key, window, len(contents.elements), contents.panes, self._fold.over(contents.elements))
            for (key, window), contents in self._by_end()
        )

    def _by_end(self) -> list[tuple[tuple[Key, Window], _Contents]]:
        return sorted(self._windows.items(), key=lambda item: (item[0][1].end, item[0][1].start))

    def _merge(self, key: Key, window: Window) -> tuple[Window, tuple[Window, ...]]:
        """Return the window as it is after merging, and the key's open windows that become part of it."""
        if not isinstance(self._assigner, MergingWindowAssigner):
            return window, ()
        mine = [other for owner, other in self._windows if owner == key]
        merged = next(merged for merged in self._assigner.merge([*mine, window]) if window in merged.parts)
        return merged.window, tuple(part for part in merged.parts if part in mine)

    def _absorb(self, key: Key, window: Window, absorbed: tuple[Window, ...]) -> _Contents:
        """Return the contents of a window, made of those it absorbs; a window that only absorbs itself stays as it is."""
        if absorbed in {(), (window,)}:
            return self._windows.setdefault((key, window), _Contents())
        parts = [(part, self._windows.pop((key, part))) for part in absorbed]
        contents = _Contents(
            elements=[entry for _, part in parts for entry in part.elements],
            panes=next_index(*(part.panes for _, part in parts)),
            touched=True,
            replaced=tuple(sorted({start for old, part in parts for start in (*part.replaced, *([old.start] if part.panes else []))})),
        )
        self._windows[key, window] = contents
        return contents
