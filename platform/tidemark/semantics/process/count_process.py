"""One key in one epoch, for count windows: groups by number, independent of how the input is cut into epochs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from tidemark.errors import CorruptStoreError
from tidemark.semantics.process.key_epoch import Arrival
from tidemark.semantics.process.window_function_calls import FunctionState, WindowFunction, call_function
from tidemark.semantics.triggers.fired_panes import Deadlines, FiredPane, Firing
from tidemark.semantics.triggers.window_state import HeldElement, KeyState, write_state
from tidemark.semantics.watermarks.lateness import is_expired, is_late
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.semantics.windows.windows import GLOBAL_WINDOW


class CountKeyEpoch:
    """A ``KeyEpoch`` of count windows. An element's order is its number in the key, from 0.

    A group that is not full at the end of input has no pane, as in Flink.
    """

    def __init__(
        self,
        assigner: CountWindows,
        function: WindowFunction | None,
        *,
        key: Mapping[str, object],
        state: KeyState,
        clock: OperatorClock,
    ) -> None:
        self._size = assigner.size
        self._step = assigner.slide or assigner.size
        self._function = function
        self._key = key
        self._state = state
        self._clock = clock
        self._before = state.counted
        self._functions = FunctionState(state.function, merging=False)
        self._unfired: list[int] = []

    def take(self, arrivals: Iterable[Arrival]) -> Iterator[HeldElement | None]:
        """Number each element; nothing is late before the end of input."""
        for arrival in arrivals:
            if is_late(GLOBAL_WINDOW, 0, self._clock.before):
                yield None
                continue
            yield HeldElement(arrival.timestamp, self._state.counted, arrival.row)
            self._state.counted += 1

    def close(self) -> tuple[Firing, ...]:
        """Return the groups that became full."""
        first = (self._before // self._step + 1) * self._step
        self._unfired = list(range(first, self._state.counted + 1, self._step))
        return tuple(Firing(GLOBAL_WINDOW, "ON_TIME", end // self._step - 1, purge=False) for end in self._unfired)

    def fire(self, elements: Iterable[HeldElement]) -> Iterator[FiredPane]:
        """Go through the elements once, group by group; the order they come in is that of their numbers."""
        source = iter(elements)
        group: deque[HeldElement] = deque()
        for end in tuple(self._unfired):
            start = max(end - self._size, 0)
            while group and group[0].order < start:
                group.popleft()
            while not group or group[-1].order < end - 1:
                element = next(source, None)
                if element is None:
                    break
                if element.order >= start:
                    group.append(element)
            if [element.order for element in group] != list(range(start, end)):
                raise CorruptStoreError(
                    f"elements {start} to {end - 1} of a key make a group, but other ones were given", fix="restore from a savepoint"
                )
            rows = self._rows(end // self._step - 1, list(group))
            yield FiredPane(GLOBAL_WINDOW, "ON_TIME", end // self._step - 1, max(e.timestamp for e in group), (), rows)
            for _ in rows:
                pass  # Consume the remaining rows, so that the function runs to its end.
            self._unfired.remove(end)

    def state(self) -> str | None:
        """Write the count, unless the input has ended."""
        if self._unfired:
            raise RuntimeError(f"{len(self._unfired)} groups are full, but their panes were not taken")
        if is_expired(GLOBAL_WINDOW, 0, self._clock.watermark):
            self._state.counted = 0
        self._functions.forget_expired(0, self._clock.watermark)
        self._state.function = self._functions.to_json()
        return write_state(self._state)

    def holds(self, timestamp: int, order: int) -> bool:  # noqa: ARG002
        """Return whether an element is of the next group, or of one after it."""
        next_end = (self._state.counted // self._step + 1) * self._step
        return next_end - self._size <= order < self._state.counted

    def deadlines(self) -> Deadlines:
        """Groups wait for elements only; the end of input drops them."""
        return Deadlines(MAX_WATERMARK if self._state.counted else None, None)

    def _rows(self, index: int, group: list[HeldElement]) -> Iterator[object]:
        if self._function is None:
            return iter(group)
        context = self._functions.context(self._key, GLOBAL_WINDOW, self._clock, timing="ON_TIME", index=index)
        return call_function(self._function, [dict(element.row) for element in group], context)  # type: ignore[call-overload]
