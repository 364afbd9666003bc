"""Machines of which each element says what it does: as SQL, as plain functions, and as a process function with value states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tidemark as tm
from tidemark.graph.operators.sql_state.declaration import SqlState
from tidemark.semantics.keyed_process.context import ProcessContext
from tidemark.semantics.keyed_process.declarations import StateDeclaration, StateTtl
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.states import State
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Output, Walked
from tidemark.semantics.running.field_machine import FieldMachine, MachineField

Row = Mapping[str, Any]
OPERATIONS = 6
"""What an element may do: its column ``op``, with a number ``x``, which may be null."""


@dataclass(frozen=True)
class Form:
    """A machine: its SQL, and the same in Python."""

    sql: Mapping[str, tuple[str, str] | tuple[str, str, str]]
    emit_when: str
    returns: Mapping[str, str]
    fields: Mapping[str, MachineField]
    result: Callable[[Row, Row, Row], Row | None]

    def declared(self, ttl: StateTtl | None) -> SqlState:
        """Return the machine in SQL."""
        lives = None if ttl is None else tm.state_ttl(f"{ttl.ms} ms", domain=ttl.domain)
        return tm.sql_state(self.sql, emit_when=self.emit_when, returns=self.returns, ttl=lives)

    @property
    def machine(self) -> FieldMachine:
        """The machine on plain functions."""
        return FieldMachine(self.fields, self.result)


def _n(row: Row, before: Row) -> object:
    return {0: before["n"] + 1, 1: row["x"], 2: None, 3: before["m"]}.get(row["op"], before["n"])


def _m(row: Row, before: Row) -> object:
    if row["op"] == 4:
        return (before["n"] or 0) + (before["m"] or 0)
    return None if row["op"] == 5 else row["x"]


def _of_recursive(row: Row, before: Row, after: Row) -> Row | None:
    if row["op"] == 1 and not (before["m"] is not None and before["n"] > before["m"]):
        return None
    return {"k": row["k"], "t": row["t"], "n": before["n"], "m": before["m"], "new_n": after["n"], "new_m": after["m"]}


RECURSIVE = Form(
    {
        "n": ("CASE op WHEN 0 THEN n + 1 WHEN 1 THEN x WHEN 2 THEN NULL WHEN 3 THEN m ELSE n END", "BIGINT", "3"),
        "m": ("CASE op WHEN 4 THEN coalesce(n, 0) + coalesce(m, 0) WHEN 5 THEN NULL ELSE x END", "BIGINT"),
    },
    "op <> 1 OR n > m",
    {"k": "k", "t": "t", "n": "n", "m": "m", "new_n": "new.n", "new_m": "new.m"},
    {"n": MachineField(_n, 3), "m": MachineField(_m)},
    _of_recursive,
)


def _of_last(row: Row, before: Row, after: Row) -> Row | None:
    if row["op"] == 1 and before["last"] != -1:
        return None
    return {"k": row["k"], "t": row["t"], "last": before["last"], "op_before": before["what"], "newest": after["last"]}


LAST = Form(
    {"last": ("CASE op WHEN 2 THEN NULL ELSE x END", "BIGINT", "-1"), "what": ("op", "INT")},
    "op <> 1 OR last = -1",
    {"k": "k", "t": "t", "last": "last", "op_before": "what", "newest": "new.last"},
    {
        "last": MachineField(lambda row, _: None if row["op"] == 2 else row["x"], -1),
        "what": MachineField(lambda row, _: row["op"]),
    },
    _of_last,
)


class AsFunction:
    """A machine as a process function: a value state for each field, which is read before it is written."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self._states: Mapping[str, Any] = {}

    def bind(self, states: Mapping[str, State], _ctx: ProcessContext) -> None:
        self._states = states

    @property
    def inputs(self) -> Sequence[Callable[..., Iterator[Row]]]:
        return (self.process,)

    def process(self, row: Row, _ctx: ProcessContext) -> Iterator[Row]:
        before = {name: self._states[name].value() for name in self.form.fields}
        for name, field in self.form.fields.items():
            self._states[name].update(field.update(row, before))
        after = {name: self._states[name].value() for name in self.form.fields}
        found = self.form.result(row, before, after)
        if found is not None:
            yield found

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterator[Row]:
        raise AssertionError((timestamp, ctx))


@dataclass
class Walks:
    """A machine's keys by ``ElementWalk``: every key in every epoch, so that what has expired is gone at its end."""

    form: Form
    ttl: StateTtl | None

    def __post_init__(self) -> None:
        self.records: dict[str, KeyRecord] = {}
        self.expired = self.expired_keys = self.emptied_keys = 0

    def epoch(self, elements: Mapping[str, Sequence[Row]], times: EpochTimes) -> list[Row]:
        """Process the elements of an epoch, in order by key; return the rows."""
        declared = {name: StateDeclaration(name, "value", default=field.initial, ttl=self.ttl) for name, field in self.form.fields.items()}
        walk = ElementWalk(AsFunction(self.form), declared, frozenset(), times)
        found: list[Row] = []
        for key in {**elements, **self.records}:
            record, walked = self.records.setdefault(key, KeyRecord()), Walked()
            had = not record.is_empty
            given = [(row, int(row["t"]), 0) for row in sorted(elements.get(key, ()), key=lambda row: int(row["t"]))]
            found += [each.row for each in walk.run({"k": key}, record, given, walked) if isinstance(each, Output)]
            self.expired += walked.expired
            if record.is_empty:
                del self.records[key]
                self.expired_keys += had and walked.expired > 0
                self.emptied_keys += had and not walked.expired
        return found

    @property
    def kept(self) -> dict[str, dict[str, object]]:
        """The values of each key."""
        return {
            key: {name: entry[0] for name, entry in record.states.items() if isinstance(entry, tuple)}
            for key, record in self.records.items()
        }
