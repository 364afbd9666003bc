"""The timers of a key, and the order in which they fire."""

from __future__ import annotations

import heapq

from tidemark.semantics.keyed_process.key_record import KeyRecord, Timer
from tidemark.semantics.keyed_process.states import Undo
from tidemark.semantics.keyed_process.times import Now
from tidemark.semantics.windows.windows import TimeDomain

_Queued = tuple[int, bool, str]


class KeyTimers:
    """Sets, deletes and takes the timers of a key.

    There is one timer per time and domain, and of named ones one per name and domain: setting it again moves it.

    Args:
        record: of the key.
        undo: gets what takes changes back; None where that is never asked for.
    """

    def __init__(self, record: KeyRecord, undo: Undo | None) -> None:
        self._timers = record.timers
        self._undo = undo
        self._named = {domain: {t.name: t for t in timers if t.name is not None} for domain, timers in record.timers.items()}
        # Timers that were deleted since stay in the queue, and are passed over.
        self._queues: dict[TimeDomain, list[_Queued]] = {domain: sorted(map(_queued, timers)) for domain, timers in record.timers.items()}

    def register(self, domain: TimeDomain, time: int, name: str | None = None) -> None:
        """Set a timer."""
        if name is not None and name in self._named[domain]:
            self._remove(domain, self._named[domain][name])
        self._add(domain, Timer(time, name))

    def delete(self, domain: TimeDomain, time: int | None, name: str | None = None) -> None:
        """Delete a timer, if there is one: the one with a name, or the one at a time."""
        found = self._named[domain].get(name) if name is not None else None if time is None else Timer(time)
        if found is not None:
            self._remove(domain, found)

    @property
    def queued(self) -> bool:
        """Whether there may be a timer."""
        return bool(self._queues["event"] or self._queues["processing"])

    def due(self, now: Now) -> tuple[TimeDomain, Timer] | None:
        """Take the next timer that is due, None without any: first those of processing time, each domain in the order of times."""
        for domain in ("processing", "event"):
            queue = self._queues[domain]
            while queue and queue[0][0] <= now.of(domain):
                time, named, name = heapq.heappop(queue)
                timer = Timer(time, name if named else None)
                if timer in self._timers[domain]:
                    self._remove(domain, timer)
                    return domain, timer
        return None

    def _add(self, domain: TimeDomain, timer: Timer) -> None:
        if timer in self._timers[domain]:
            return
        self._put(domain, timer)
        if self._undo is not None:
            self._undo.append(lambda: self._take(domain, timer))

    def _remove(self, domain: TimeDomain, timer: Timer) -> None:
        if timer not in self._timers[domain]:
            return
        self._take(domain, timer)
        if self._undo is not None:
            self._undo.append(lambda: self._put(domain, timer))

    def _put(self, domain: TimeDomain, timer: Timer) -> None:
        self._timers[domain].add(timer)
        if timer.name is not None:
            self._named[domain][timer.name] = timer
        heapq.heappush(self._queues[domain], _queued(timer))

    def _take(self, domain: TimeDomain, timer: Timer) -> None:
        self._timers[domain].discard(timer)
        if timer.name is not None and self._named[domain].get(timer.name) == timer:
            del self._named[domain][timer.name]


def _queued(timer: Timer) -> _Queued:
    return timer.time, timer.name is not None, timer.name or ""
