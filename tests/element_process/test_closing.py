"""A function is closed at the end of a task, also where it fails; an error of ``close`` hides none that was before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import UserCodeError
from tidemark.semantics.closing import closing
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.operators.keyed_process.task import ProcessKeys
from tidemark.testing import OperatorHarness

RIDES = tm.source("rides", tm.from_elements([], schema="k STRING, t BIGINT"), watermarks=tm.ascending(timestamp="t"))


class Calls:
    """Notes its calls, of which some fail."""

    made: list[str]

    def __init__(self, *failing: str) -> None:
        self.failing = failing

    def call(self, name: str) -> None:
        self.made.append(name)
        if name in self.failing:
            raise ValueError(f"{name} is broken")

    def close(self) -> None:
        self.call("close")


class Process(Calls):
    def open(self, ctx: Any) -> None:
        del ctx
        self.call("open")

    def process(self, element: Any, ctx: Any) -> None:
        del element, ctx
        self.call("process")


class Enrich(Calls):
    async def open(self) -> None:
        self.call("open")

    async def invoke(self, row: Any) -> Any:
        self.call("process")
        return {"k": row["k"]}


def in_task(function: Calls) -> None:
    """Run a function as a task of the engine does."""
    task = ProcessKeys(
        job="job",
        uid="op",
        name="Calls",
        function=function,
        fields=False,
        states={},
        types={},
        stored=(),
        elements=(),
        methods=("process",),
        by_batch=False,
        tags={},
        bound=0,
        forgives=False,
        broadcast={},
    )
    with task.begin(OperatorClock("event", 1, 0, 1, 0)):
        function.call("process")


def in_harness(stream: tm.Stream) -> None:
    harness = OperatorHarness(stream)
    harness.process({"k": "a", "t": 1}, at=1)
    harness.end_input()


WAYS: dict[str, tuple[type[Calls], Callable[[Any], None]]] = {
    "keyed": (Process, in_task),
    "keyed, in a harness": (Process, lambda it: in_harness(RIDES.key_by("k").process(it, returns="k STRING").uid("op"))),
    "without keys, in a harness": (Process, lambda it: in_harness(RIDES.process(it, returns="k STRING"))),
    "asynchronous, in a harness": (Enrich, lambda it: in_harness(RIDES.async_map(it, returns="k STRING", retries=0))),
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls of all functions of a test; harnesses copy them."""
    calls: list[str] = []
    monkeypatch.setattr(Calls, "made", calls, raising=False)
    return calls


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fails", ["open", "process"])
def test_an_error_of_close_hides_none_before(way: str, fails: str, made: list[str], caplog: pytest.LogCaptureFixture) -> None:
    function, run = WAYS[way]
    with caplog.at_level(logging.WARNING, "tidemark"), pytest.raises((ValueError, UserCodeError), match=f"{fails} is broken"):
        run(function(fails, "close"))
    assert made == ["open", "close"] if fails == "open" else ["open", "process", "close"]
    (logged,) = (record.getMessage() for record in caplog.records)
    assert "close failed as well" in logged
    assert "ValueError: close is broken" in logged


@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_close_alone_is_raised(way: str, made: list[str]) -> None:
    function, run = WAYS[way]
    with pytest.raises((ValueError, UserCodeError), match="close is broken"):
        run(function("close"))
    assert made == ["open", "process", "close"]


def test_a_task_that_is_given_up_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []

    def close() -> None:
        closed.append("once")
        raise ValueError("close is broken")

    def rows() -> Any:
        with closing(close):
            yield 1
            yield 2

    with caplog.at_level(logging.WARNING, "tidemark"):
        reading = rows()
        assert next(reading) == 1
        reading.close()
    assert closed == ["once"]
