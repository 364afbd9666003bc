"""What is kept of one key between epochs: the entries of its states, and its timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.semantics.windows.windows import TimeDomain

Entry = tuple[object, int]
"""A value, and the time at which its lifetime was last renewed; 0 where it never expires.

A plain tuple: one is made for each element, which takes a named one six times as long.
"""


Timer = tuple[int, str]
"""When a timer is due, and its name, empty for one without. They fire in the order of these tuples, plain as entries are."""


Stored = Entry | list[Entry] | dict[object, Entry]
"""A value, reducing or aggregating state has one entry, a list state several, a map state one by key."""


def as_declared(stored: Stored, declared: StateDeclaration) -> Stored:
    """Return a state's entries, which were written when its values had another type, with values of the type that it has now.

    Raises:
        UserCodeError: a value does not fit that type.
    """
    convert, convert_key = declared.convert or _same, declared.convert_key or _same
    if isinstance(stored, tuple):
        return _converted(stored, convert)
    if isinstance(stored, dict):
        return {convert_key(key): _converted(entry, convert) for key, entry in stored.items()}
    return [_converted(entry, convert) for entry in stored]


def _same(value: object) -> object:
    return value


def _converted(entry: Entry, convert: Callable[[object], object]) -> Entry:
    value, renewed = entry
    return (value if value is None else convert(value)), renewed


@dataclass(slots=True)
class KeyRecord:
    """The states that have entries, by name, and the timers, by domain."""

    states: dict[str, Stored] = field(default_factory=dict)
    timers: dict[TimeDomain, set[Timer]] = field(default_factory=lambda: {"event": set(), "processing": set()})

    def copy(self) -> KeyRecord:
        """Return a record whose changes are not this one's; values themselves are never changed, but replaced."""
        states = {name: stored if isinstance(stored, tuple) else stored.copy() for name, stored in self.states.items()}
        return KeyRecord(states, {domain: set(timers) for domain, timers in self.timers.items()})

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept, so that the key need not be."""
        return not (self.states or self.timers["event"] or self.timers["processing"])

    def next_timer(self, domain: TimeDomain) -> int | None:
        """Return the time of the first timer of a domain, None without any."""
        return min(self.timers[domain])[0] if self.timers[domain] else None

    def deadlines(self, declarations: Mapping[str, StateDeclaration]) -> tuple[int | None, int | None]:
        """Return the watermark and the processing time at which the key has something to do without an element, None for never.

        That is when a timer fires, or, for a key without timers, when the last of its entries expires, and nothing is kept any more.
        """
        timers = self.timers
        event = self.next_timer("event") if timers["event"] else None
        processing = self.next_timer("processing") if timers["processing"] else None
        if event is not None or processing is not None:
            return event, processing
        last: dict[TimeDomain, list[int]] = {"event": [], "processing": []}
        for name, stored in self.states.items():
            ttl = declarations[name].ttl if name in declarations else None
            if ttl is None:
                return None, None
            last[ttl.domain].append(max(renewed for _, renewed in entries_of(stored)) + ttl.ms)
        return _greatest(last["event"]), _greatest(last["processing"])


def _greatest(times: list[int]) -> int | None:
    """Return the greatest of some times; None without any, and where it is after the end of time."""
    found = max(times, default=None)
    return None if found is None or found > MAX_WATERMARK else found


def count_timers(timers: Mapping[TimeDomain, set[Timer]]) -> int:
    """Return how many timers a key has."""
    return len(timers["event"]) + len(timers["processing"])


def entries_of(stored: Stored) -> list[Entry]:
    """Return the entries of a state."""
    if isinstance(stored, tuple):
        return [stored]
    return list(stored.values()) if isinstance(stored, dict) else stored
