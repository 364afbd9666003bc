"""The walk of a function whose states never expire and whose failures end the epoch: with as few calls for each element as there can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import GeneratorType
from typing import Final

from tidemark.semantics.keyed_process.context import Row
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.walk import ElementWalk, Walked
from tidemark.semantics.user_rows import MAX_ROWS, name_of, own_row, parts_of, require_row
from tidemark.semantics.windows.windows import TimeDomain

ROWS_HELD: Final = 5_000
"""From so many rows on that were emitted a walk pauses, so that they can be taken."""

EmittedRow = tuple[str | None, Row, int]
"""A row: its side output, None for the main one, its columns, and its event time."""

More = Callable[[], "More | None"]
"""Goes on after a pause; returns the same again at the next one, None at the end. Most keys have none, so that they need no generator."""


class PlainWalk(ElementWalk):
    """Does what ``ElementWalk`` does, for functions of one input, without lifetimes, and without undoing calls that fail.

    What a function emits is added to ``emitted``, which the caller takes at each pause and after each key. For each key ``begin`` is
    called, then ``process`` once for each part of its elements, then ``finish``; these return None, or, where they paused, what goes on.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.emitted: list[EmittedRow] = []
        self.row: Row | None = None
        self._record: KeyRecord | None = None
        self._input = self.function.inputs[0]
        self._name = name_of(self._input)

    def begin(self, key: Mapping[str, object], record: KeyRecord) -> None:
        """Begin with a key; its record is changed until ``finish`` has ended, and may be the same one for several keys."""
        timers = self._timers
        if record is not self._record:
            self._record = record
            timers.begin_key(record)
            for state in self._handles:
                state.begin_key(record)
        elif timers.event_queue or timers.processing_queue:
            timers.begin_key(record)
        self.row = None
        self._context.begin_key(key, timers)

    def process(self, rows: Sequence[Row], times: Sequence[int], walked: Walked) -> More | None:
        """Process elements of the key, and the timers that are due before each."""
        walked.elements += len(rows)
        return self._process_all(zip(rows, times, strict=True), walked)

    def finish(self, walked: Walked) -> More | None:
        """Fire what is due at the end of the key's epoch."""
        now = self._now
        now.watermark = self.times.watermark
        return self._fire_all(walked, {}, 0, self._limit(walked)) if self._timers.are_due(now) else None

    def end_keys(self) -> None:
        """Have states and timers belong to no key again."""
        self._record = None
        self._context.begin_key(None, None)
        for state in self._handles:
            state.begin_key(None)

    def _process_all(self, elements: Iterator[tuple[Row, int]], walked: Walked, first: tuple[Row, int] | None = None) -> More | None:
        """Process elements, ``first`` before all others."""
        now, context, function, name, emitted = self._now, self._context, self._input, self._name, self.emitted
        event, processing, at = self._timers.event_queue, self._timers.processing_queue, self.times.processing_time
        before, after, behind, pending = self.times.before, self.times.watermark, self.times.bound + 1, self._pending
        for row, time in elements if first is None else chain((first,), elements):
            # As ``times.watermark_at(time)``, without a call for each element.
            watermark = time - behind
            watermark = watermark if watermark < after else after  # noqa: FURB136
            watermark = watermark if watermark > before else before  # noqa: FURB136
            now.watermark = watermark
            if (event and event[0][0] <= watermark) or (processing and processing[0][0] <= at):
                more = self._fire_all(walked, {}, 0, self._limit(walked))
                if more is not None:
                    return partial(then, more, partial(self._process_all, elements, walked, (row, time)))
            self.row, now.timestamp = row, time
            returned = function(row, context)
            if returned is not None:
                more = self._take(enumerate(returned if type(returned) is GeneratorType else parts_of(returned, name)), name, time)
                if more is not None:
                    return partial(then, more, partial(self._process_all, elements, walked))
            elif pending:
                self._take_sides(time)
            if len(emitted) >= ROWS_HELD:
                return partial(self._process_all, elements, walked)
        return None

    def _fire_all(self, walked: Walked, latest: dict[TimeDomain, int], standing: int, limit: float) -> More | None:
        """Fire timers that are due.

        Args:
            walked: is added to.
            latest: the times of those that fired, by domain.
            standing: how many did not move on.
            limit: how many firings of the task there may have been at the end.
        """
        now, context, due, on_timer = self._now, self._context, self._timers.due, self.function.on_timer
        pending, emitted = self._pending, self.emitted
        while (found := due(now)) is not None:
            domain, (time, name) = found
            if domain not in latest or time > latest[domain]:
                latest[domain] = time
            else:
                standing = self._standing(standing, time)
            walked.fired += 1
            if walked.fired > limit:
                raise self._endless(time)
            self.timer, context.timer_name, context.time_domain, now.timestamp = time, name or None, domain, time
            returned = on_timer(time, context)
            if returned is not None:
                more = self._take(
                    enumerate(returned if type(returned) is GeneratorType else parts_of(returned, "on_timer")), "on_timer", time
                )
                if more is not None:
                    return partial(then, partial(self._end_timer, more), partial(self._fire_all, walked, latest, standing, limit))
            elif pending:
                self._take_sides(time)
            self.timer = context.timer_name = context.time_domain = None
            if len(emitted) >= ROWS_HELD:
                return partial(self._fire_all, walked, latest, standing, limit)
        return None

    def _end_timer(self, more: More) -> More | None:
        """Go on with the rows of a timer, which ends with them."""
        further = more()
        if further is not None:
            return partial(self._end_timer, further)
        self.timer = self._context.timer_name = self._context.time_domain = None
        return None

    def _take(self, rows: Iterator[tuple[int, Row]], name: str, time: int) -> More | None:
        """Take numbered rows that a call returned."""
        pending, emitted = self._pending, self.emitted
        for number, row in rows:
            if type(row) is not dict or number >= MAX_ROWS:
                require_row(row, number, name)
            if pending:
                self._take_sides(time)
            emitted.append((None, own_row(row), time))
            if len(emitted) >= ROWS_HELD:
                return partial(self._take, rows, name, time)
        if pending:
            self._take_sides(time)
        return None

    def _take_sides(self, time: int) -> None:
        for tag, row in self._context.take_outputs():
            self.emitted.append((tag, row, time))


def then(more: More, following: More) -> More | None:
    """Go on with what paused, and after another pause, since its last call may have emitted many rows, with what follows."""
    further = more()
    return following if further is None else partial(then, further, following)
