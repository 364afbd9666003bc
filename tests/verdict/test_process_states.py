"""Every change of a process function's states, of the three kinds: what the verdict says, and what becomes of the columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import tidemark as tm
from tests.verdict.stored import SCHEMA, Declare, columns, judged
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.state.encoding.codec import to_jsonable

States = Mapping[str, StateDescriptor]
RETURNS = "zone INT, n BIGINT"
DAY = tm.state_ttl("1 day")


def noting(element: Any, ctx: Any) -> None:
    """Do nothing; a function of its own in the verdict's eyes."""


def keeping(element: Any, ctx: Any) -> None:
    """Do nothing, in another text."""
    del element, ctx


class Both:
    """Does nothing with two inputs."""

    def process1(self, element: Any, ctx: Any) -> None:
        """Do nothing."""

    def process2(self, element: Any, ctx: Any) -> None:
        """Do nothing."""


def keyed(states: States, *, function: object = noting, key: str = "zone", returns: str = RETURNS, **more: Any) -> Declare:
    return lambda stream: stream.key_by(key).process(function, returns=returns, state=states, **more).uid("w")


def connected(states: States, *, key: str = "zone") -> Declare:
    def declare(stream: tm.Stream) -> tm.Stream:
        return stream.key_by(key).connect(stream.filter("seats > 1").key_by(key)).process(Both, returns=RETURNS, state=states).uid("w")

    return declare


def broadcast(states: States, *, key: str = "zone", name: str = "rules", by: str = "borough", value: str = "fare DOUBLE") -> Declare:
    def declare(stream: tm.Stream) -> tm.Stream:
        rules = stream.broadcast(name, key=by, value=value)
        return stream.key_by(key).connect(rules).process(noting, returns=RETURNS, state=states).uid("w")

    return declare


KINDS: Mapping[str, Callable[..., Declare]] = {"keyed": keyed, "connected": connected, "broadcast": broadcast}
VALUE, LIST, MAP = tm.value_state("INT"), tm.list_state("INT"), tm.map_state("STRING", "INT")
LEAST = tm.reducing_state("INT", min)


@dataclass(frozen=True)
class Change:
    """One change of the states; ``says`` must be in the findings, ``state`` is what becomes of the columns."""

    before: States
    after: States
    status: str
    says: tuple[str, ...] = ()
    state: dict[str, object] = field(default_factory=dict)
    names: dict[str, str | None] = field(default_factory=dict)


def of(type_: str) -> StateDescriptor:
    return tm.value_state(type_)


CHANGES: dict[str, Change] = {
    "nothing": Change({"a": VALUE, "b": LIST}, {"a": VALUE, "b": LIST}, "compatible"),
    "order": Change({"a": VALUE, "b": LIST}, {"b": LIST, "a": VALUE}, "compatible"),
    "a default": Change({"a": VALUE}, {"a": tm.value_state("INT", default=7)}, "compatible"),
    "added": Change(
        {"a": VALUE}, {"a": VALUE, "b": tm.value_state("BIGINT", default=3)}, "migrates",
        ("the state 'b' is new", "begin without it"), {"added": ["b__value"]},
    ),
    "added with a lifetime": Change(
        {"a": VALUE}, {"a": VALUE, "b": tm.map_state("STRING", "INT", ttl=DAY)}, "migrates",
        ("the state 'b' is new",), {"added": ["b__value", "b__renewed"]},
    ),
    "removed": Change({"a": VALUE, "b": LIST}, {"a": VALUE}, "incompatible", ("the state 'b' was removed", "--column w:b=)")),
    "dropped": Change(
        {"a": VALUE, "b": LIST}, {"a": VALUE}, "migrates", ("the state 'b' is dropped",), {"dropped": ["b__value"]}, {"b": None}
    ),
    "dropped with a lifetime": Change(
        {"a": VALUE, "b": tm.list_state("INT", ttl=DAY)}, {"a": VALUE}, "migrates", ("'b' is dropped",),
        {"dropped": ["b__value", "b__renewed"]}, {"b": None},
    ),
    "renamed unsaid": Change(
        {"a": VALUE}, {"c": VALUE}, "incompatible", ("the state 'a' was removed", "map it to its new name 'c'", "--column w:a=c")
    ),
    "renamed, and another kind, unsaid": Change(
        {"a": VALUE}, {"c": LIST}, "incompatible", ("the state 'a' was removed", "Fix: keep the state, or drop it")
    ),
    "renamed": Change(
        {"a": VALUE}, {"c": VALUE}, "migrates", ("the state 'a' is now called 'c'",), {"renamed": {"a__value": "c__value"}}, {"a": "c"}
    ),
    "renamed with a lifetime": Change(
        {"a": tm.value_state("INT", ttl=DAY)}, {"c": tm.value_state("INT", ttl=DAY)}, "migrates", ("'a' is now called 'c'",),
        {"renamed": {"a__value": "c__value", "a__renewed": "c__renewed"}}, {"a": "c"},
    ),
    "swapped": Change(
        {"a": VALUE, "b": tm.value_state("INT")}, {"a": VALUE, "b": tm.value_state("INT")}, "migrates",
        state={"renamed": {"a__value": "b__value", "b__value": "a__value"}}, names={"a": "b", "b": "a"},
    ),
    "widened": Change(
        {"a": VALUE}, {"a": of("BIGINT")}, "migrates", ("the state 'a' was INT and is now BIGINT",), {"widened": {"a__value": "long"}}
    ),
    "a list widened": Change(
        {"a": LIST}, {"a": tm.list_state("BIGINT")}, "migrates", ("the state 'a' was ARRAY<INT> and is now ARRAY<BIGINT>",),
        {"widened": {"a__value": {"type": "array", "elementType": "long", "containsNull": True}}},
    ),
    "a map widened": Change(
        {"a": MAP}, {"a": tm.map_state("STRING", "BIGINT")}, "migrates",
        ("the state 'a' was MAP<STRING, INT> and is now MAP<STRING, BIGINT>",),
        {"widened": {"a__value": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}}},
    ),
    "a struct widened": Change(
        {"a": of("STRUCT<x: INT, y: ARRAY<STRING>>")}, {"a": of("STRUCT<x: BIGINT, y: ARRAY<STRING>>")}, "migrates",
        ("the state 'a' was STRUCT<x: INT, y: ARRAY<STRING>> and is now STRUCT<x: BIGINT, y: ARRAY<STRING>>",),
        {"widened": {"a__value": {"type": "struct", "fields": [
            {"name": "x", "type": "long", "nullable": True, "metadata": {}},
            {"name": "y", "type": {"type": "array", "elementType": "string", "containsNull": True}, "nullable": True, "metadata": {}},
        ]}}},
    ),
    "a struct's field renamed": Change({"a": of("STRUCT<x: INT>")}, {"a": of("STRUCT<z: INT>")}, "incompatible", ("STRUCT<z: INT>",)),
    "a struct with one more field": Change(
        {"a": tm.list_state("STRUCT<x: INT>")}, {"a": tm.list_state("STRUCT<y: STRING, x: INT>")}, "migrates",
        ("is now ARRAY<STRUCT<y: STRING, x: INT>>; fields that are new are null in values that are stored already",),
        {"widened": {"a__value": {"type": "array", "elementType": {"type": "struct", "fields": [
            {"name": "y", "type": "string", "nullable": True, "metadata": {}},
            {"name": "x", "type": "integer", "nullable": True, "metadata": {}},
        ]}, "containsNull": True}}},
    ),
    "a struct with a field less": Change(
        {"a": of("STRUCT<x: INT, y: INT>")}, {"a": of("STRUCT<x: INT>")}, "incompatible", ("is now STRUCT<x: INT>", "declare it as"),
    ),
    "renamed and widened": Change(
        {"a": VALUE}, {"c": of("BIGINT")}, "migrates", ("'a' is now called 'c'", "'c' was INT and is now BIGINT"),
        {"renamed": {"a__value": "c__value"}, "widened": {"c__value": "long"}}, {"a": "c"},
    ),
    "narrowed": Change({"a": of("BIGINT")}, {"a": VALUE}, "incompatible", ("the state 'a' was BIGINT and is now INT",)),
    "a map's keys changed": Change({"a": MAP}, {"a": tm.map_state("DATE", "INT")}, "incompatible", ("is now MAP<DATE, INT>",)),
    "a list instead of a value": Change(
        {"a": VALUE}, {"a": LIST}, "incompatible", ("was a value state and is now a list state", "add another beside it")
    ),
    "a value instead of a reduction": Change({"a": LEAST}, {"a": VALUE}, "incompatible", ("was a reducing state",)),
    "a lifetime": Change(
        {"a": VALUE}, {"a": tm.value_state("INT", ttl=DAY)}, "compatible", ("lived for ever and lives now for 1d of processing time",)
    ),
    "no lifetime": Change({"a": tm.value_state("INT", ttl=DAY)}, {"a": VALUE}, "compatible", ("and lives now for ever",)),
    "another lifetime": Change(
        {"a": tm.value_state("INT", ttl=DAY)}, {"a": tm.value_state("INT", ttl=tm.state_ttl("2 days", domain="event", on_read=True))},
        "migrates", ("for 2d of event time after it was read, from now on",), {"dropped": ["a__renewed"], "added": ["a__renewed"]},
    ),
    "another lifetime of another name": Change(
        {"a": tm.list_state("INT", ttl=DAY)}, {"c": tm.list_state("INT", ttl=tm.state_ttl("1 day", domain="event"))},
        "migrates", ("for 1d of event time, from now on",),
        {"renamed": {"a__value": "c__value"}, "dropped": ["a__renewed"], "added": ["c__renewed"]}, {"a": "c"},
    ),
    "a longer lifetime": Change(
        {"a": tm.value_state("INT", ttl=DAY)}, {"a": tm.value_state("INT", ttl=tm.state_ttl("2 days"))},
        "compatible", ("lives now for 2d of processing time, from when it is next written",),
    ),
    "what reduces": Change({"a": LEAST}, {"a": tm.reducing_state("INT", max)}, "compatible", ("functions of the state 'a' were replaced",)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_states(name: str, kind: str) -> None:
    change, declare = CHANGES[name], KINDS[kind]
    found = judged(declare(change.before), declare(change.after), columns=columns(**change.names))
    text = "\n".join(each.text() for each in found.findings)
    assert found.status == change.status, text
    for part in change.says:
        assert part in text
    nothing = {"renamed": {}, "dropped": [], "widened": {}, "added": [], "without_function": False}
    assert json.loads(json.dumps(to_jsonable(found.rewrite))) == {**nothing, **change.state}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_what_state_is_found_by(kind: str) -> None:
    declare = KINDS[kind]
    found = judged(declare({"a": VALUE}), declare({"a": VALUE}, key="borough"))
    assert found.status == "incompatible"
    assert any("key 'zone' was removed" in each.text() for each in found.findings)
    wider = judged(declare({"a": VALUE}), declare({"a": VALUE}), new=SCHEMA.replace("zone INT", "zone BIGINT"))
    assert (wider.status, wider.rewrite.widened) == ("migrates", {"key_zone": "long"})


def test_the_function_its_results_and_side_outputs_may_change() -> None:
    before = keyed({"a": VALUE})
    after = keyed(
        {"a": VALUE}, function=keeping, returns="zone INT", side_outputs={tm.OutputTag("more"): "n INT"}, on_error=tm.OutputTag("failed")
    )
    found = judged(before, after)
    assert found.status == "compatible"
    text = "\n".join(each.text() for each in found.findings)
    assert "the process function was replaced, and gets the states and timers of the old one" in text
    assert "the side outputs changed" in text


@pytest.mark.parametrize(
    ("after", "status", "says"),
    [
        (broadcast({"a": VALUE}, name="limits"), "compatible", "the broadcast map 'rules' is now called 'limits'"),
        (broadcast({"a": VALUE}, by="zone"), "incompatible", "has other keys or values"),
        (broadcast({"a": VALUE}, value="seats INT"), "incompatible", "has other keys or values"),
        (broadcast({"a": VALUE}, value="fare FLOAT"), "incompatible", "has other keys or values"),
        (
            broadcast({"a": VALUE}, value="seats INT, fare DOUBLE, borough STRING"),
            "compatible",
            "values of the broadcast map 'rules' also have seats, borough, null in entries that are stored already",
        ),
    ],
    ids=["name", "key", "value", "type", "more"],
)
def test_changes_of_a_broadcast_map(after: Declare, status: str, says: str) -> None:
    found = judged(broadcast({"a": VALUE}), after)
    assert found.status == status
    assert any(says in each.text() for each in found.findings)


def test_a_function_of_one_kind_is_none_of_another() -> None:
    for before in KINDS:
        for after in KINDS:
            found = judged(KINDS[before]({"a": VALUE}), KINDS[after]({"a": VALUE}))
            assert (found.status == "compatible") is (before == after), (before, after)
