"""States as users declare them: by attributes of a class, beside a plain function, as a dataclass; all three mean the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidemark.errors import DefinitionError, UserCodeError
from tidemark.graph.api.states import aggregating_state, list_state, map_state, reducing_state, state_ttl, value_state
from tidemark.graph.operators.keyed_process.descriptors import declared_states
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.semantics.keyed_process.context import ProcessContext, Row
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Output, Walked

PLACE = "job.py:1"
MINUTE = 60_000


class LongRides:
    """Alerts of rides that take more than two hours: Flink's exercise."""

    started = value_state("BIGINT")

    def process(self, row: Row, ctx: ProcessContext) -> None:
        timers = ctx.timer_service()
        if row["is_start"]:
            self.started.update(ctx.timestamp)
            timers.register_event_time_timer(ctx.timestamp + 120 * MINUTE, "too long")
        else:
            timers.delete_event_time_timer(name="too long")
            self.started.clear()

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterator[Row]:
        del timestamp
        yield {"ride": ctx.current_key["ride"], "since": self.started.value()}
        self.started.clear()


def beside(row: Row, ctx: ProcessContext) -> Iterator[Row]:
    last = ctx.state.last.value()
    if last is not None and row["fare"] > 2 * last:
        yield {"jump": row["fare"]}
    ctx.state.last.update(row["fare"])


@dataclass
class Made:
    seen: list[float] = field(default_factory=list)


@dataclass
class Trip:
    last: float = 0.0
    rides: int = 0


def by_fields(row: Row, ctx: ProcessContext) -> Iterator[Row]:
    if ctx.state.rides and row["fare"] > 2 * ctx.state.last:
        yield {"jump": row["fare"]}
    ctx.state.last = row["fare"]
    ctx.state.rides += 1


class ByAttributes:
    last = value_state("DOUBLE")

    def process(self, row: Row, ctx: ProcessContext) -> Iterator[Row]:
        del ctx
        last = self.last.value()
        if last is not None and row["fare"] > 2 * last:
            yield {"jump": row["fare"]}
        self.last.update(row["fare"])


def run(
    function: object, elements: Sequence[tuple[Row, int]], *, state: object = None, watermark: int = 10**9
) -> tuple[list[Row], KeyRecord]:
    declared = declared_states(function, state, PLACE)
    bound = BoundFunction(function, fields=isinstance(state, type))
    declarations = {name: each.declaration(name) for name, each in declared.items()}
    walk = ElementWalk(bound, declarations, frozenset(), EpochTimes(-1, watermark, 0, 0))
    record = KeyRecord()
    found = [each.row for each in walk.run({"ride": 7}, record, [(*each, 0) for each in elements], Walked()) if isinstance(each, Output)]
    return found, record


def test_three_ways_that_mean_the_same() -> None:
    elements = [({"fare": fare}, number) for number, fare in enumerate([4.0, 5.0, 11.0, 22.0, 50.0])]
    ways = [(ByAttributes(), None), (beside, {"last": value_state("DOUBLE")}), (by_fields, Trip)]
    assert [run(function, elements, state=state)[0] for function, state in ways] == [[{"jump": 11.0}, {"jump": 50.0}]] * 3


def test_flinks_long_rides() -> None:
    early = [({"is_start": True}, 0), ({"is_start": False}, 119 * MINUTE)]
    assert run(LongRides(), early) == ([], KeyRecord())
    rows, record = run(LongRides(), [({"is_start": True}, 0), ({"is_start": False}, 150 * MINUTE)])
    assert rows == [{"ride": 7, "since": 0}]
    assert record.is_empty
    rows, record = run(LongRides(), [({"is_start": True}, 0)], watermark=100 * MINUTE)
    assert rows == []
    assert record.next_timer("event") == 120 * MINUTE


@dataclass
class NoDefault:
    last: float


@dataclass
class OddType:
    last: complex


class Badly:
    last = value_state("DOUBLE")


class Upper:
    last = value_state("DOUBLE")
    Last = value_state("DOUBLE")


class Shared:
    low = high = value_state("BIGINT")


LIMIT = value_state("BIGINT")


class Under:
    limit = LIMIT


class Under2(Under):
    """Takes the states of its parent."""


class Over:
    limit = LIMIT


class Renamed:
    bound = LIMIT


class Later:
    pass


def test_a_state_may_be_set_as_an_attribute_of_a_class() -> None:
    Later.last = value_state("BIGINT", default=3)  # type: ignore[attr-defined]
    assert list(declared_states(Later(), None, PLACE)) == ["last"]
    with pytest.raises(DefinitionError, match="the state 'last' is read where there is no key"):
        _ = Later().last  # type: ignore[attr-defined]


@pytest.mark.parametrize("function", [Under(), Under2(), Over()])
def test_a_state_of_one_name_may_be_of_several_classes(function: object) -> None:
    assert list(declared_states(function, None, PLACE)) == ["limit"]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: value_state("DOUBEL"), "the type of value_state 'value DOUBEL' cannot be read"),
        (lambda: value_state(""), "the type of value_state"),
        (lambda: value_state("ARRAY<INT>", default=[]), "value_state(default=[]) is one object for all keys"),
        (lambda: map_state("WORD", "INT"), "the type of map_state's keys"),
        (lambda: list_state("DUBLE"), "the type of list_state"),
        (lambda: reducing_state("INT", abs), "reducing_state calls 'abs' with two arguments"),  # type: ignore[arg-type]
        (lambda: aggregating_state("INT", create=0, add=max, result=str), "aggregating_state(create=0) is not a function"),  # type: ignore[arg-type]
        (lambda: state_ttl("0 days"), "state_ttl of zero length keeps nothing"),
        (lambda: state_ttl("1 day", domain="wall"), "state_ttl(domain='wall') is no time"),  # type: ignore[arg-type]
        (lambda: declared_states(Badly(), {"last": value_state("INT")}, PLACE), "the state 'last' is declared in the class and in state="),
        (lambda: declared_states(Shared(), None, PLACE), "the states 'low' and 'high' are one object"),
        (lambda: declared_states(Renamed(), None, PLACE), "the states 'limit' and 'bound' are one object"),
        (lambda: declared_states(Upper(), None, PLACE), "process(state=...) has columns 'last' and 'Last'"),
        (lambda: declared_states(beside, {"__tm_x": value_state("INT")}, PLACE), "process(state=...) has column '__tm_x'"),
        (lambda: declared_states(beside, {"last": "DOUBLE"}, PLACE), "process(state={'last': 'DOUBLE'}) is neither states by name nor a"),
        (lambda: declared_states(beside, Made, PLACE), "the field 'seen' of Made has a default_factory"),
        (lambda: value_state("INT").update(1), "a value state is made in __init__ or open()"),  # type: ignore[attr-defined]
        (lambda: declared_states(beside, NoDefault, PLACE), "the field 'last' of NoDefault has no default"),
        (
            lambda: declared_states(beside, OddType, PLACE),
            "the field 'last' of OddType is of type",
        ),
        (lambda: Badly().last, "the state 'last' is read where there is no key"),
        (lambda: setattr(Badly(), "last", 5), "the state 'last' is assigned to"),
    ],
)
def test_wrong_declarations_are_refused(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        declare()
    assert raised.value.what.startswith(message), raised.value.what
    assert raised.value.fix


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ctx: ctx.state.lost, "there is no state 'lost'"),
        (lambda ctx: setattr(ctx.state, "last", 5), "ctx.state.last is assigned to"),
        (lambda ctx: bool(ctx.state.last), "the state 'last' is used as if it were its value"),
        (lambda ctx: ctx.state.last == 0, "the state 'last' is used as if it were its value"),
        (lambda ctx: ctx.state.last + 1, "the state 'last' is used as if it were its value"),
        (lambda ctx: ctx.get_state("last"), "the context has no 'get_state': states are declared, not asked for"),
        (lambda ctx: ctx.timerService(), "the context has no 'timerService'"),
        (lambda ctx: ctx.timer_service().register_event_time_timer(0), "<lambda> sets timers and has no on_timer"),
    ],
)
def test_wrong_uses_are_refused(call: Callable[[ProcessContext], Any], message: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        run(lambda _row, ctx: call(ctx) and None, [({}, 1)], state={"last": value_state("INT")})
    assert raised.value.what == message


def test_a_field_with_a_factory_is_mended_by_what_the_error_says() -> None:
    with pytest.raises(DefinitionError, match=re.escape("write seen: list[float] | None = None")):
        declared_states(beside, Made, PLACE)

    @dataclass
    class Mended:
        seen: list[float] | None = None

    assert declared_states(beside, Mended, PLACE)["seen"].type == "ARRAY<DOUBLE>"
