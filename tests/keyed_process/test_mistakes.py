"""What a process function may get wrong: each mistake says what is wrong, where, and what to write instead."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError, TidemarkError, UserCodeError
from tidemark.semantics.keyed_process.broadcast_maps import read_only
from tidemark.semantics.user_rows import MAX_ROWS
from tidemark.testing import OperatorHarness

READ = tm.source("rides", tm.files("in", format="json", schema="k STRING, at TIMESTAMP, v BIGINT"), watermarks=tm.ascending(timestamp="at"))
KEYED = READ.key_by("k")
TAG = tm.OutputTag("told")
ROWS = "v BIGINT"
Row = Mapping[str, Any]


def nothing(element: Row, ctx: tm.ProcessContext) -> None: ...


async def asynchronous(element: Row, ctx: tm.ProcessContext) -> None: ...


class Nothing:
    def process(self, element: Row, ctx: tm.ProcessContext) -> None: ...


class AsynchronousTimer(Nothing):
    async def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None: ...


class NeedsArguments(Nothing):
    def __init__(self, limit: int) -> None: ...


class ReadsInInit(Nothing):
    last = tm.value_state("BIGINT")

    def __init__(self) -> None:
        self.last.value()


class DeclaresTwice(Nothing):
    last = tm.value_state("BIGINT")


@dataclasses.dataclass
class NoDefault:
    n: int


@dataclasses.dataclass
class OddType:
    n: object = None


@dataclasses.dataclass
class OddDefault:
    n: int = "none"  # type: ignore[assignment]


def method(name: str, base: type = Nothing) -> object:
    """Return a function that has another method."""

    def called_by_nothing(self: object, given: object, ctx: object) -> None:
        """Take as many arguments as the method that is meant."""

    return type("Has", (base,), {name: called_by_nothing})()


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


def processed(function: object = nothing, *, returns: object = ROWS, **settings: object) -> tm.Stream:
    return KEYED.process(function, returns=wrong(returns), **wrong(settings)).uid("told")


def checked(stream: tm.Stream) -> None:
    tm.Job("rides", outputs={"told": tm.memory(stream, "told")})


DEFINITIONS: dict[str, tuple[Callable[[], object], str, str]] = {
    "no function": (lambda: processed(7), "process is given 7, which has no process(element, ctx)", "pass a function"),
    "an object without process": (lambda: processed(object()), "which has no process(element, ctx)", "process(self, element, ctx)"),
    "one argument": (lambda: processed(lambda element: None), "with two arguments: too many positional arguments", "element, ctx"),  # noqa: ARG005
    "async def": (lambda: processed(asynchronous), "process is an async function", "write def"),
    "an async timer": (lambda: processed(AsynchronousTimer()), "on_timer is an async function", "write def"),
    "a class that needs arguments": (
        lambda: processed(NeedsArguments),
        "missing 1 required positional argument: 'limit'",
        "pass an object",
    ),
    "state read in __init__": (lambda: processed(ReadsInInit), "'last' is read where there is no key", "pass an object"),
    "a type that is not": (lambda: processed(returns="v BIGNT"), "there is no type 'BIGNT', did you mean BIGINT?", "Spark DDL"),
    "columns as a dict": (lambda: processed(returns={"v": "BIGINT"}), "neither Spark DDL nor a dataclass", "returns='driver BIGINT"),
    "a column twice": (lambda: processed(returns="v INT, v INT"), "has column 'v' twice", "another name"),
    "a hidden column": (lambda: processed(returns="__tm_v INT"), "'__tm_' are the engine's own", "another name"),
    "side outputs as a list": (lambda: processed(side_outputs=[TAG]), "does not say which columns a tag has", "tm.OutputTag('alerts'): '"),
    "a side output's type": (lambda: processed(side_outputs={TAG: "v FOO"}), "the side output 'told'", "Spark DDL"),
    "a side output by name": (
        lambda: processed(side_outputs={"told": ROWS}),
        "side_outputs is 'told', not an output tag",
        "tm.OutputTag('told')",
    ),
    "one tag for two": (lambda: processed(side_outputs={TAG: ROWS}, on_error=TAG), "for on_error and in side_outputs", "its own tag"),
    "on_error by name": (lambda: processed(on_error="told"), "on_error is 'told', not an output tag", "tm.OutputTag('told')"),
    "a column 'error'": (
        lambda: READ.with_columns(error="v").key_by("k").process(nothing, returns=ROWS, on_error=TAG).uid("told"),
        "adds a column 'error'",
        "rename it before",
    ),
    "a state's type": (lambda: tm.value_state("FOO"), "there is no type 'FOO'", "Spark DDL"),
    "a state's type of Python": (lambda: tm.value_state(wrong(int)), "the type of value_state is builtins.int, not a text", "'BIGINT'"),
    "a map's types of Python": (lambda: tm.map_state(wrong(str), "INT"), "the type of map_state's keys is builtins.str", "'STRING'"),
    "a function for two inputs": (
        lambda: KEYED.connect(KEYED).process(nothing, returns=ROWS),
        "process is given tests.keyed_process.test_mistakes.nothing, which has no process1",
        "process1(self, element, ctx)",
    ),
    "inherited states without a key": (
        lambda: READ.process(type("Heir", (DeclaresTwice,), {}), returns=ROWS),
        "which has the state 'last'",
        "key the stream",
    ),
    "a default for all": (lambda: tm.value_state("ARRAY<INT>", default=[]), "is one object for all keys", "leave it out"),
    "a decimal too fine": (lambda: tm.value_state("DECIMAL(4, 2)", default=Decimal("1.234")), "no value of DECIMAL", "state's type"),
    "a decimal too large": (lambda: tm.value_state("DECIMAL(4, 2)", default=100), "no value of DECIMAL(4, 2)", "state's type"),
    "a float too large": (lambda: tm.value_state("FLOAT", default=1e300), "no value of FLOAT", "state's type"),
    "a default of another type": (lambda: tm.value_state("BIGINT", default="x"), "'x' (str), which is no value of BIGINT", "state's type"),
    "a default that is a bool": (
        lambda: tm.value_state("BIGINT", default=True),
        "True (bool), which is no value of BIGINT",
        "state's type",
    ),
    "a default that is too large": (
        lambda: tm.value_state("TINYINT", default=1000),
        "1000 (int), which is no value of TINYINT",
        "state's type",
    ),
    "a default that is a time": (
        lambda: tm.value_state("DATE", default=datetime(2026, 1, 1, tzinfo=UTC)),
        "which is no value of DATE",
        "state's type",
    ),
    "a state's name": (
        lambda: processed(state={"a b": tm.value_state("INT")}),
        "a state 'a b', which is no name of an attribute",
        "last_fare",
    ),
    "a hidden state": (lambda: processed(state={"__tm_a": tm.value_state("INT")}), "'__tm_' are the engine's own", "another name"),
    "no state": (lambda: processed(state={"a": 7}), "neither states by name nor a dataclass", "tm.value_state('DOUBLE')"),
    "states as a list": (lambda: processed(state=[tm.value_state("INT")]), "neither states by name nor a dataclass", "dataclass"),
    "a state named as a key": (
        lambda: checked(processed(state={"K": tm.value_state("INT")})),
        "the state 'K', and a key has this name",
        "such as 'K_state'",
    ),
    "a state twice": (
        lambda: processed(DeclaresTwice(), state={"last": tm.value_state("INT")}),
        "in the class and in state=",
        "one of them",
    ),
    "a field without a default": (lambda: processed(state=NoDefault), "'n' of NoDefault has no default", "n: int = ..."),
    "a field of no type": (lambda: processed(state=OddType), "'n' of OddType is of type", "tm.value_state('...')"),
    "a field's default": (lambda: processed(state=OddDefault), "'none' (str), which is no value of BIGINT", "state's type"),
    "a lifetime as text": (lambda: tm.list_state("INT", ttl=wrong("1 hour")), "ttl is '1 hour'", "tm.state_ttl('7 days')"),
    "a lifetime of nothing": (lambda: tm.state_ttl("0 seconds"), "keeps nothing", "state_ttl('7 days')"),
    "a lifetime that is none": (lambda: tm.state_ttl("soon"), "'soon' is not a duration", "'10 seconds'"),
    "a lifetime's time": (lambda: tm.state_ttl("1 hour", domain=wrong("wall")), "domain='wall'", "domain='processing'"),
    "lists as keys of a map": (lambda: tm.map_state("ARRAY<INT>", "INT"), "keys of the type ARRAY<INT>", "STRING or BIGINT"),
    "no reducing function": (lambda: tm.reducing_state("INT", wrong(7)), "reducing_state is given 7", "max"),
    "a reducing function of one": (lambda: tm.reducing_state("INT", wrong(lambda one: one)), "with two arguments", "max"),
    "no uid": (lambda: checked(KEYED.process(nothing, returns=ROWS)), "keeps state and has no uid", ".uid('hourly-tips')"),
    "a stream without a key": (lambda: KEYED.connect(wrong(READ)), "neither a keyed stream nor a broadcast one", "other.key_by('id')"),
    "keys of two types": (
        lambda: checked(KEYED.connect(READ.key_by("v")).process(Pairs(), returns=ROWS).uid("told")),
        "BIGINT",
        "CAST",
    ),
    "Flink's name of a timer's method": (
        lambda: checked(processed(method("onTimer"))),
        "whose method 'onTimer' is called by nothing",
        "name it on_timer(self, timestamp, ctx)",
    ),
    "a method of connected streams": (
        lambda: checked(processed(method("process1", object))),
        "whose method 'process1' is called by nothing",
        "connect two streams",
    ),
    "Flink's name of a method of two": (
        lambda: KEYED.connect(KEYED).process(method("processElement2"), returns=ROWS),
        "whose method 'processElement2' is called by nothing",
        "name it process2(self, element, ctx)",
    ),
    "one method for two inputs": (
        lambda: KEYED.connect(KEYED).process(Nothing(), returns=ROWS),
        "has no process1(element, ctx)",
        "process1",
    ),
    "a map's name": (lambda: READ.broadcast("a b", key="k", value=ROWS), "broadcast map name 'a b' is not allowed", "letters"),
    "a map's key": (lambda: limited(key="nope"), "unknown column 'nope'", "use one of the columns"),
    "a map's value of another type": (
        lambda: limited(value="v STRING"),
        "broadcast 'limits' has a value 'v' of type STRING, and the stream's column is of type BIGINT",
        "CAST(v AS STRING)",
    ),
    "what removes is no condition": (
        lambda: limited(removes="v"),
        "broadcast 'limits' removes 'v' is of type BIGINT, not BOOLEAN",
        "write a condition",
    ),
    "a map's value": (lambda: limited(value="limit BIGINT"), "has a value 'limit', and the stream has no such column", "name columns"),
}


class Pairs:
    def process1(self, element: Row, ctx: tm.ProcessContext) -> None: ...

    def process2(self, element: Row, ctx: tm.ProcessContext) -> None: ...


def limited(**settings: Any) -> None:
    limits = READ.broadcast("limits", **{"key": "k", "value": ROWS, **settings})
    checked(KEYED.connect(limits).process(nothing, returns=ROWS).uid("told"))


@pytest.mark.parametrize(("make", "what", "fix"), DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_wrong_definition(make: Callable[[], object], what: str, fix: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert what in caught.value.what
    assert fix in caught.value.fix
    assert (caught.value.place or "").startswith(__file__)


class Calls:
    """Calls what it is given with itself and the context."""

    last = tm.value_state("BIGINT")
    seen = tm.map_state("BIGINT", "STRING")

    def __init__(self, call: Callable[[Any, Any], Any]) -> None:
        self.call = call

    def process(self, element: Row, ctx: tm.ProcessContext) -> Any:
        del element
        return self.call(self, ctx)


class ReadsInOpen(Calls):
    def open(self, ctx: tm.ProcessContext) -> None:
        del ctx
        self.last.value()


class ReadsInClose(Calls):
    def close(self) -> None:
        self.last.value()


class KeyInOpen(Calls):
    def open(self, ctx: tm.ProcessContext) -> None:
        assert ctx.current_key


class TimerInOpen(Calls):
    def open(self, ctx: tm.ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(5)


class NeverMovesOn(Calls):
    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(timestamp)


def endless(_self: object, _ctx: object) -> Iterator[Row]:
    while True:
        yield {"v": 1}


def timer(_self: object, ctx: tm.ProcessContext) -> None:
    ctx.timer_service().register_event_time_timer(5)


def of(call: Callable[[Any, Any], Any]) -> Calls:
    return Calls(call)


CALLS: dict[str, tuple[object, str, str]] = {
    "text into a number's state": (of(lambda me, _: me.last.update("x")), "'x' (str), which does not fit BIGINT", "declared type"),
    "a fraction into an integer's": (of(lambda me, _: me.last.update(1.5)), "1.5 (float), which does not fit BIGINT", "declared type"),
    "text as a map's key": (of(lambda me, _: me.seen.put("x", "y")), "a key of the state 'seen' is given 'x' (str)", "declared type"),
    "nothing as a map's key": (of(lambda me, _: me.seen.put(None, "y")), "a key of the state 'seen' is None", "leave"),
    "assignment": (of(lambda me, _: setattr(me, "last", 1)), "the state 'last' is assigned to", "self.last.update(1)"),
    "state in open": (ReadsInOpen(lambda *_: None), "there is none in open() and close()", "use it in process"),
    "state in close": (ReadsInClose(lambda *_: None), "there is none in open() and close()", "use it in process"),
    "the key in open": (KeyInOpen(lambda *_: None), "there is no key in open() and close()", "read it in process"),
    "a timer in open": (TimerInOpen(lambda *_: None), "timers belong to a key", "set them in process"),
    "an unknown tag": (of(lambda _, ctx: ctx.output(tm.OutputTag("up"), {})), "there is no side output 'up'", "there are: told"),
    "a side row that is none": (of(lambda _, ctx: ctx.output(TAG, 7)), "the side output 'told' is given 7 as a row", "dict"),
    "a side row's column": (of(lambda _, ctx: ctx.output(TAG, {"w": 1})), "it has 'w'", "side output's columns"),
    "a side row's value": (of(lambda _, ctx: ctx.output(TAG, {"v": "x"})), "'x' (str) as 'v', which does not fit BIGINT", "side output"),
    "a timer without on_timer": (of(timer), "sets timers and has no on_timer", "on_timer(self, timestamp, ctx)"),
    "a timer's time": (of(lambda _, ctx: ctx.timer_service().register_event_time_timer(5.5)), "a timer's time is 5.5", "give an int"),
    "a timer's name": (of(lambda _, ctx: ctx.timer_service().register_event_time_timer(5, 7)), "a timer's name is 7", "give a text"),
    "which timer": (of(lambda _, ctx: ctx.timer_service().delete_event_time_timer()), "by its time or by its name", "one of them"),
    "a timer that does not move on": (NeverMovesOn(timer), "fired more than 100,000 times", "a later time"),
    "a number returned": (of(lambda *_: 7), "returned 7, not rows", "yield each row"),
    "a dict returned": (of(lambda *_: {"v": 1}), "returned {'v': 1}, not rows", "return a list of dicts"),
    "a text returned": (of(lambda *_: "v"), "returned 'v', not rows", "yield each row"),
    "a number as a row": (of(lambda *_: [7]), "emitted 7 as a row", "dict"),
    "an unknown column": (of(lambda *_: [{"w": 7}]), "it has 'w'", "types in returns"),
    "a value of another type": (of(lambda *_: [{"v": "x"}]), "'x' (str) as 'v', which does not fit BIGINT", "types in returns"),
    "a value of no type": (of(lambda *_: [{"v": object()}]), "(object) as 'v', which does not fit BIGINT", "types in returns"),
    "an unknown broadcast map": (of(lambda _, ctx: ctx.broadcast["nope"]), "there is no broadcast map 'nope'", "no broadcast stream"),
    "a changed broadcast map": (of(lambda _, ctx: ctx.broadcast.update(a={})), "which it can only read", "through the broadcast stream"),
    "a tag behind its row": (
        of(lambda _, ctx: ctx.output({"v": 1}, TAG)),
        "the side output is {'v': 1}, not a tag",
        "ctx.output(tag, row)",
    ),
    "Flink's name of the key": (of(lambda _, ctx: ctx.getCurrentKey()), "the context has no 'getCurrentKey'", "write ctx.current_key"),
    "Flink's name of the watermark": (
        of(lambda _, ctx: ctx.timer_service().currentWatermark()),
        "the timer service has no 'currentWatermark'",
        "write ctx.timer_service().current_watermark()",
    ),
    "Flink's name of a timer": (
        of(lambda _, ctx: ctx.timer_service().registerEventTimeTimer(5)),
        "the timer service has no 'registerEventTimeTimer'",
        "write ctx.timer_service().register_event_time_timer()",
    ),
    "get of a value": (of(lambda me, _: me.last.get()), "the state 'last' has no 'get'", "write last.value()"),
    "entries of a map": (of(lambda me, _: me.seen.entries()), "the state 'seen' has no 'entries'", "write seen.items()"),
    "an unknown state": (of(lambda _, ctx: ctx.state.nope.value()), "there is no state 'nope'", "there are: last, seen"),
}


@pytest.mark.parametrize(("function", "what", "fix"), CALLS.values(), ids=CALLS)
def test_a_wrong_call(function: object, what: str, fix: str) -> None:
    harness = OperatorHarness(processed(function, side_outputs={TAG: ROWS}))
    harness.process({"k": "a", "at": 1, "v": 5}, at=1)
    with pytest.raises(TidemarkError) as caught:
        harness.advance_watermark(100)
    assert isinstance(caught.value, UserCodeError | DefinitionError)
    assert what in caught.value.what
    assert fix in caught.value.fix
    assert (", for the key {'k': 'a'}" in caught.value.what) != ("open() and close()" in caught.value.what)
    assert caught.value.uid == "told"
    assert caught.value.place is None or "/test_mistakes.py:" in caught.value.place


def test_a_generator_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ROWS == 1_000_000
    for module in ("user_rows", "keyed_process.walk"):
        monkeypatch.setattr(f"tidemark.semantics.{module}.MAX_ROWS", 1_000)
    harness = OperatorHarness(processed(of(endless)))
    harness.process({"k": "a", "at": 1, "v": 5}, at=1)
    with pytest.raises(UserCodeError, match="emitted 1,000 rows in one call, and has not ended") as caught:
        harness.advance_watermark(100)
    assert "have it end" in caught.value.fix


def test_a_key_cannot_be_changed() -> None:
    def change(_self: object, ctx: tm.ProcessContext) -> None:
        wrong(ctx.current_key)["k"] = "b"

    harness = OperatorHarness(processed(of(change)))
    harness.process({"k": "a", "at": 1, "v": 5}, at=1)
    with pytest.raises(TypeError, match="does not support item assignment"):
        harness.advance_watermark(100)


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, dict])
def test_a_copy_of_what_a_broadcast_map_holds_can_be_changed(copies: Callable[[Any], Any]) -> None:
    maps = read_only({"limits": {"a": {"v": 5}}})
    copied = copies(maps["limits"]["a"])
    copied["v"] = 7
    assert (copied, maps["limits"]["a"]) == ({"v": 7}, {"v": 5})
