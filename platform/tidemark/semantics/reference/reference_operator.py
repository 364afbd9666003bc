"""A keyed window operator that processes one element at a time: a reference of the contract, with which tests compare the engine.

Nothing here is fast. A window keeps its elements and folds them again for each pane, so that no incremental shortcut can be wrong,
and so that merging, evicting and full-window functions are the same few lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol

from tidemark.errors import DefinitionError
from tidemark.semantics.process.evictors import Evictor, TimedRow
from tidemark.semantics.reference.reference_contents import Contents, ContentsContext, OperatorTimes, Taken, ask_at_epoch_end
from tidemark.semantics.reference.reference_results import Accumulator, Element, Fold, Key, Position, Results
from tidemark.semantics.triggers.builtin_triggers import default_trigger
from tidemark.semantics.triggers.panes import Pane, ReplacedSession, in_order, next_index, pane_timing
from tidemark.semantics.triggers.triggers import Trigger, TriggerResult
from tidemark.semantics.watermarks.lateness import is_expired, is_late
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.local_windows import windows_of_element
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, MergingWindowAssigner, Window, WindowAssigner

__all__ = ["Accumulator", "Element", "Fold", "Key", "OpenWindow", "Operator", "Position", "WindowOperator"]


@dataclass(frozen=True)
class OpenWindow:
    """State after an epoch: a window that may still fire, its number of elements, its emitted panes, and the result so far."""

    key: Key
    window: Window
    elements: int
    panes: int
    result: object


class Operator(Protocol):
    """Processes elements and emits panes, epoch by epoch: ``begin_epoch``, ``process_element`` for each, ``advance_watermark``."""

    @property
    def watermark(self) -> int:
        """The operator's watermark, in the domain of its windows."""
        ...

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        ...

    def process_element(self, element: Element, timestamp: int) -> bool:
        """Process an element with its event time, in the contract's order; return whether any window accepted it."""
        ...

    def advance_watermark(self, watermark: int) -> tuple[Pane, ...]:
        """End an epoch with the event-time watermark of the inputs. Return the panes."""
        ...

    def open_windows(self) -> tuple[OpenWindow, ...]:
        """Return the operator's state, earliest window first."""
        ...


class WindowOperator(Generic[Accumulator]):
    """Keyed windows of time, and global ones, with a trigger, allowed lateness, and optionally an evictor.

    Elements are compared with the watermark of the last ``advance_watermark``; a trigger's result takes effect in the next.

    Args:
        assigner: puts times into windows, and merges them if it is a ``MergingWindowAssigner``.
        results: makes a pane's result of its elements.
        allowed_lateness_ms: for how long after its end a window still accepts elements.
        trigger: decides when windows fire; None for the assigner's default.
        evictor: drops elements of windows that fire.
    """

    def __init__(
        self,
        assigner: WindowAssigner,
        results: Results[Accumulator],
        *,
        allowed_lateness_ms: int = 0,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
    ) -> None:
        self._assigner = assigner
        self._merger = assigner if isinstance(assigner, MergingWindowAssigner) else None
        self._results = results
        self._lateness = allowed_lateness_ms
        self._trigger = default_trigger(assigner) if trigger is None else trigger
        self._evictor = evictor
        self._windows: dict[tuple[Key, Window], Contents[Element]] = {}
        self._times = OperatorTimes(assigner.domain)
        self._taken = 0
        if assigner.merging and not self._trigger.can_merge:
            raise DefinitionError(f"{self._trigger.describe()} cannot merge what it keeps of sessions", fix="use another trigger")

    def resume(self, kept: WindowOperator[Accumulator]) -> None:
        """Resume from what an operator kept that may have been declared otherwise."""
        self._windows, self._times, self._taken = kept._windows, kept._times, kept._taken
        self._results.resume(kept._results)

    @property
    def watermark(self) -> int:
        """The operator's watermark, in the domain of its windows."""
        return self._times.watermark

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        self._times.processing_time = processing_time

    def process_element(self, element: Element, timestamp: int) -> bool:
        """Add an element to each of its windows that has not expired; return whether any accepted it."""
        self._taken += 1
        time = timestamp if self._times.domain == "event" else self._times.processing_time
        taken = False
        for assigned in windows_of_element(self._assigner, time, element.gap_ms, element.zone):
            window, absorbed = self._merge(element.key, assigned)
            if is_late(window, self._lateness, self.watermark):
                continue
            contents = self._absorb(element.key, window, absorbed)
            contents.elements.append(Taken(element, time, self._taken))
            contents.touched = True
            contents.asked |= self._trigger.on_element(element.value, time, window, ContentsContext(contents, self._times))
            taken = True
        return taken

    def advance_watermark(self, watermark: int) -> tuple[Pane, ...]:
        """End an epoch: fire windows, drop expired ones. Return the panes, earliest window first."""
        before = self.watermark
        if self._times.domain == "processing" and watermark != MAX_WATERMARK:
            watermark = self._times.processing_time - 1
        self._times.watermark = max(before, watermark)
        panes = []
        for (key, window), contents in self._by_end():
            answer = ask_at_epoch_end(self._trigger, window, contents, self._times)
            if TriggerResult.FIRE in answer and contents.elements:
                panes.append(self._pane(key, window, contents, before))
            if TriggerResult.PURGE in answer:
                contents.elements = []
            contents.asked, contents.touched = TriggerResult.CONTINUE, False
            if is_expired(window, self._lateness, self.watermark):
                del self._windows[key, window]
        self._results.forget_expired(self._lateness, self.watermark)
        return tuple(panes)

    def open_windows(self) -> tuple[OpenWindow, ...]:
        """Return the operator's state, earliest window first."""
        return tuple(
            OpenWindow(key, window, len(contents.elements), contents.panes, self._results.folded(contents.elements))
            for (key, window), contents in self._by_end()
        )

    def _by_end(self) -> list[tuple[tuple[Key, Window], Contents[Element]]]:
        return sorted(self._windows.items(), key=lambda item: (item[0][1].end, item[0][1].start))

    def _merge(self, key: Key, window: Window) -> tuple[Window, tuple[Window, ...]]:
        """Return the window after merging, and the key's open windows that become part of it."""
        if self._merger is None:
            return window, ()
        mine = [other for owner, other in self._windows if owner == key]
        merged = next(merged for merged in self._merger.merge([*mine, window]) if window in merged.parts)
        return merged.window, tuple(part for part in merged.parts if part in mine)

    def _absorb(self, key: Key, window: Window, absorbed: tuple[Window, ...]) -> Contents[Element]:
        """Return the contents of a window, made of those it absorbs; a window that only absorbs itself stays as it is."""
        if absorbed in {(), (window,)}:
            return self._windows.setdefault((key, window), Contents())
        parts = [(part, self._windows.pop((key, part))) for part in absorbed]
        contents = Contents[Element](
            elements=sorted((taken for _, part in parts for taken in part.elements), key=lambda taken: taken.number),
            panes=next_index(*(part.panes for _, part in parts)),
            replaced=in_order(
                session
                for old, part in parts
                for session in (*part.replaced, *([ReplacedSession(old.start, old.end)] if part.result_is_out else []))
            ),
        )
        for _, part in parts:
            contents.asked |= part.asked
        self._trigger.on_merge(window, ContentsContext(contents, self._times, [part for _, part in parts]))
        self._windows[key, window] = contents
        return contents

    def _pane(self, key: Key, window: Window, contents: Contents[Element], before: int) -> Pane:
        """Make a pane, and drop evicted elements."""
        held, evicted = contents.elements, frozenset[int]()
        if self._evictor is not None:
            evicted = self._evictor.evicted([TimedRow(taken.timestamp, taken.element.value) for taken in held])
        stay = [taken for place, taken in enumerate(held) if place not in evicted]
        shown = held if self._evictor is not None and self._evictor.after else stay
        timing, index = pane_timing(window, before=before, after=self.watermark), contents.panes
        result = self._results.of_pane(key, window, shown, times=self._times, timing=timing, index=index)
        time = max(taken.timestamp for taken in held) if window == GLOBAL_WINDOW else None
        pane = Pane(key, window, timing, index, result, contents.replaced, time)
        contents.elements = stay
        contents.panes += 1
        contents.replaced = ()
        return pane
