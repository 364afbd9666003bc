"""What the conformance suite runs: operators of every kind, over one source of elements that come out of order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module

import tidemark as tm
from tidemark.graph.operators.registry import kinds

SCHEMA = "at TIMESTAMP, k STRING, v BIGINT"
BOUND_MS = 5_000
START_MS = 1_700_000_000_000

Element = tuple[datetime, str | None, int]


@dataclass(frozen=True)
class Case:
    """One operator: ``build`` makes it of a stream of ``SCHEMA``; ``sides`` are the tags it is given, by counter."""

    name: str
    build: Callable[[tm.Stream, Mapping[str, tm.OutputTag]], tm.Stream]
    sides: Sequence[str] = ()
    in_order: bool = field(default=True)
    """Whether its results of elements in order do not depend on how these are cut into epochs."""
    stays: bool = field(default=False)
    """Whether its state stays when no element can come any more, such as a map that elements wrote."""
    only_long: bool = field(default=False)
    """Whether Spark runs it in the long profile only: another case of its kind goes the same ways there, this one by the harness alone."""
    arrives: Callable[[dict[str, object]], tuple[str | None, dict[str, object]]] = field(default=lambda row: (None, row))
    """By which port a row comes in, for operators that have several, and the columns that it has then."""

    @property
    def tags(self) -> dict[str, tm.OutputTag]:
        """The tags of its side outputs."""
        return {counter: tm.OutputTag(f"{self.name}-{counter}") for counter in self.sides}

    def stream(self, source: tm.Stream) -> tm.Stream:
        """Return the operator's stream, named by the case."""
        return self.build(source, self.tags).uid(self.name)


def cases() -> dict[str, Case]:
    """Return all cases by name: those that ``tests.conformance.kinds.<kind>`` lists for each kind of the registry."""
    found = [case for kind in kinds() for case in import_module(f"tests.conformance.kinds.{kind}").CASES]
    names = [case.name for case in found]
    assert len({*names}) == len(names), sorted(name for name in names if names.count(name) > 1)
    return {case.name: case for case in found}


def source(epochs: Sequence[Sequence[Element]]) -> tm.Stream:
    """Return a stream of elements."""
    given = tm.from_elements(epochs=epochs, schema=SCHEMA)
    return tm.source("elements", given, watermarks=tm.bounded_out_of_orderness(f"{BOUND_MS} milliseconds", timestamp="at"))


def random_epochs(seed: int, *, epochs: int = 4, rows: int = 120, disorder_ms: int = 20_000, step_ms: int = 12_000) -> list[list[Element]]:
    """Return elements of some keys, null among them, in epochs, each of which is so much later; each up to so much behind its time."""
    chosen = random.Random(seed)
    found: list[list[Element]] = []
    for number in range(epochs):
        base, span = START_MS + number * step_ms, step_ms + 2_000
        times = [base + chosen.randrange(span) - (chosen.randrange(disorder_ms + 1) if chosen.random() < 0.3 else 0) for _ in range(rows)]
        found.append([(at(time), chosen.choice(["a", "b", "c", "d", None]), chosen.randrange(100)) for time in times])
    return found


def at(milliseconds: int) -> datetime:
    """Return an instant."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
