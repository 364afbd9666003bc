"""The timers of a key, and the order in which they fire."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from functools import partial

from tidemark.semantics.keyed_process.key_record import KeyRecord, Timer, count_timers
from tidemark.semantics.keyed_process.states import Undo
from tidemark.semantics.keyed_process.times import Now
from tidemark.semantics.windows.windows import TimeDomain


class KeyTimers:
    """Sets, deletes and takes the timers of a key; the queues begin with the times that are next.

    There is one timer per time and domain, and of named ones one per name and domain: setting it again moves it.

    Args:
        undo: gets what takes changes back; None where that is never asked for.
    """

    def __init__(self, undo: Undo | None) -> None:
        self._undo = undo
        self._timers: Mapping[TimeDomain, set[Timer]] = {}
        self._event: set[Timer] = set()
        self._named: dict[TimeDomain, dict[str, Timer]] = {"event": {}, "processing": {}}
        # Timers that were deleted since stay in the queue, and are passed over.
        self.event_queue: list[Timer] = []
        self.processing_queue: list[Timer] = []

    def begin_key(self, record: KeyRecord) -> None:
        """Make them the timers of a key."""
        self._timers = timers = record.timers
        self._event = timers["event"]
        # Most keys begin without timers, after one that left none.
        if timers["event"] or self.event_queue or self._named["event"]:
            self._begin("event", self.event_queue, timers["event"])
        if timers["processing"] or self.processing_queue or self._named["processing"]:
            self._begin("processing", self.processing_queue, timers["processing"])

    def _begin(self, domain: TimeDomain, queue: list[Timer], timers: set[Timer]) -> None:
        named = self._named[domain]
        if queue:
            queue.clear()
        if named:
            named.clear()
        if timers:
            queue.extend(sorted(timers))
            named.update({timer[1]: timer for timer in timers if timer[1]})

    def register(self, domain: TimeDomain, time: int, name: str | None = None) -> None:
        """Set a timer."""
        if name is not None and name in self._named[domain]:
            self._remove(domain, self._named[domain][name])
        self._add(domain, (time, name or ""))

    def register_event_time(self, time: int) -> None:
        """Set a timer of event time without a name, as most are; this is ``register``, without further calls."""
        timer = time, ""
        if timer not in self._event:
            self._event.add(timer)
            heapq.heappush(self.event_queue, timer)
            if self._undo is not None:
                self._undo.append(partial(self._take, "event", timer))

    def delete(self, domain: TimeDomain, time: int | None, name: str | None = None) -> None:
        """Delete a timer, if there is one: the one with a name, or the one at a time."""
        found = self._named[domain].get(name) if name is not None else None if time is None else (time, "")
        if found is not None:
            self._remove(domain, found)

    def count(self) -> int:
        """Return how many timers there are."""
        return count_timers(self._timers)

    def are_due(self, now: Now) -> bool:
        """Return whether there may be a timer that is due."""
        event, processing = self.event_queue, self.processing_queue
        return bool(event and event[0][0] <= now.watermark) or bool(processing and processing[0][0] <= now.processing_time)

    def due(self, now: Now) -> tuple[TimeDomain, Timer] | None:
        """Take the next timer that is due, None without any: first those of processing time, each domain in the order of times."""
        queue = self.processing_queue
        if queue and queue[0][0] <= now.processing_time and (timer := self._next("processing", queue, now.processing_time)) is not None:
            return "processing", timer
        queue, at = self.event_queue, now.watermark
        # As ``_next``, without a call for each timer.
        while queue and queue[0][0] <= at:
            timer = heapq.heappop(queue)
            if timer in self._event:
                if timer[1]:
                    self._take("event", timer)
                else:
                    self._event.discard(timer)
                return "event", timer
        return None

    def _next(self, domain: TimeDomain, queue: list[Timer], at: int) -> Timer | None:
        """Take the next timer of a domain; nothing takes that back."""
        timers = self._timers[domain]
        while queue and queue[0][0] <= at:
            timer = heapq.heappop(queue)
            if timer in timers:
                self._take(domain, timer)
                return timer
        return None

    def next_event_time(self) -> int | None:
        """Return the time of the first timer of event time, None without any."""
        queue = self.event_queue
        while queue and queue[0] not in self._timers["event"]:
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def _add(self, domain: TimeDomain, timer: Timer) -> None:
        if timer in self._timers[domain]:
            return
        self._put(domain, timer)
        if self._undo is not None:
            self._undo.append(partial(self._take, domain, timer))

    def _remove(self, domain: TimeDomain, timer: Timer) -> None:
        if timer not in self._timers[domain]:
            return
        self._take(domain, timer)
        if self._undo is not None:
            self._undo.append(partial(self._put, domain, timer))

    def _put(self, domain: TimeDomain, timer: Timer) -> None:
        self._timers[domain].add(timer)
        if timer[1]:
            self._named[domain][timer[1]] = timer
        heapq.heappush(self.event_queue if domain == "event" else self.processing_queue, timer)

    def _take(self, domain: TimeDomain, timer: Timer) -> None:
        self._timers[domain].discard(timer)
        if timer[1] and self._named[domain].get(timer[1]) == timer:
            del self._named[domain][timer[1]]
