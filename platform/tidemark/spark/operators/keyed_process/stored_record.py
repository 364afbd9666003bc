"""What is kept of a key, as columns of its version: one for the values of each state, one for times, two for timers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.keyed_process.key_record import KeyRecord, Stored
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.windows.windows import TimeDomain
from tidemark.spark.operators.keyed_process.conversions import same_key

_DOMAINS: tuple[TimeDomain, TimeDomain] = ("event", "processing")


def read_record(values: Sequence[Any], declarations: Mapping[str, StateDeclaration], times: EpochTimes) -> KeyRecord:
    """Return a key's record from the values of its columns, in the order of ``stored_columns``; none for a new key.

    Values that were written before their state had a lifetime begin theirs now.
    """
    # With its fields, a record takes half the time: one is made for each key.
    record = KeyRecord({}, {"event": set(), "processing": set()})
    if not values:
        return record
    columns = iter(values)
    for name, declared in declarations.items():
        held = next(columns)
        renewed = None if declared.ttl is None else next(columns)
        if held is not None:
            begins = 0 if declared.ttl is None else times.before if declared.ttl.domain == "event" else times.processing_time
            stored = _entries(declared.kind, held, renewed, begins)
            if stored:
                record.states[name] = stored
    for domain, timers in zip(_DOMAINS, columns, strict=True):
        if timers:
            record.timers[domain] = {(timer["time"], timer["name"] or "") for timer in timers}
    return record


def _entries(kind: str, held: Any, renewed: Any, begins: int) -> Stored:  # noqa: ANN401 - each kind has its own form
    if kind == "list":
        times = renewed or [begins] * len(held)
        return [(value, begins if time is None else time) for value, time in zip(held, times, strict=True)]
    if kind == "map":
        times = dict(_pairs(renewed or ()))
        return {key: (value, times.get(key, begins)) for key, value in _pairs(held)}
    return held, begins if renewed is None else renewed


def _pairs(entries: Any) -> Iterator[tuple[object, Any]]:  # noqa: ANN401 - as above
    for key, value in entries.items() if isinstance(entries, dict) else entries:
        yield same_key(key), value


def write_record(record: KeyRecord, declarations: Mapping[str, StateDeclaration]) -> tuple[object, ...]:
    """Return the values of a record's columns."""
    values: list[object] = []
    for name, declared in declarations.items():
        stored: Any = record.states.get(name)
        if stored is None:
            values += [None] if declared.ttl is None else [None, None]
        elif declared.kind == "list":
            values.append([value for value, _ in stored])
            values += [] if declared.ttl is None else [[renewed for _, renewed in stored]]
        elif declared.kind == "map":
            values.append([(key, value) for key, (value, _) in stored.items()])
            values += [] if declared.ttl is None else [[(key, renewed) for key, (_, renewed) in stored.items()]]
        else:
            values.append(stored[0])
            values += [] if declared.ttl is None else [stored[1]]
    for domain in _DOMAINS:
        timers = record.timers[domain]
        values.append([{"time": time, "name": name or None} for time, name in sorted(timers)] if timers else None)
    return tuple(values)
