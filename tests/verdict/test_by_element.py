"""What changes of state machines and of running results do to their stored state."""

from __future__ import annotations

from typing import Any

import pytest

import tidemark as tm
from tests.verdict.stored import Declare, judged

FIELDS: dict[str, Any] = {"last": ("fare", "DOUBLE"), "n": ("n + 1", "INT", "0")}


def machine(fields: dict[str, Any] | None = None, *, key: str = "zone", **more: Any) -> Declare:
    settings = {"returns": {"x": "1"}, **more}
    return lambda stream: stream.key_by(key).process(tm.sql_state(FIELDS if fields is None else fields, **settings)).uid("w")


def reduce(**merges: str) -> Declare:
    return lambda stream: stream.key_by("zone").reduce(ttl=None, **merges).uid("w")


def running(**aggregates: Any) -> Declare:
    return lambda stream: stream.key_by("zone").running_aggregate(**aggregates).uid("w")


def most(by: str, method: str = "max_by") -> Declare:
    return lambda stream: getattr(stream.key_by("zone"), method)(by).uid("w")


TTL = tm.state_ttl("1 hour", domain="event")
CHANGES: dict[str, tuple[Declare, Declare, str, str]] = {
    "nothing": (machine(), machine(), "compatible", ""),
    "a field added": (machine(), machine({**FIELDS, "top": ("fare", "DOUBLE", "0")}), "migrates", "the field 'top' is new"),
    "a field removed": (machine(), machine({"n": FIELDS["n"]}), "incompatible", "the field 'last' was removed"),
    "a field widened": (machine(), machine({**FIELDS, "n": ("n + 1", "BIGINT", "0")}), "migrates", "'n' was INT and is now BIGINT"),
    "a field narrowed": (machine({**FIELDS, "n": ("seats", "BIGINT")}), machine(), "incompatible", "'n' was BIGINT and is now INT"),
    "another next value": (machine(), machine({**FIELDS, "n": ("n + 2", "INT", "0")}), "compatible", "the next value of the field 'n'"),
    "another initial value": (machine(), machine({**FIELDS, "n": ("n + 1", "INT", "1")}), "compatible", "the initial value of the field"),
    "other results": (machine(), machine(returns={"y": "last"}), "compatible", "the columns of its results changed"),
    "another condition": (machine(), machine(emit_when="n > 3"), "compatible", "emitted when always"),
    "a lifetime": (machine(), machine(ttl=TTL), "compatible", "lives now for 1h of event time"),
    "another key": (machine(), machine(key="seats"), "incompatible", "the key 'zone' was removed"),
    "a reduce of a machine": (machine(), reduce(fare="a.fare"), "incompatible", "was a state machine and is now a reduce"),
    "another merge": (reduce(fare="a.fare"), reduce(fare="b.fare"), "compatible", "the next value of the field 'fare'"),
    "a column reduced, too": (reduce(fare="a.fare"), reduce(fare="a.fare", seats="a.seats"), "migrates", "the field 'seats' is new"),
    "an aggregate added": (
        running(n=tm.count()),
        running(n=tm.count(), x=tm.sum("fare")),
        "migrates",
        "the stored keys have no state of it",
    ),
    "another aggregate": (running(n=tm.sum("seats")), running(n=tm.sum("fare")), "incompatible", "sum(seats) and is now sum(fare)"),
    "a greatest element": (running(n=tm.count()), most("fare"), "incompatible", "chose aggregates and chooses now max_by(fare)"),
    "by another column": (most("fare"), most("seats"), "incompatible", "chose max_by(fare) and chooses now max_by(seats)"),
    "the least": (most("fare"), most("fare", "min_by"), "incompatible", "chooses now min_by(fare)"),
    "blanks": (most("fare + 1"), most("fare+1"), "compatible", ""),
    "a process function": (
        machine(),
        lambda stream: stream.key_by("zone").process(lambda row, ctx: None, returns="x INT").uid("w"),  # noqa: ARG005
        "incompatible",
        "was a sql_state operator and is now a keyed_process operator",
    ),
}


@pytest.mark.parametrize(("before", "after", "status", "what"), CHANGES.values(), ids=CHANGES)
def test_what_a_change_means(before: Declare, after: Declare, status: str, what: str) -> None:
    found = judged(before, after)
    assert found.status == status, found.findings
    assert what in " ".join(each.what for each in found.findings)


def test_fields_are_renamed_and_dropped_by_a_map() -> None:
    fields = {"latest": FIELDS["last"]}
    found = judged(machine(), machine(fields), columns={"w": {"last": "latest", "n": None}})
    assert found.status == "migrates", found.findings
    assert found.rewrite.renamed == {"last__value": "latest__value"}
    assert found.rewrite.dropped == ("n__value",)
