"""Many random programs as the keys of one job: what each element does is in its row, what a timer does depends on its key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import tidemark as tm
from tests.keyed_process.programs import Cut, Interpreter, Op, Ops, Program
from tests.keyed_process.reference import Reference
from tidemark.semantics.keyed_process.declarations import StateTtl

SCHEMA = "k STRING, t BIGINT, ops STRING"
BOUND = 6
SIDES = ("left", "right")
STATES = ("value", "list", "map", "most", "sum")

Ttls = Mapping[str, StateTtl | None]
VARIANTS: tuple[Ttls, ...] = (
    dict.fromkeys(STATES),
    {name: StateTtl(12 + number, "event", on_read=number % 2 == 0) for number, name in enumerate(STATES)},
    {name: StateTtl(9 + number, "processing", on_read=number % 2 == 1) for number, name in enumerate(STATES)},
    {"value": StateTtl(15, "event"), "list": None, "map": StateTtl(20, "processing"), "most": None, "sum": StateTtl(8, "event")},
)
"""Lifetimes of the states, one operator each."""


@dataclass(frozen=True)
class Epoch:
    """The elements of an epoch by key, in the order in which they are read, and its times."""

    elements: Mapping[str, Sequence[tuple[int, Ops]]]
    before: int
    watermark: int
    processing_time: int

    @property
    def rows(self) -> list[tuple[str, int, str]]:
        """The rows that the source reads."""
        return [(key, time, json.dumps(ops)) for key, elements in self.elements.items() for time, ops in elements]


@dataclass(frozen=True)
class World:
    """Programs by key: the epochs of all, and what the timers of each do."""

    epochs: Sequence[Epoch]
    on_timers: Mapping[str, Sequence[Ops]]

    @classmethod
    def draw(cls, seed: int, *, keys: int, epochs: int = 4) -> World:
        """Draw a world."""
        random = Random(seed)
        names = [f"k{number}" for number in range(keys)]
        on_timers = {name: [_ops(random, on_timer=True) for _ in range(random.randint(1, 4))] for name in names}
        found, latest, watermark, now = [], 0, -(2**62), 100
        for number in range(epochs):
            low, high = max(0, 25 * number - 15), 25 * number + 30
            elements = {name: [(random.randint(low, high), _ops(random)) for _ in range(random.choice((0, 1, 1, 2, 4)))] for name in names}
            latest = max([latest, *(time for each in elements.values() for time, _ in each)])
            after = max(watermark, latest - BOUND - 1)
            found.append(Epoch(elements, watermark, after, now))
            watermark, now = after, now + random.randint(0, 15)
        return cls(found, on_timers)

    def programs(self, ttl: Ttls) -> dict[str, Program]:
        """Return the program of each key, as the reference runs it."""
        return {
            key: Program(
                [
                    Cut(sorted(epoch.elements[key], key=lambda each: each[0]), epoch.before, epoch.watermark, epoch.processing_time)
                    for epoch in self.epochs
                ],
                on_timer,
                ttl,
                BOUND,
                forgives=True,
            )
            for key, on_timer in self.on_timers.items()
        }

    def expected(self, ttl: Ttls) -> tuple[Counter[str], dict[str, Any], Counter[str], int]:
        """Return by the reference: all facts, the states of each key, all timers, and how many entries expired."""
        facts: Counter[str] = Counter()
        states: dict[str, Any] = {}
        timers: Counter[str] = Counter()
        expired = 0
        for key, program in self.programs(ttl).items():
            reference = Reference(program)
            reference.run()
            expired += reference.expired
            facts.update(fact_text(key, *each) for each in reference.facts)
            timers.update(str((key, *each)) for each in reference.kept.timers)
            kept = {
                name: sorted(entry[:2] for entry in entries) if name == "map" else [entry[:2] for entry in entries]
                for name, entries in reference.kept.states.items()
                if entries
            }
            if kept or reference.kept.timers:
                states[key] = kept
        return facts, states, timers, expired

    def stream(self, ttl: Ttls, uid: str, source: tm.Stream) -> tm.Stream:
        """Return the operator that runs the programs."""
        lives = {
            name: None if each is None else tm.state_ttl(f"{each.ms} ms", domain=each.domain, on_read=each.on_read)
            for name, each in ttl.items()
        }
        state = {
            "value": tm.value_state("BIGINT", default=-1, ttl=lives["value"]),
            "list": tm.list_state("BIGINT", ttl=lives["list"]),
            "map": tm.map_state("BIGINT", "BIGINT", ttl=lives["map"]),
            "most": tm.reducing_state("BIGINT", max, ttl=lives["most"]),
            "sum": tm.aggregating_state("STRUCT<total: BIGINT, n: BIGINT>", create=nothing, add=added, result=as_pair, ttl=lives["sum"]),
        }
        return (
            source.key_by("k")
            .process(
                Programs(self.on_timers, uid),
                returns="k STRING, at BIGINT, fact STRING",
                state=state,
                side_outputs=dict.fromkeys((side_tag(name, uid) for name in SIDES), "k STRING, at BIGINT"),
                on_error=side_tag("failed", uid),
            )
            .uid(uid)
        )


class Programs:
    """The process function."""

    def __init__(self, on_timers: Mapping[str, Sequence[Ops]], uid: str) -> None:
        self._on_timers, self._uid = on_timers, uid

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        yield from self._told(ctx, self._interpreter(ctx).run(json.loads(element["ops"]), named(ctx, self._uid)))

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        interpreter = self._interpreter(ctx)
        yield from self._told(ctx, interpreter.on_timer(timestamp, named(ctx, self._uid)))

    def _interpreter(self, ctx: tm.ProcessContext) -> Interpreter:
        states = {name: getattr(ctx.state, name) for name in STATES}
        return Interpreter(self._on_timers[str(ctx.current_key["k"])], states)

    def _told(self, ctx: tm.ProcessContext, rows: Iterator[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
        for row in rows:
            yield {"k": ctx.current_key["k"], "at": ctx.timestamp, "fact": json.dumps(row)}


def named(ctx: tm.ProcessContext, uid: str) -> Any:
    """Return a context whose side outputs get the key, too."""
    return _Named(ctx, uid)


class _Named:
    """A context whose side outputs get the key, too."""

    def __init__(self, ctx: tm.ProcessContext, uid: str) -> None:
        self._ctx, self._uid = ctx, uid

    def output(self, tag: str, row: Mapping[str, object]) -> None:
        self._ctx.output(side_tag(tag, self._uid), {**row, "k": self._ctx.current_key["k"]})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def side_tag(name: str, uid: str) -> tm.OutputTag:
    """Return the tag of an operator's side output."""
    return tm.OutputTag(f"{name}-{uid}")


def fact_text(key: str, where: str, at: int, row: object = None) -> str:
    """Return a fact as text: in the main output, in a side output, or that a call failed."""
    return f"{key} {where} {at} {json.dumps(row) if where == 'main' else ''}"


def nothing() -> dict[str, int]:
    return {"total": 0, "n": 0}


def added(so_far: Mapping[str, int], value: int) -> dict[str, int]:
    return {"total": so_far["total"] + value, "n": so_far["n"] + 1}


def as_pair(so_far: Mapping[str, int]) -> tuple[int, int]:
    return so_far["total"], so_far["n"]


def _ops(random: Random, *, on_timer: bool = False) -> list[Op]:
    return [_op(random, on_timer=on_timer) for _ in range(random.randint(0, 3 if on_timer else 5))]


def _op(random: Random, *, on_timer: bool) -> Op:
    small, domain, name = random.randint(0, 4), random.choice(("event", "event", "processing")), random.choice((None, None, "a", "b"))
    chosen = random.randrange(16)
    if chosen == 0:
        return ("fail",)
    if chosen < 4:
        return ("register", domain, random.randint(1 if on_timer else -5, 40), name)
    if chosen == 4:
        return ("delete", domain, small, name)
    if chosen == 5:
        return ("aside", random.choice(("left", "right")))
    if chosen < 9:
        return ("emit", random.choice(("value", "list", "map", "get", "most", "sum", "times")))
    return random.choice(
        (
            ("update", random.choice((small, small, None))),
            ("clear", random.choice(STATES)),
            ("add", small),
            ("replace", [random.randint(0, 4) for _ in range(random.randint(0, 3))]),
            ("put", small, random.randint(0, 4)),
            ("remove", small),
            ("most", small),
            ("sum", small),
        )
    )
