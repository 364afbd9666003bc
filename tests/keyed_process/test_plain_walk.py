"""The walk with few calls for each element does what the contract says, whatever the program."""

from __future__ import annotations

import dataclasses
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from tests.keyed_process.programs import Cut, Interpreter, Ops, Program, programs
from tests.keyed_process.reference import Fact, Reference
from tidemark.semantics.keyed_process import plain_walk
from tidemark.semantics.keyed_process.key_record import KeyRecord, entries_of
from tidemark.semantics.keyed_process.plain_walk import More, PlainWalk
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import Walked

TAGS = frozenset({"left", "right"})


def without_failures(program: Program) -> Program:
    """Return a program whose calls do not fail, and whose states do not expire."""

    def kept(ops: Ops) -> Ops:
        return [op for op in ops if op[0] != "fail"]

    cuts = [dataclasses.replace(cut, elements=[(time, kept(ops)) for time, ops in cut.elements]) for cut in program.epochs]
    return dataclasses.replace(
        program, epochs=cuts, on_timer=list(map(kept, program.on_timer)), ttl=dict.fromkeys(program.ttl), forgives=False
    )


def run_walk(program: Program, *, at_once: int) -> tuple[list[Fact], KeyRecord, Walked]:
    """Walk through a key, with another one before it in each epoch; its elements come in parts of a size."""
    record, walked, facts = KeyRecord(), Walked(), list[Fact]()
    for cut in program.epochs:
        times = EpochTimes(cut.before, cut.watermark, program.bound, cut.processing_time)
        walk = PlainWalk(Interpreter(program.on_timer), program.declarations, TAGS, times)
        facts_of(walk, KeyRecord(), cut, Walked(), at_once=at_once)
        facts += facts_of(walk, record, cut, walked, at_once=at_once)
        walk.end_keys()
        assert not walk.context.has_key
    return facts, record, walked


def facts_of(walk: PlainWalk, record: KeyRecord, cut: Cut, walked: Walked, *, at_once: int) -> list[Fact]:
    facts: list[Fact] = []

    def take() -> None:
        facts.extend((tag or "main", time, row) for tag, row, time in walk.emitted)
        walk.emitted.clear()

    def go_on(more: More | None) -> None:
        while more is not None:
            take()
            more = more()

    walk.begin({"k": "x"}, record)
    for start in range(0, len(cut.elements), at_once):
        part = cut.elements[start : start + at_once]
        go_on(walk.process([{"ops": ops} for _, ops in part], [time for time, _ in part], walked))
    go_on(walk.finish(walked))
    take()
    return facts


@given(programs(), st.integers(1, 3), st.sampled_from([1, 2, 5_000]))
def test_programs(program: Program, at_once: int, held: int) -> None:
    program = without_failures(program)
    reference = Reference(program)
    reference.run()
    with mock.patch.object(plain_walk, "ROWS_HELD", held):
        facts, record, walked = run_walk(program, at_once=at_once)
    assert facts == reference.facts
    timers = {(domain, time, name or None) for domain, kept in record.timers.items() for time, name in kept}
    assert timers == set(reference.kept.timers)
    for name, entries in reference.kept.states.items():
        stored = record.states.get(name)
        found = [] if stored is None else sorted(entries_of(stored))
        assert found == sorted((entry[1], entry[2]) for entry in entries), name
    assert walked.elements == sum(len(cut.elements) for cut in program.epochs)
    assert record.is_empty == (not any(reference.kept.states.values()) and not reference.kept.timers)
