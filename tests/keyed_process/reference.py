"""A process function's key as the contract says it, the slow and plain way: whole copies, scans, no queues."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.keyed_process.programs import Op, Ops, Program

Fact = tuple[Any, ...]
_STATES = {"update": "value", "add": "list", "replace": "list", "put": "map", "remove": "map"}
"""The state that an operation changes, where it is not the operation's own name."""


@dataclass
class Kept:
    """All that is kept of the key: each state a list of [map key or None, value, renewed]; timers as (domain, time, name)."""

    states: dict[str, list[list[Any]]] = field(default_factory=lambda: {name: [] for name in ("value", "list", "map", "most", "sum")})
    timers: list[tuple[str, int, str | None]] = field(default_factory=list)


@dataclass
class Reference:
    """Runs a program."""

    program: Program
    kept: Kept = field(default_factory=Kept)
    facts: list[Fact] = field(default_factory=list)
    expired: int = 0
    watermark: int = 0
    processing_time: int = 0

    def run(self) -> None:
        for cut in self.program.epochs:
            self.processing_time = cut.processing_time
            for time, ops in cut.elements:
                self.watermark = max(cut.before, min(cut.watermark, time - self.program.bound - 1))
                self._fire()
                self._call(time, ops, [])
            self.watermark = cut.watermark
            self._fire()
            for name, entries in self.kept.states.items():
                live = [entry for entry in entries if self._live(name, entry)]
                self.expired += len(entries) - len(live)
                self.kept.states[name] = live

    def _fire(self) -> None:
        while True:
            due = [t for t in self.kept.timers if t[1] <= (self.watermark if t[0] == "event" else self.processing_time)]
            if not due:
                return
            domain, time, name = min(due, key=lambda t: (t[0] != "processing", t[1], t[2] is not None, t[2] or ""))
            self.kept.timers.remove((domain, time, name))
            ops = self.program.on_timer[time % len(self.program.on_timer)]
            self._call(time, ops, [("main", time, {"timer": time, "name": name})])

    def _call(self, time: int, ops: Ops, facts: list[Fact]) -> None:
        before = copy.deepcopy(self.kept)
        for op in ops:
            if op[0] == "fail":
                self.kept = before
                self.facts.append(("failed", time))
                return
            self._run(op, time, facts)
        self.facts += facts

    def _run(self, op: Op, time: int, facts: list[Fact]) -> None:
        name, *given = str(op[0]), *op[1:]
        if name == "emit":
            facts.append(("main", time, {"found": self._read(given[0], time)}))
        elif name == "aside":
            facts.append((given[0], time, {"at": time}))
        elif name in ("register", "delete"):
            self._set_timer(name, given, time)
        else:
            state = str(given[0]) if name == "clear" else _STATES.get(name, name)
            self.kept.states[state] = self._changed(name, given, self.kept.states[state])

    def _changed(self, name: str, given: Sequence[Any], entries: list[list[Any]]) -> list[list[Any]]:
        others = [entry for entry in entries if entry[0] != given[0]]
        live = [entry[1] for entry in entries if self._live(name, entry)] if name in ("most", "sum") else []
        match name:
            case "update":
                return [] if given[0] is None else [self._entry("value", given[0])]
            case "add":
                return [*entries, self._entry("list", given[0])]
            case "replace":
                return [self._entry("list", value) for value in given[0]]
            case "put":
                return [*others, self._entry("map", given[1], given[0])]
            case "remove":
                return others
            case "most":
                return [self._entry("most", max([*live, given[0]]))]
            case "sum":
                total, count = live[0] if live else (0, 0)
                return [self._entry("sum", (total + given[0], count + 1))]
        return []

    def _set_timer(self, name: str, given: Sequence[Any], time: int) -> None:
        domain, distance, timer = given
        at = (time if domain == "event" else self.processing_time) + distance
        timers = self.kept.timers
        if name == "register":
            kept = [t for t in timers if not (t[0] == domain and (t[2] == timer if timer is not None else t[1:] == (at, None)))]
            self.kept.timers = [*kept, (domain, at, timer)]
        elif timer is not None:
            self.kept.timers = [t for t in timers if (t[0], t[2]) != (domain, timer)]
        else:
            self.kept.timers = [t for t in timers if t != (domain, at, None)]

    def _read(self, what: str, time: int) -> object:
        if what == "times":
            return time, self.watermark, self.processing_time
        if what == "map":
            found = sorted((entry[0], entry[1]) for entry in self._renewed("map"))
            return found, not found
        if what == "get":
            one = [entry[1] for entry in self._renewed("map", only=1)]
            return (one[0] if one else None), bool(self._renewed("map", only=2))
        values = [entry[1] for entry in self._renewed(what)]
        if what == "list":
            return values
        return values[0] if values else -1 if what == "value" else None

    def _renewed(self, name: str, only: object = None) -> list[list[Any]]:
        """Return the live entries that are read, renewed where reading does that; a list loses its expired ones then."""
        entries = self.kept.states[name]
        read = [entry for entry in entries if self._live(name, entry) and (only is None or entry[0] == only)]
        ttl = self.program.ttl[name]
        if ttl is not None and ttl.on_read and read:
            if name == "list":
                entries = read
            again = [self._entry(name, entry[1], entry[0]) if entry in read else entry for entry in entries]
            self.kept.states[name] = again
        return read

    def _now(self, name: str) -> int:
        ttl = self.program.ttl[name]
        return 0 if ttl is None else self.watermark if ttl.domain == "event" else self.processing_time

    def _entry(self, name: str, value: object, key: object = None) -> list[Any]:
        return [key, value, self._now(name)]

    def _live(self, name: str, entry: list[Any]) -> bool:
        ttl = self.program.ttl[name]
        return ttl is None or entry[2] + ttl.ms > self._now(name)
