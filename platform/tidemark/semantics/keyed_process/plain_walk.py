"""The walk of a function whose states never expire and whose failures end the epoch: with as few calls for each element as there can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Final

from tidemark.semantics.keyed_process.context import Row
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.walk import ElementWalk, Walked
from tidemark.semantics.user_rows import MAX_ROWS, name_of, parts_of, require_row
from tidemark.semantics.windows.windows import TimeDomain

ROWS_HELD: Final = 5_000
"""From so many rows on that were emitted a walk pauses, so that they can be taken."""

EmittedRow = tuple[str | None, Row, int]
"""A row: its side output, None for the main one, its columns, and its event time."""


class PlainWalk(ElementWalk):
    """Does what ``ElementWalk`` does, for functions of one input, without lifetimes, and without undoing calls that fail.

    What a function emits is added to ``emitted``, which the caller takes at each pause and after each key. For each key ``begin`` is
    called, then ``process`` once for each part of its elements, then ``finish``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.emitted: list[EmittedRow] = []
        self.row: Row | None = None
        self._record: KeyRecord | None = None
        self._input = self.function.inputs[0]
        self._name = name_of(self._input)

    def begin(self, key: Mapping[str, object], record: KeyRecord) -> None:
        """Begin with a key; its record is changed until ``finish`` is used up, and may be the same one for several keys."""
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

    def process(self, rows: Sequence[Row], times: Sequence[int], walked: Walked) -> Iterator[None]:
        """Process elements of the key, and the timers that are due before each; yield at each pause."""
        now, context, function, emitted = self._now, self._context, self._input, self.emitted
        event, processing, at = self._timers.event_queue, self._timers.processing_queue, self.times.processing_time
        before, after, behind, pending = self.times.before, self.times.watermark, self.times.bound + 1, self._pending
        walked.elements += len(rows)
        for row, time in zip(rows, times, strict=True):
            # As ``times.watermark_at(time)``, without a call for each element.
            watermark = time - behind
            watermark = watermark if watermark < after else after  # noqa: FURB136
            watermark = watermark if watermark > before else before  # noqa: FURB136
            now.watermark = watermark
            if (event and event[0][0] <= watermark) or (processing and processing[0][0] <= at):
                yield from self._fire_all(walked)
            self.row, now.timestamp = row, time
            returned = function(row, context)
            if returned is not None:
                rest = self._take(returned, self._name, time)
                while rest is not None:
                    yield
                    rest = self._take_more(rest, self._name, time)
            elif pending:
                self._take_sides(time)
            if len(emitted) >= ROWS_HELD:
                yield

    def finish(self, walked: Walked) -> Iterator[None] | tuple[()]:
        """Fire what is due at the end of the key's epoch; yield at each pause."""
        now = self._now
        now.watermark = self.times.watermark
        return self._fire_all(walked) if self._timers.are_due(now) else ()

    def end_keys(self) -> None:
        """Have states and timers belong to no key again."""
        self._record = None
        self._context.begin_key(None, None)
        for state in self._handles:
            state.begin_key(None)

    def _fire_all(self, walked: Walked) -> Iterator[None]:
        now, context, due, on_timer = self._now, self._context, self._timers.due, self.function.on_timer
        pending, emitted, latest = self._pending, self.emitted, dict[TimeDomain, int]()
        fired = standing = 0
        while (found := due(now)) is not None:
            domain, (time, name) = found
            if domain not in latest or time > latest[domain]:
                latest[domain] = time
            else:
                standing = self._standing(standing, time)
            fired += 1
            self.timer, context.timer_name, context.time_domain, now.timestamp = time, name, domain, time
            returned = on_timer(time, context)
            if returned is not None:
                rest = self._take(returned, "on_timer", time)
                while rest is not None:
                    yield
                    rest = self._take_more(rest, "on_timer", time)
            elif pending:
                self._take_sides(time)
            self.timer = context.timer_name = context.time_domain = None
            if len(emitted) >= ROWS_HELD:
                yield
        walked.fired += fired

    def _take(self, returned: object, name: str, time: int) -> Iterator[tuple[int, Row]] | None:
        """Take the rows that a call returned; return what is left of them where there were too many to hold, else None."""
        rows = returned if type(returned) is GeneratorType else parts_of(returned, name)
        return self._take_more(enumerate(rows), name, time)

    def _take_more(self, rows: Iterator[tuple[int, Row]], name: str, time: int) -> Iterator[tuple[int, Row]] | None:
        pending, emitted = self._pending, self.emitted
        for number, row in rows:
            if type(row) is not dict or number >= MAX_ROWS:
                require_row(row, number, name)
            if pending:
                self._take_sides(time)
            # The function may go on with the same dict.
            emitted.append((None, dict(row), time))
            if len(emitted) >= ROWS_HELD:
                return rows
        if pending:
            self._take_sides(time)
        return None

    def _take_sides(self, time: int) -> None:
        for tag, row in self._context.take_outputs():
            self.emitted.append((tag, row, time))
