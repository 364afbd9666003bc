"""Count windows, one element at a time: groups by number, per key, in the order in which elements are processed."""

from __future__ import annotations

from typing import Generic

from tidemark.semantics.reference.reference_contents import OperatorTimes, Taken
from tidemark.semantics.reference.reference_operator import OpenWindow
from tidemark.semantics.reference.reference_results import Accumulator, Element, Key, Results
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.semantics.windows.windows import GLOBAL_WINDOW


class CountOperator(Generic[Accumulator]):
    """An ``Operator`` of count windows. It keeps all elements of a key, and takes the last of them when a group is full.

    Args:
        assigner: how many elements make a group, and after how many the next one is full.
        results: makes a group's result of its elements.
    """

    def __init__(self, assigner: CountWindows, results: Results[Accumulator]) -> None:
        self._assigner = assigner
        self._results = results
        self._elements: dict[Key, list[Taken[Element]]] = {}
        self._full: list[tuple[Key, int]] = []
        self._times = OperatorTimes(assigner.domain)

    def resume(self, kept: CountOperator[Accumulator]) -> None:
        """Resume from what an operator kept that may have been declared otherwise."""
        self._elements, self._full, self._times = kept._elements, kept._full, kept._times
        self._results.resume(kept._results)

    @property
    def watermark(self) -> int:
        """The operator's watermark."""
        return self._times.watermark

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        self._times.processing_time = processing_time

    def process_element(self, element: Element, timestamp: int) -> bool:
        """Process an element; it is late only after the end of input."""
        if self.watermark == MAX_WATERMARK:
            return False
        elements = self._elements.setdefault(element.key, [])
        elements.append(Taken(element, timestamp, len(elements)))
        if len(elements) % (self._assigner.slide or self._assigner.size) == 0:
            self._full.append((element.key, len(elements)))
        return True

    def advance_watermark(self, watermark: int) -> tuple[Pane, ...]:
        """End an epoch: the groups that became full are panes, those of a key in order. At the end of input everything else is dropped."""
        self._times.watermark = max(self.watermark, watermark)
        panes = []
        for key, end in self._full:
            group = self._elements[key][max(end - self._assigner.size, 0) : end]
            index = end // (self._assigner.slide or self._assigner.size) - 1
            result = self._results.of_pane(key, GLOBAL_WINDOW, group, times=self._times, timing="ON_TIME", index=index)
            panes.append(Pane(key, GLOBAL_WINDOW, "ON_TIME", index, result, time=max(taken.timestamp for taken in group)))
        self._full = []
        if self.watermark == MAX_WATERMARK:
            self._elements = {}
        self._results.forget_expired(0, self.watermark)
        return tuple(panes)

    def open_windows(self) -> tuple[OpenWindow, ...]:
        """Return, for each key, the elements that a later group may have."""
        step = self._assigner.slide or self._assigner.size
        found = []
        for key, elements in self._elements.items():
            next_end = (len(elements) // step + 1) * step
            waiting = elements[max(next_end - self._assigner.size, 0) :]
            found.append(OpenWindow(key, GLOBAL_WINDOW, len(waiting), len(elements) // step, self._results.folded(waiting)))
        return tuple(found)
