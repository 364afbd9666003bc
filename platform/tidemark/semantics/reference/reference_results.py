"""The reference's results of a pane: a fold, a process function over all elements, or a function over the fold's result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidemark.semantics.process.window_function_calls import WindowContext, WindowFunction
from tidemark.semantics.reference.reference_contents import OperatorTimes, Taken
from tidemark.semantics.triggers.panes import PaneTiming
from tidemark.semantics.watermarks.lateness import is_expired
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

Accumulator = TypeVar("Accumulator")

Key = tuple[object, ...]
"""Values of the key columns; they must be hashable. A null key, ``(None,)``, is a key like any other; ``()`` is ``window_all``."""

Position = tuple[int | str, ...]
"""The position of an element in its source (partition and offset; path and row). Positions of one job must be comparable."""


@dataclass(frozen=True)
class Element:
    """One row as a source read it.

    ``timestamp`` is its event time in milliseconds, None if the record has none (or by ingestion time). ``value`` is passed to functions
    and triggers: its row, as a dict, for those that read it. ``marks`` are its values of the watermark generator's metrics, whose maximum
    counts, by the metric's name: ``{"marker": 5}`` for punctuated watermarks. ``gap_ms`` is the element's gap, for sessions that take it
    from a column, and ``zone`` its zone, for windows of local days that take it from one.
    """

    key: Key
    timestamp: int | None
    value: object = None
    source: str = "source"
    split: str = ""
    position: Position = ()
    marks: Mapping[str, int] = field(default_factory=dict)
    gap_ms: int | None = None
    zone: str | None = None


@dataclass(frozen=True)
class Fold(Generic[Accumulator]):
    """An aggregate in plain Python: ``add(accumulator, value, timestamp, position)`` per element, in the order they were processed."""

    create: Callable[[], Accumulator]
    add: Callable[[Accumulator, object, int, Position], Accumulator]
    result: Callable[[Accumulator], object]

    def over(self, contents: Iterable[tuple[Element, int]]) -> object:
        """Return the result over elements with their event times."""
        accumulator = self.create()
        for element, timestamp in contents:
            accumulator = self.add(accumulator, element.value, timestamp, element.position)
        return self.result(accumulator)


class Results(Generic[Accumulator]):
    """Makes results, and keeps a window function's state.

    With a fold alone a result is the fold's. With a function alone it is the tuple of its rows for the elements' values. With
    both, that of its rows for one row: the fold's result, or ``{"result": ...}`` around it if that is no row.
    """

    def __init__(
        self, fold: Fold[Accumulator] | None, function: WindowFunction | None, *, key_names: tuple[str, ...], merging: bool
    ) -> None:
        self._fold = fold
        self._function = function
        self._key_names = key_names
        self._merging = merging
        self._of_key: dict[Key, dict[str, object]] = {}
        self._of_window: dict[tuple[Key, Window], dict[str, object]] = {}

    def resume(self, kept: Results[Accumulator]) -> None:
        """Resume from the state that another function kept."""
        self._of_key, self._of_window = kept._of_key, kept._of_window

    def of_pane(
        self, key: Key, window: Window, elements: list[Taken[Element]], *, times: OperatorTimes, timing: PaneTiming, index: int
    ) -> object:
        """Return the result of a pane over the elements it shows."""
        if self._function is None:
            return self.folded(elements)
        context = WindowContext(
            key=dict(zip(self._key_names, key, strict=True)) if self._key_names else {},
            window=None if window == GLOBAL_WINDOW else window,
            watermark=times.watermark,
            processing_time=times.processing_time,
            timing=timing,
            index=index,
            key_state=self._of_key.setdefault(key, {}),
            of_window=None if self._merging else self._of_window.setdefault((key, window), {}),
        )
        values = [taken.element.value for taken in elements] if self._fold is None else [self.folded(elements)]
        rows = [value if isinstance(value, Mapping) else {"result": value} for value in values]
        return tuple(self._function(rows, context))

    def folded(self, elements: list[Taken[Element]]) -> object:
        """Return the fold over elements, None if there is no fold."""
        return None if self._fold is None else self._fold.over((taken.element, taken.timestamp) for taken in elements)

    def forget_expired(self, allowed_lateness_ms: int, watermark: int) -> None:
        """Drop a function's state of expired windows."""
        over = [slot for slot in self._of_window if is_expired(slot[1], allowed_lateness_ms, watermark)]
        for slot in over:
            del self._of_window[slot]
