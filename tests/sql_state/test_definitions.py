"""State machines and running results as users declare them: what is refused, with the user's line and what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError
from tidemark.graph.operators.registry import kind_of
from tidemark.graph.operators.sql_state.expressions import depends_on_state
from tidemark.graph.operators.sql_state.node import SqlStateNode

SCHEMA = "at TIMESTAMP, zone STRING, fare DOUBLE, v BIGINT, tags MAP<STRING, INT>"
STREAM = tm.source("rides", tm.from_elements([], schema=SCHEMA), watermarks=tm.ascending(timestamp="at"))
KEYED = STREAM.key_by("zone")
LAST = {"last": ("fare", "DOUBLE")}
BEFORE = {"before": "last"}


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


def machine(fields: object = None, **more: Any) -> tm.Stream:
    """Return a stream of a state machine."""
    settings = {"returns": BEFORE, **more}
    return KEYED.process(tm.sql_state(wrong(LAST if fields is None else fields), **settings))


CASES: dict[str, tuple[Callable[[], object], str, str, str]] = {
    "a field like a column": (
        lambda: machine({"fare": ("fare", "DOUBLE")}, returns={"x": "1"}),
        "TM104",
        "has the name of a column",
        "'last_fare'",
    ),
    "a field like a column, in capitals": (
        lambda: machine({"FARE": ("v", "DOUBLE")}, returns={"x": "1"}),
        "TM104",
        "has the name of a column",
        "another name",
    ),
    "a field called new": (lambda: machine({"new": ("fare", "DOUBLE")}, returns={"x": "1"}), "TM104", "may not be called 'new'", "another"),
    "a type that loses": (
        lambda: machine({"last": ("fare", "INT")}),
        "TM102",
        "is of type DOUBLE, but the field is INT",
        "CAST(fare AS INT)",
    ),
    "a type that is none": (lambda: machine({"last": ("fare", "DUBLE")}), "TM100", "did you mean DOUBLE", "Spark DDL"),
    "an unknown column": (lambda: machine({"last": ("fares", "DOUBLE")}), "TM101", "unknown column 'fares'; did you mean 'fare'", "'fare'"),
    "a number as initial value": (
        lambda: machine({"last": ("fare", "DOUBLE", 0)}),
        "TM100",
        "not its next value and its type as texts",
        "as SQL: '0'",
    ),
    "a column as initial value": (lambda: machine({"last": ("fare", "DOUBLE", "v")}), "TM102", "reads the column 'v'", "a constant"),
    "an initial value of another type": (lambda: machine({"last": ("fare", "DOUBLE", "'x'")}), "TM102", "is of type STRING", "CAST('x'"),
    "a next value of the next": (lambda: machine({"last": ("new.last", "DOUBLE")}), "TM101", "reads 'new'", "as they were before"),
    "an unknown new value": (lambda: machine(returns={"x": "new.lst"}), "TM101", "the fields are: last", "new.last"),
    "all new values": (lambda: machine(returns={"x": "new"}), "TM101", "the fields are: last", "new.last"),
    "an aggregate in a field": (lambda: machine({"last": ("max(fare)", "DOUBLE")}), "TM102", "the aggregate 'max'", "aggregate per window"),
    "SQL that is none": (lambda: machine({"last": ("fare +", "DOUBLE")}), "TM102", "cannot be parsed", "correct the SQL"),
    "a subquery": (lambda: machine(emit_when="fare > (SELECT 1)"), "TM102", "contains a subquery", "one SQL expression"),
    "a condition that is none": (lambda: machine(emit_when="fare"), "TM102", "of type DOUBLE, not BOOLEAN", "emit_when='fare > 2 * last'"),
    "a condition that is no text": (lambda: machine(emit_when=wrong(True)), "TM100", "emit_when=True", "emit_when='fare"),
    "no fields": (lambda: machine({}), "TM100", "declares no field", "fields={'last'"),
    "a field without a type": (lambda: machine({"last": "fare"}), "TM100", "the field 'last' is 'fare'", "fields={'last'"),
    "no results": (lambda: machine(returns={}), "TM100", "names no column", "returns={'zone'"),
    "results in DDL": (lambda: machine(returns=wrong("zone STRING")), "TM100", "names no column", "returns={'zone'"),
    "a result that is no text": (lambda: machine(returns={"x": wrong(1)}), "TM100", "which is no SQL text", "returns={'zone'"),
    "two results of one name": (lambda: machine(returns={"x": "last", "X": "last"}), "TM104", "'x' and 'X'", "another name"),
    "a lifetime in words": (lambda: machine(ttl=wrong("1 day")), "TM100", "no lifetime of state", "tm.state_ttl('1 day')"),
    "a lifetime renewed by reading": (
        lambda: machine(ttl=tm.state_ttl("1 day", on_read=True)),
        "TM100",
        "renewed when state is read",
        "on_read",
    ),
    "results beside a machine": (
        lambda: KEYED.process(tm.sql_state(wrong(LAST), returns=BEFORE), returns="x INT"),
        "TM100",
        "and returns beside it",
        "leave them out",
    ),
    "a function without results": (lambda: KEYED.process(print), "TM100", "does not say which columns", "returns='zone INT"),
    "no aggregate": (KEYED.running_aggregate, "TM100", "given no aggregate", "trips=tm.count()"),
    "no call of an aggregate": (lambda: KEYED.running_aggregate(n=wrong(tm.count)), "TM100", "the function count(...)", "n=tm.count(...)"),
    "an aggregate like a key": (lambda: KEYED.running_aggregate(zone=tm.count()), "TM104", "'zone' and 'zone'", "another name"),
    "an aggregate of an unknown column": (
        lambda: KEYED.running_aggregate(n=tm.sum("tip")),
        "TM101",
        "unknown column 'tip'",
        "one of the columns",
    ),
    "an aggregate in Python": (
        lambda: KEYED.running_aggregate(n=tm.python_aggregate(int, max, max, abs, arguments=["v"], state="BIGINT", returns="BIGINT")),
        "TM100",
        "is a Python function",
        "tm.aggregating_state",
    ),
    "nothing to reduce": (KEYED.reduce, "TM100", "nothing to merge", "fare='a.fare + b.fare'"),
    "a function that reduces": (lambda: KEYED.reduce(max), "TM100", "the function max", "tm.reducing_state"),
    "a key reduced": (lambda: KEYED.reduce(zone="a.zone"), "TM104", "the key of that name", "leave 'zone' out"),
    "another row reduced": (lambda: KEYED.reduce(fare="fare + b.fare"), "TM102", "neither of the two rows", "a.fare"),
    "an unknown column reduced": (lambda: KEYED.reduce(tip="a.tip + b.tip"), "TM101", "'tip'", "one of the columns"),
    "the greatest of an unknown column": (lambda: KEYED.max_by("faer"), "TM101", "did you mean 'fare'", "'fare'"),
    "the greatest map": (lambda: KEYED.max_by("tags"), "TM101", "have no order", "to_json(tags)"),
    "the least of a number": (lambda: KEYED.min_by(wrong(3)), "TM102", "not SQL text", ".min_by('fare')"),
}


@pytest.mark.parametrize(("call", "code", "what", "fix"), CASES.values(), ids=CASES)
def test_what_is_refused_says_what_to_write(call: Callable[[], object], code: str, what: str, fix: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        call()
    assert caught.value.code == code, str(caught.value)
    assert what in caught.value.what, str(caught.value)
    assert fix in caught.value.fix, str(caught.value)
    assert (caught.value.place or "").startswith(__file__)


def test_a_column_called_new_is_no_trouble_unless_it_is_read() -> None:
    keyed = STREAM.select("at", "zone", new="v").key_by("zone")
    assert repr(keyed.process(tm.sql_state({"last": ("new", "BIGINT")}, returns={"x": "last"})))
    with pytest.raises(DefinitionError, match="which is a column of the stream and the fields' values"):
        keyed.process(tm.sql_state({"last": ("new", "BIGINT")}, returns={"x": "new.last"}))


def test_recursion_is_found() -> None:
    def of(fields: Any) -> bool:
        node = machine(fields, returns={"x": "1"}).node
        assert isinstance(node, SqlStateNode)
        described = kind_of(node).describe(node)
        assert ("element by element" in described) != ("from the element before" in described)
        assert ("element by element" in described) == depends_on_state(node)
        return depends_on_state(node)

    assert not of({"last": ("fare", "DOUBLE"), "high": ("fare > 3", "BOOLEAN", "false")})
    assert not of({"n": ("transform(array(v), n -> n + 1)[0]", "BIGINT")})
    assert of({"last": ("fare", "DOUBLE"), "two": ("LAST", "DOUBLE")})
    assert of({"n": ("`n` + 1", "BIGINT", "0")})


def test_explain_says_what_is_kept() -> None:
    ttl = tm.state_ttl("1 hour", domain="event")
    assert "state lives for 1h of event time" in repr(kind_of(machine(ttl=ttl).node).describe(machine(ttl=ttl).node))  # type: ignore[arg-type]
    found = KEYED.running_aggregate(total=tm.sum("fare"), ttl=ttl)
    assert repr(found) == "<Stream: running by zone: total = sum(fare), state lives for 1h of event time>"
    assert repr(KEYED.max_by("fare")) == "<Stream: running by zone: max_by fare>"
    assert repr(KEYED.reduce(fare="a.fare + b.fare")) == "<Stream: reduce by zone: fare = a.fare + b.fare>"
