"""Mistakes in functions over streams without keys, and in asynchronous ones: each gets an error with the place and a fix."""

# ruff: noqa: ARG001, ARG005 - functions here do not do with their arguments what they should

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import TidemarkError
from tidemark.testing import OperatorHarness

Row = Mapping[str, Any]
ASIDE, FAILED = tm.OutputTag("aside"), tm.OutputTag("failed")
SCHEMA = "id BIGINT, t BIGINT, fare DOUBLE"
TIMED = tm.ascending(timestamp="t")


def rides() -> tm.Stream:
    return tm.source("rides", tm.from_elements([], schema=SCHEMA), watermarks=TIMED)


def rules() -> Any:
    return tm.source("limits", tm.from_elements([], schema=SCHEMA), watermarks=TIMED).broadcast("limits", key="id", value="fare DOUBLE")


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


def passes(element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    del ctx
    yield element


async def fetch(row: Row) -> Row:
    await asyncio.sleep(0)
    return {"id": row["id"]}


def plain(row: Row) -> Row:
    return row


async def several(row: Row) -> AsyncIterator[Row]:
    yield row


async def two(row: Row, other: Row) -> Row:
    del other
    return row


class Counts:
    n = tm.value_state("BIGINT", default=0)

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        """Count."""


class Waits:
    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        """Do nothing."""

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        """Do nothing."""


class Needs:
    def __init__(self, url: str) -> None:
        self.url = url

    async def invoke(self, row: Row) -> Row:
        return row


class OpensWithContext:
    def open(self, ctx: tm.ProcessContext) -> None:
        """Do nothing."""

    async def invoke(self, row: Row) -> Row:
        return row


class AsyncOpen:
    async def open(self, ctx: tm.ProcessContext) -> None:
        """Do nothing."""

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        """Do nothing."""


class Nothing:
    """Has no method to call."""


IDS = "id BIGINT"

DEFINITIONS: dict[str, tuple[Callable[[], object], str, str]] = {
    "a function that is not async": (
        lambda: rides().async_map(plain, returns=IDS),
        "async_map is given plain, which is no async function",
        "write async def",
    ),
    "a lambda": (lambda: rides().async_map(lambda row: row, returns=IDS), "which is no async function", "write async def"),
    "an async generator": (lambda: rides().async_map(several, returns=IDS), "which yields rows", ".explode"),
    "an async function of two": (lambda: rides().async_map(two, returns=IDS), "calls 'two' with one argument", "async def"),
    "no function": (lambda: rides().async_map(wrong(7), returns=IDS), "given 7, not a function", "async def"),
    "a class that needs arguments": (
        lambda: rides().async_map(Needs, returns=IDS),
        "the class Needs, and an object of it cannot be made",
        ".async_map(Needs(...), ...)",
    ),
    "an object without a method": (lambda: rides().async_map(Nothing(), returns=IDS), "not a function", "async def invoke"),
    "open with a context": (lambda: rides().async_map(OpensWithContext, returns=IDS), "calls open of OpensWithContext", "def open(self)"),
    "no capacity": (lambda: rides().async_map(fetch, returns=IDS, capacity=0), "capacity=0", "capacity=100"),
    "capacity as text": (lambda: rides().async_map(fetch, returns=IDS, capacity=wrong("9")), "capacity='9'", "capacity=100"),
    "negative retries": (lambda: rides().async_map(fetch, returns=IDS, retries=-1), "retries=-1", "retries=3"),
    "a timeout without a unit": (lambda: rides().async_map(fetch, returns=IDS, timeout=wrong(30)), "async_map timeout", "'30 seconds'"),
    "a timeout of nothing": (lambda: rides().async_map(fetch, returns=IDS, timeout="0 seconds"), "must be positive", "10 seconds"),
    "ordered as text": (lambda: rides().async_map(fetch, returns=IDS, ordered=wrong("no")), "ordered='no'", "one of them"),
    "no columns": (
        lambda: rides().async_map(fetch, returns=wrong(None)),
        "async_map(returns=...) is None, neither Spark DDL",
        "returns='driver",
    ),
    "columns that cannot be read": (lambda: rides().async_map(fetch, returns="BIGINT, id"), "async_map(returns=...)", ""),
    "an error column twice": (
        lambda: rides().with_columns(error="'none'").async_map(fetch, returns=IDS, on_error=FAILED),
        "the stream has one already",
        "rename it",
    ),
    "on_error that is no tag": (lambda: rides().async_map(fetch, returns=IDS, on_error=wrong("failed")), "on_error", "OutputTag"),
    "an async function to process": (lambda: rides().process(wrong(two), returns=IDS), "is an async function", ".async_map("),
    "a function of one to process": (lambda: rides().process(plain, returns=IDS), "calls 'plain' with two arguments", "process(self"),
    "state without a key": (lambda: rides().process(Counts, returns=IDS), "which has the state 'n'", ".key_by('id').process(Counts"),
    "declared state without a key": (
        lambda: wrong(rides()).process(passes, returns=IDS, state={"n": tm.value_state("BIGINT")}),
        ".process(...) has no argument 'state'",
        ".key_by('zone').process(..., state=...)",
    ),
    "timers without a key": (lambda: rides().process(Waits, returns=IDS), "which has on_timer", ".key_by('id').process(Waits"),
    "an async open": (lambda: rides().process(AsyncOpen, returns=IDS), "open is an async function", "def instead of async def"),
    "one tag for two": (
        lambda: rides().process(passes, returns=IDS, side_outputs={ASIDE: IDS}, on_error=ASIDE),
        "for on_error and in side_outputs",
        "its own tag",
    ),
    "a tag without columns": (lambda: rides().process(passes, returns=IDS, side_outputs=wrong([ASIDE])), "which columns", "OutputTag"),
    "connected to a stream": (lambda: rides().connect(wrong(rides())), "connected to a broadcast stream only", ".broadcast("),
    "connected to a keyed stream": (lambda: rides().connect(wrong(rides().key_by("id"))), "to a broadcast stream only", "key both"),
    "a filter of one argument": (lambda: rides().connect(rules()).filter(lambda element: True), "with two arguments", "filter(self"),
    "a broadcast map without a uid": (
        lambda: tm.Job("j", outputs={"o": tm.memory(rides().connect(rules()).filter(lambda e, ctx: True), "x")}, store="s"),
        "keeps state and has no uid",
        ".uid(",
    ),
    "a broadcast value that there is not": (
        lambda: rides().connect(rides().broadcast("limits", key="id", value="most DOUBLE")).map(lambda element, ctx: element, returns=IDS),
        "has a value 'most'",
        "value=...",
    ),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_where_it_is_defined(name: str) -> None:
    act, what, fix = DEFINITIONS[name]
    with pytest.raises(TidemarkError) as caught:
        act()
    error = caught.value
    assert error.code.startswith("TM1")
    assert what in error.what
    assert fix in error.fix
    assert error.place is not None
    assert error.place.partition(":")[0] == __file__


def state(element: Row, ctx: tm.ProcessContext) -> None:
    ctx.state.n.update(1)


def timer(element: Row, ctx: tm.ProcessContext) -> None:
    ctx.timer_service().register_event_time_timer(ctx.timestamp + 1)


def key(element: Row, ctx: tm.ProcessContext) -> None:
    print(ctx.current_key)


def unknown_tag(element: Row, ctx: tm.ProcessContext) -> None:
    ctx.output(tm.OutputTag("other"), {"id": 1})


def one_dict(element: Row, ctx: tm.ProcessContext) -> Any:
    return {"id": element["id"]}


def numbers(element: Row, ctx: tm.ProcessContext) -> Any:
    return [1, 2]


def other_column(element: Row, ctx: tm.ProcessContext) -> Any:
    return [{"ident": element["id"]}]


def text_as_number(element: Row, ctx: tm.ProcessContext) -> Any:
    return [{"id": "one"}]


async def no_row(row: Row) -> Any:
    del row


async def text_for_number(row: Row) -> Row:
    return {"id": f"{row['id']}"}


def process(function: object) -> tm.Stream:
    return rides().process(function, returns=IDS)


def enrich(function: object) -> tm.Stream:
    return rides().async_map(function, returns=IDS)


def changes_map(element: Row, ctx: tm.ProcessContext) -> Any:
    ctx.broadcast["limits"][element["id"]] = {"fare": 1.0}  # type: ignore[index]


def says_neither(element: Row, ctx: tm.ProcessContext) -> Any:
    del ctx
    return element["id"]


CALLS: dict[str, tuple[tm.Stream, str, str]] = {
    "state": (process(state), "without keys has no state", ".key_by('id')"),
    "a timer": (process(timer), "without keys has no timers", ".key_by('id')"),
    "the current key": (process(key), "has no current key", ".key_by('id')"),
    "a tag that is not declared": (process(unknown_tag), "there is no side output 'other'", "declare it"),
    "a dict instead of rows": (process(one_dict), "process returned {'id': 7}, not rows", "yield each row"),
    "numbers as rows": (process(numbers), "process emitted 1 as a row", "yield each row"),
    "a column that is not declared": (process(other_column), "'ident'", "returns="),
    "a value of another type": (process(text_as_number), "'one'", "returns="),
    "no row from an async function": (enrich(no_row), "no_row returned None, not a row", "return a dict"),
    "a value of another type from an async function": (enrich(text_for_number), "'7'", "returns="),
    "neither true nor false": (rides().connect(rules()).filter(says_neither), "filter returned 7, neither true nor false", "return a bool"),
}


@pytest.mark.parametrize("name", CALLS)
def test_where_it_is_called(name: str) -> None:
    stream, what, fix = CALLS[name]
    harness = OperatorHarness(stream.uid("rides-op"))
    port = "elements" if len(stream.node.PORTS) > 1 else None  # type: ignore[attr-defined]
    harness.process({"id": 7, "t": 1, "fare": 2.5}, at=1, port=port)
    with pytest.raises(TidemarkError) as caught:
        harness.end_input()
    assert what in caught.value.what
    assert fix in caught.value.fix


def test_a_broadcast_map_cannot_be_changed() -> None:
    harness = OperatorHarness(rides().connect(rules()).process(changes_map, returns=IDS, on_error=FAILED).uid("op"))
    harness.process({"id": 7, "t": 1, "fare": 2.5}, at=1, port="elements")
    assert harness.end_input() == []
    ((failed),) = harness.side_output(FAILED)
    assert "changes a broadcast map, which it can only read" in str(failed["error"])
