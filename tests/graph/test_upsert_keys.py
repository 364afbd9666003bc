"""Upserting outputs at definition: which columns a row is known by, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.model.nodes import DeltaSpec, Output
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import Session

TRIPS = tm.source(
    "trips",
    tm.from_elements([], schema="taxi STRING, zone INT, t BIGINT, fare DOUBLE, tags MAP<STRING, STRING>"),
    watermarks=tm.ascending(timestamp="t"),
)
HOURLY = TRIPS.key_by("zone", hour="t div 3600000").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("hourly")
ALL = TRIPS.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("all")
SESSIONS = Stream(
    WindowNode(inputs=(TRIPS.node,), keys=(("zone", "zone"),), assigner=Session(1000), aggregates=(("n", tm.count()),), uid="sessions")
)
COUNTED = TRIPS.key_by("zone").window(tm.count_window(3)).aggregate(n=tm.count()).uid("counted")


def keys(output: Output) -> tuple[str, ...]:
    assert isinstance(output.sink, DeltaSpec)
    assert output.sink.mode == "upsert"
    return output.sink.keys


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (HOURLY, ("zone", "hour", "window_start", "window_end")),
        (ALL, ("window_start", "window_end")),
        (SESSIONS, ("zone", "window_start", "window_end")),
        (COUNTED, ("zone", "pane_index")),
        (HOURLY.filter("n > 3"), ("zone", "hour", "window_start", "window_end")),
        (HOURLY.with_columns(n="n * 2", zone="`zone`"), ("zone", "hour", "window_start", "window_end")),
        (ALL.select("window_start", "window_end", half="n / 2"), ("window_start", "window_end")),
        (SESSIONS.select("zone", "n", "window_start", "window_end", "replaces"), ("zone", "window_start", "window_end")),
    ],
)
def test_results_of_windows_have_keys_of_their_own(stream: tm.Stream, expected: tuple[str, ...]) -> None:
    assert keys(tm.delta(stream, "somewhere", mode="upsert")) == expected


def test_keys_that_are_given_go_before() -> None:
    assert keys(tm.delta(HOURLY, "somewhere", mode="upsert", keys=["ZONE"])) == ("zone",)
    assert keys(tm.delta(TRIPS, "somewhere", mode="upsert", keys=("taxi", "zone"))) == ("taxi", "zone")
    assert keys(tm.delta(SESSIONS, "somewhere", mode="upsert", keys=["zone", "window_start"])) == ("zone", "window_start")
    both = ("zone", "window_start", "window_end")
    assert keys(tm.delta(SESSIONS, "somewhere", mode="upsert", keys=["zone", "window_start", "Window_End"])) == both
    unknown = TRIPS.transform(lambda rows: rows)
    assert keys(tm.delta(unknown, "somewhere", mode="upsert", keys=["whatever"])) == ("whatever",)


def test_an_append_has_none() -> None:
    assert tm.delta(HOURLY, "somewhere").sink == DeltaSpec("somewhere")
    assert tm.delta(HOURLY, "somewhere", mode="append").sink == DeltaSpec("somewhere")
    assert tm.guarantee(tm.delta(HOURLY, "somewhere", mode="upsert").sink) == "exactly once, the newest row of each key"


def upserted(stream: tm.Stream, **settings: Any) -> Callable[[], Output]:
    return lambda: tm.delta(stream, "x", **{"mode": "upsert", **settings})


REFUSED: dict[str, tuple[Callable[[], Output], type[Exception], tuple[str, ...]]] = {
    "no window": (upserted(TRIPS), DefinitionError, ("by which columns", "keys=[")),
    "no window any more": (upserted(HOURLY.union(HOURLY)), DefinitionError, ("keys=[",)),
    "a bound is dropped": (upserted(HOURLY.select("zone", "hour", "window_start")), DefinitionError, ("'window_end'", "keys=[")),
    "a key is spelt otherwise": (
        upserted(HOURLY.select("Zone", "hour", "window_start", "window_end", "pane_index")),
        DefinitionError,
        ("'zone'", "changed"),
    ),
    "a key is changed": (upserted(HOURLY.with_columns(zone="zone + 1")), DefinitionError, ("'zone'", "changed")),
    "replaces is dropped": (
        upserted(SESSIONS.select("zone", "window_start", "window_end")),
        DefinitionError,
        ("'replaces'", "which sessions it replaces", "keep 'replaces'"),
    ),
    "the end of a session is dropped": (
        upserted(SESSIONS.select("zone", "n", "window_start", "replaces")),
        DefinitionError,
        ("'window_end'", "keys=["),
    ),
    "both bounds of a session without replaces": (
        upserted(SESSIONS.select("zone", "window_start", "window_end"), keys=["zone", "window_start", "Window_End"]),
        DefinitionError,
        ("both bounds of a session", "keep 'replaces'", "leave 'window_end' out"),
    ),
    "unknown key": (upserted(TRIPS, keys=["taxy"]), ColumnError, ("'taxy'; did you mean 'taxi'?", "write 'taxi'")),
    "a map": (upserted(TRIPS, keys=["tags"]), DefinitionError, ("'tags'", "maps cannot be compared")),
    "a text": (upserted(TRIPS, keys="taxi"), DefinitionError, ("not a list",)),
    "none": (upserted(TRIPS, keys=[]), DefinitionError, ("not a list",)),
    "twice": (upserted(TRIPS, keys=["taxi", "Taxi"]), DefinitionError, ("twice",)),
    "keys of an append": (upserted(TRIPS, mode="append", keys=["taxi"]), DefinitionError, ("keys=['taxi']", "mode='upsert'")),
    "another mode": (upserted(TRIPS, mode="merge"), DefinitionError, ("mode='merge'", "mode='upsert'")),
}


@pytest.mark.parametrize(("make", "kind", "texts"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(make: Callable[[], Output], kind: type[Exception], texts: tuple[str, ...]) -> None:
    with pytest.raises(kind) as raised:
        make()
    assert type(raised.value) is kind
    for text in (*texts, __file__):
        assert text in str(raised.value)
