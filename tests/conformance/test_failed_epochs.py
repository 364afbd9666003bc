"""All effects of an epoch land, or none: after an epoch that failed a harness is as before it; elements that failed are as they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import tidemark as tm
from tidemark.testing import OperatorHarness

Row = Mapping[str, Any]
SCHEMA = "k STRING, t BIGINT, tags ARRAY<BIGINT>"
FAILED, SEEN = tm.OutputTag("failed"), tm.OutputTag("seen")


def source(name: str) -> tm.Stream:
    return tm.source(name, tm.from_elements([], schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))


RIDES, OTHERS = source("rides"), source("others")
LIMITS = source("limits").broadcast("limits", key="k", value="tags ARRAY<BIGINT>")


class Counting:
    """Counts elements in all kinds of state, sets a timer for each, and fails for those of time 13."""

    n = tm.value_state("BIGINT", default=0)
    times = tm.list_state("BIGINT")
    by_time = tm.map_state("BIGINT", "BIGINT")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterable[Row]:
        self.n.update(self.n.value() + 1)
        self.times.add(ctx.timestamp)
        self.by_time.put(ctx.timestamp, self.n.value())
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 1_000)
        ctx.output(SEEN, {"t": ctx.timestamp})
        if element["t"] == 13:
            raise ValueError("13 is refused")
        yield {"n": self.n.value()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterable[Row]:
        del ctx
        yield {"n": -timestamp}


COUNTING = RIDES.key_by("k").process(Counting, returns="n BIGINT", side_outputs={SEEN: "t BIGINT"}).uid("op")


def pass_all(harness: OperatorHarness, *elements: tuple[str, int], port: str | None = None) -> None:
    for key, at in elements:
        harness.process({"k": key, "t": at, "tags": [at]}, at=at, port=port)


def seen(harness: OperatorHarness) -> tuple[object, ...]:
    return harness.state(), harness.timers(), harness.counts, harness.watermark, harness.emitted, harness.side_output(SEEN)


def test_an_epoch_that_fails_leaves_nothing() -> None:
    harness, calm = OperatorHarness(COUNTING), OperatorHarness(COUNTING)
    for each in (harness, calm):
        pass_all(each, ("a", 1), ("b", 2))
        each.advance_watermark(5)
    before = seen(harness)
    pass_all(harness, ("a", 6), ("b", 7), ("new", 8), ("b", 13), ("c", 14))
    with pytest.raises(ValueError, match="13 is refused"):
        harness.advance_watermark(1_500)
    assert seen(harness) == before
    for each in (harness, calm):
        pass_all(each, ("a", 6), ("b", 7), ("new", 8))
        each.advance_watermark(1_001)
    assert seen(harness) == seen(calm)
    assert harness.counts == {"in": 5, "accepted": 5}


def test_a_timer_that_fails_leaves_what_it_read() -> None:
    class Once(Counting):
        def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterable[Row]:
            del timestamp, ctx
            self.n.clear()
            raise ValueError("no timers")

    made = RIDES.key_by("k").process(Once, returns="n BIGINT", side_outputs={SEEN: "t BIGINT"}).uid("op")
    harness = OperatorHarness(made)
    pass_all(harness, ("a", 1))
    harness.advance_watermark(5)
    before = seen(harness)
    for _ in range(2):
        with pytest.raises(ValueError, match="no timers"):
            harness.advance_watermark(2_000)
        assert seen(harness) == before


def refuses(element: Row, ctx: Any) -> Iterable[Row]:
    if element["t"] == 13:
        raise ValueError("13 is refused")
    yield {"tags": sorted(key for key in "xyz" if key in ctx.broadcast["limits"])}


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "without keys"])
def test_an_epoch_that_fails_leaves_the_broadcast_map_as_it_was(*, keyed: bool) -> None:
    stream = RIDES.key_by("k") if keyed else RIDES
    harness = OperatorHarness(stream.connect(LIMITS).process(refuses, returns="tags ARRAY<STRING>").uid("op"))
    pass_all(harness, ("x", 0), port="broadcast")
    pass_all(harness, ("a", 1), port="elements")
    assert harness.advance_watermark(5) == [{"tags": ["x"]}]
    counts = harness.counts
    pass_all(harness, ("y", 6), port="broadcast")
    pass_all(harness, ("a", 13), port="elements")
    with pytest.raises(ValueError, match="13 is refused"):
        harness.advance_watermark(20)
    assert (harness.counts, harness.watermark) == (counts, 5)
    pass_all(harness, ("z", 6), port="broadcast")
    pass_all(harness, ("a", 14), port="elements")
    assert harness.advance_watermark(20) == [{"tags": ["x", "z"]}]


def test_an_epoch_whose_asynchronous_calls_fail_leaves_nothing() -> None:
    async def named(row: Row) -> Row:
        if row["t"] == 13:
            raise ValueError("13 is refused")
        return {"n": row["t"]}

    harness = OperatorHarness(RIDES.async_map(named, returns="n BIGINT", retries=0))
    pass_all(harness, ("a", 1), ("a", 13))
    with pytest.raises(ValueError, match="13 is refused"):
        harness.advance_watermark(20)
    assert (harness.counts, harness.emitted) == ({"in": 0, "accepted": 0}, [])
    pass_all(harness, ("a", 2))
    assert harness.end_input() == [{"n": 2}]
    assert harness.counts == {"in": 1, "accepted": 1}


class Spoiling:
    """Fails for each element, which it has changed before."""

    def process(self, element: Any, ctx: Any) -> None:
        del ctx
        element["tags"].append(99)
        element["t"] = 0
        raise ValueError("no")

    process1 = process2 = process


async def spoil(row: Any) -> Row:
    row["tags"].append(99)
    raise ValueError("no")


def test_an_element_that_failed_is_as_it_came() -> None:
    ways = {
        "keyed": RIDES.key_by("k").process(Spoiling, returns="n BIGINT", on_error=FAILED).uid("op"),
        "without keys": RIDES.process(Spoiling, returns="n BIGINT", on_error=FAILED),
        "asynchronous": RIDES.async_map(spoil, returns="n BIGINT", on_error=FAILED, retries=1, backoff="1 ms"),
    }
    for name, stream in ways.items():
        harness = OperatorHarness(stream)
        given = {"k": "a", "t": 1, "tags": [1]}
        harness.process(given, at=1)
        harness.advance_watermark(5)
        (failed,) = harness.side_output(FAILED)
        assert {**failed, "error": ""} == {**given, "error": ""}, name
        assert given["tags"] == [1], name


@pytest.mark.parametrize("port", ["first", "second"])
def test_an_element_of_connected_streams_that_failed_is_as_it_came(port: str) -> None:
    connected = RIDES.key_by("k").connect(OTHERS.key_by("k"))
    harness = OperatorHarness(connected.process(Spoiling, returns="n BIGINT", on_error=FAILED).uid("op"))
    pass_all(harness, ("a", 1), port=port)
    harness.advance_watermark(5)
    (failed,) = harness.side_output(FAILED)
    assert (failed["input"], failed["element"]) == (port, '{"k": "a", "t": 1, "tags": [1]}')
