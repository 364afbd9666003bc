"""One key in one epoch, for windows of time and global ones: processes elements, calls the trigger, emits panes, keeps state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Integral
from typing import NamedTuple, cast

from tidemark.errors import CorruptStoreError, UserCodeError
from tidemark.semantics.process.evictors import Evictor, TimedRow
from tidemark.semantics.process.window_function_calls import FunctionState, WindowFunction, call_function
from tidemark.semantics.triggers.fired_panes import Deadlines, FiredPane, Firing
from tidemark.semantics.triggers.panes import ReplacedSession, in_order, next_index, pane_timing
from tidemark.semantics.triggers.trigger_calls import DueTimers, StoredContext
from tidemark.semantics.triggers.triggers import Trigger, TriggerResult
from tidemark.semantics.triggers.window_state import HeldElement, KeyState, WindowState, order_of, write_state
from tidemark.semantics.user_lines import defined_at
from tidemark.semantics.watermarks.lateness import cleanup_time, due_time, is_expired, is_late
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.element_ranges import add_tombstone, all_of, united
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, MergingWindowAssigner, Window, WindowAssigner


class Arrival(NamedTuple):
    """A new element: its event time, its row, and its own gap where sessions take it from a column. Milliseconds."""

    timestamp: int
    row: object
    gap_ms: int | None = None


class TimeKeyEpoch:
    """A ``KeyEpoch`` of all windows but count windows; ``window_process`` says how it is used."""

    def __init__(
        self,
        assigner: WindowAssigner,
        trigger: Trigger,
        *,
        evictor: Evictor | None,
        function: WindowFunction | None,
        allowed_lateness_ms: int,
        key: Mapping[str, object],
        state: KeyState,
        clock: OperatorClock,
        expired_until: int = MIN_WATERMARK,
    ) -> None:
        self._assigner = assigner
        self._merger = cast("MergingWindowAssigner", assigner) if assigner.merging else None
        self._trigger = trigger
        self._evictor = evictor
        self._function = function
        self._lateness = allowed_lateness_ms
        self._key = key
        self._state = state
        self._clock = clock
        self._functions = FunctionState(state.function, merging=assigner.merging)
        self._through = order_of(clock.epoch + 1, 0) - 1
        self._unfired: list[Firing] = []
        self._expired_until = expired_until
        # They were kept under a greater lateness than is allowed now.
        self._forget([window for window in state.windows if self._is_over(window)], order_of(clock.epoch, 0) - 1)

    def take(self, arrivals: Iterable[Arrival]) -> Iterator[HeldElement | None]:
        """Add each element to its windows that have not expired, and call the trigger."""
        for place, arrival in enumerate(arrivals):
            held = HeldElement(self._clock.element_time(arrival.timestamp), order_of(self._clock.epoch, place), arrival.row)
            taken = False
            for assigned in self._assigner.assign(held.timestamp, arrival.gap_ms):
                state = self._window_for(assigned)
                if state is None:
                    continue
                taken = True
                state.held += 1
                state.touched = True
                context = StoredContext(state, self._clock, self._clock.before)
                state.asked |= self._trigger.on_element(held.row, held.timestamp, state.window, context)
            yield held if taken else None

    def close(self) -> tuple[Firing, ...]:
        """Fire timers, call the trigger for the epoch's end, and return the firings."""
        firings = []
        for state in sorted(self._state.windows.values(), key=lambda state: state.window):
            timers = DueTimers(self._trigger, state, self._clock)
            state.asked |= timers.fire()
            if state.touched:
                context = StoredContext(state, self._clock, self._clock.watermark)
                state.asked |= self._trigger.on_epoch_end(state.window, context) | timers.fire()
            if TriggerResult.FIRE in state.asked and state.held:
                firings.append(self._firing(state))
            elif TriggerResult.PURGE in state.asked:
                self._purge(state)
            state.asked, state.touched = TriggerResult.CONTINUE, False
        self._unfired = list(firings)
        return tuple(firings)

    def fire(self, elements: Iterable[HeldElement]) -> Iterator[FiredPane]:
        """Go through the elements once, window by window in order of their start."""
        source = iter(elements)
        ahead = next(source, None)
        buffer: deque[HeldElement] = deque()
        for firing in tuple(self._unfired):
            window = firing.window
            while buffer and buffer[0].timestamp < window.start:
                buffer.popleft()
            while ahead is not None and ahead.timestamp < window.end:
                if ahead.timestamp >= window.start and self._state.is_live(ahead.timestamp, ahead.order):
                    buffer.append(ahead)
                ahead = next(source, None)
            state = self._state.windows[window]
            members = sorted(
                (element for element in buffer if state.holds(element.timestamp, element.order)), key=lambda element: element.order
            )
            if len(members) != state.held:
                raise CorruptStoreError(
                    f"the window [{window.start}, {window.end}) of a key holds {state.held} elements, but {len(members)} were given",
                    fix="restore from a savepoint",
                )
            yield from self._pane(firing, state, members)
            self._unfired.remove(firing)

    def state(self) -> str | None:
        """Drop expired windows, and write the rest."""
        if self._unfired:
            raise RuntimeError(f"{len(self._unfired)} windows have fired, but their panes were not taken")
        watermark, kept = self._clock.watermark, self._state
        self._forget([window for window in kept.windows if is_expired(window, self._lateness, watermark)], self._through)
        if not kept.windows:
            # No stored element is alive: the key's next element begins a new life.
            kept.born, kept.tombstones = self._through + 1, ()
        self._functions.forget_expired(self._lateness, watermark)
        kept.function = self._functions.to_json()
        return write_state(kept)

    def holds(self, timestamp: int, order: int) -> bool:
        """Return whether an open window holds the element."""
        return self._state.holds(timestamp, order)

    def deadlines(self) -> Deadlines:
        """Return the least of all timers and of the times at which windows expire."""
        windows = self._state.windows.values()
        ends = [time for state in windows for time in (cleanup_time(state.window, self._lateness), *state.event)]
        timers = [time for state in windows for time in state.processing]
        if self._clock.domain == "event":
            return Deadlines(min(ends, default=None), min(timers, default=None))
        # The watermark of these windows is PT - 1: it reaches a time one millisecond after processing time does.
        return Deadlines(MAX_WATERMARK if windows else None, min([*timers, *(end + 1 for end in ends)], default=None))

    def _is_over(self, window: Window) -> bool:
        """Return whether a window has expired; a greater lateness does not bring an expired one back."""
        return is_late(window, self._lateness, self._clock.before) or due_time(window) <= self._expired_until

    def _forget(self, expired: Sequence[Window], through: int) -> None:
        """Drop windows; no later session may hold their elements up to this order."""
        kept = self._state
        for window in expired:
            del kept.windows[window]
        if self._merger is not None:
            for window in expired:
                kept.tombstones = add_tombstone(kept.tombstones, window, through, kept.windows)

    def _window_for(self, assigned: Window) -> WindowState | None:
        """Return the window of an element, merged from others if it joins sessions, or None if it has expired."""
        windows = self._state.windows
        known = windows.get(assigned)
        if known is not None:
            return known
        parts: Sequence[WindowState] = ()
        window = assigned
        if self._merger is not None:
            around = next((other for other in windows if other.start <= assigned.start and assigned.end <= other.end), None)
            if around is not None:
                return windows[around]
            merged = next(merged for merged in self._merger.merge([*windows, assigned]) if assigned in merged.parts)
            window, parts = merged.window, [windows[part] for part in merged.parts if part in windows]
        if self._is_over(window):
            return None
        if window not in windows:
            windows[window] = self._merged(window, parts)
        return windows[window]

    def _merged(self, window: Window, parts: Sequence[WindowState]) -> WindowState:
        """Make a window of those it absorbs, and remove these."""
        for part in parts:
            del self._state.windows[part.window]
        out = [ReplacedSession(part.window.start, part.window.end) for part in parts if part.result_is_out]
        state = WindowState(
            window,
            held=sum(part.held for part in parts),
            panes=next_index(*(part.panes for part in parts)),
            replaced=in_order([*out, *(session for part in parts for session in part.replaced)]),
            removed=united(part.removed for part in parts),
        )
        for part in parts:
            state.asked |= part.asked
        if parts:
            self._trigger.on_merge(window, StoredContext(state, self._clock, self._clock.before, parts))
        return state

    def _firing(self, state: WindowState) -> Firing:
        timing = pane_timing(state.window, before=self._clock.before, after=self._clock.watermark)
        firing = Firing(state.window, timing, state.panes, state.replaced, purge=TriggerResult.PURGE in state.asked)
        state.panes += 1
        state.replaced = ()
        return firing

    def _purge(self, state: WindowState) -> None:
        state.held, state.removed = 0, all_of(state.window, self._through)

    def _pane(self, firing: Firing, state: WindowState, members: list[HeldElement]) -> Iterator[FiredPane]:
        evicted = self._evicted(members, after=False)
        rows = self._rows(firing, [member for place, member in enumerate(members) if place not in evicted])
        time = max(member.timestamp for member in members) if state.window == GLOBAL_WINDOW else state.window.max_timestamp
        yield FiredPane(firing.window, firing.timing, firing.index, time, firing.replaces, rows)
        for _ in rows:
            pass  # Consume the remaining rows, so that the function runs to its end.
        evicted |= self._evicted(members, after=True)
        if firing.purge:
            self._purge(state)
        elif evicted:
            orders = [member.order for member in members]
            survivors = [order for place, order in enumerate(orders) if place not in evicted]
            state.held = len(survivors)
            state.removed = state.removed.with_survivors(state.window, self._through, held=orders, survivors=survivors)

    def _evicted(self, members: list[HeldElement], *, after: bool) -> frozenset[int]:
        if self._evictor is None or self._evictor.after != after:
            return frozenset()
        evicted: object = self._evictor.evicted([TimedRow(member.timestamp, member.row) for member in members])
        if not isinstance(evicted, AbstractSet) or not all(
            isinstance(place, Integral) and 0 <= int(place) < len(members) for place in evicted
        ):
            raise UserCodeError(
                f"evictor {self._evictor.describe()} answered {evicted!r}, not a set of places from 0 to {len(members) - 1}",
                fix="return a frozenset of the places of the elements to remove",
                place=defined_at(getattr(type(self._evictor), "evicted", None)),
            )
        return frozenset(evicted)

    def _rows(self, firing: Firing, shown: list[HeldElement]) -> Iterator[object]:
        if self._function is None:
            return iter(shown)
        context = self._functions.context(self._key, firing.window, self._clock, timing=firing.timing, index=firing.index)
        # Overlapping windows share their rows, and a function may change its copies.
        return call_function(self._function, [dict(element.row) for element in shown], context)  # type: ignore[call-overload]
