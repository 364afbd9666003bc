"""Snapshots of a harness that are restored in one of changed code: the state is the old code's, all else is the new code's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import StateMismatchError
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.testing import OperatorHarness

SECOND = 1_000
FOREVER, EVENT, PROCESSING = None, tm.state_ttl("10 seconds", domain="event"), tm.state_ttl("10 seconds")
Declare = Callable[[StateTtl | None], tm.Stream]


def read(name: str = "e") -> tm.Stream:
    files = tm.files(f"in/{name}", format="json", schema="k STRING, at TIMESTAMP, v BIGINT")
    return tm.source(name, files, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="at"))


def restored(old: tm.Stream, new: tm.Stream, *rows: tuple[int, int, str | None], watermark: int) -> OperatorHarness:
    """Return a harness of new code with what old code kept of rows of the key ``a``, by time, value and port."""
    before, after = OperatorHarness(old), OperatorHarness(new)
    for at, value, port in rows:
        before.process({"k": "a", "v": value}, at=at, port=port)
    before.advance_watermark(watermark)
    after.restore(before.snapshot())
    return after


def old_function(elements: Any, ctx: Any) -> list[Mapping[str, object]]:
    """Count the panes of the key."""
    ctx.key_state["n"] = ctx.key_state.get("n", 0) + len(list(elements))
    return [{"by": "old", "n": ctx.key_state["n"]}]


def new_function(elements: Any, ctx: Any) -> list[Mapping[str, object]]:
    """Count them otherwise."""
    ctx.key_state["n"] = ctx.key_state.get("n", 0) + 10 * len(list(elements))
    return [{"by": "new", "n": ctx.key_state["n"]}]


@pytest.mark.parametrize(
    "windows", [tm.tumbling("10 seconds"), tm.session("10 seconds"), tm.count_window(2)], ids=["time", "session", "count"]
)
def test_windows_call_the_new_function(windows: Any) -> None:
    def declared(function: Any) -> tm.Stream:
        return read().key_by("k").window(windows).process(function, returns="by STRING, n BIGINT").uid("w")

    after = restored(
        declared(old_function), declared(new_function), (0, 1, None), (1, 2, None), (20 * SECOND, 3, None), watermark=15 * SECOND
    )
    after.process({"k": "a", "v": 4}, at=21 * SECOND)
    found = after.advance_watermark(60 * SECOND)
    assert [(row["by"], row["n"]) for row in found] == [("new", 22)]


def test_windows_have_the_new_trigger_and_lateness() -> None:
    def declared(lateness: str, *early: Any) -> tm.Stream:
        made = read().key_by("k").window(tm.tumbling("10 seconds")).allowed_lateness(lateness)
        made = made.trigger(tm.event_time_trigger(early=early[0])) if early else made
        return made.aggregate(n=tm.count()).uid("w")

    after = restored(
        declared("0 ms"), declared("1 hour", tm.each_epoch_trigger()), (0, 1, None), (12 * SECOND, 1, None), watermark=12 * SECOND
    )
    after.process({"k": "a", "v": 1}, at=13 * SECOND)
    assert [(row["n"], row["pane_timing"]) for row in after.advance_watermark(14 * SECOND)] == [(2, "EARLY")]
    after.advance_watermark(60 * SECOND)
    after.process({"k": "a", "v": 1}, at=14 * SECOND)
    assert [(row["n"], row["pane_timing"]) for row in after.advance_watermark(61 * SECOND)] == [(3, "LATE")]


def test_joins_have_the_new_bounds() -> None:
    def declared(upper: str) -> tm.Stream:
        return read("l").join(read("r").select("k AS other", "v AS w", "at AS t"), on={"k": "other"}, within=("0 ms", upper)).uid("j")

    after = restored(declared("1 hour"), declared("2 seconds"), (0, 1, "left"), watermark=-1)
    for at in (2, 3):
        after.process({"other": "a", "w": at}, at=at * SECOND, port="right")
    assert len(after.advance_watermark(0)) == 1


class Counts:
    """Counts the elements of a key."""

    def process(self, element: Mapping[str, Any], ctx: Any) -> Iterator[Mapping[str, Any]]:
        del element
        state = ctx.state
        state.list.add(1)
        state.map.put(state.value.value(), 1)
        state.value.update(state.value.value() + 1)
        yield {"n": min(state.value.value(), len(state.list.get()), len(dict(state.map.items())))}


def process(ttl: StateTtl | None) -> tm.Stream:
    state = {
        "value": tm.value_state("BIGINT", default=0, ttl=ttl),
        "list": tm.list_state("BIGINT", ttl=ttl),
        "map": tm.map_state("BIGINT", "BIGINT", ttl=ttl),
    }
    return read().key_by("k").process(Counts, returns="n BIGINT", state=state).uid("o")


def running(ttl: StateTtl | None) -> tm.Stream:
    return read().key_by("k").running_aggregate(n=tm.count(), ttl=ttl).uid("o")


def groups(ttl: StateTtl | None) -> tm.Stream:
    return read().key_by("k").aggregate(n=tm.count(), ttl=ttl).uid("o")


BEGINS = [(FOREVER, EVENT), (PROCESSING, EVENT), (FOREVER, PROCESSING), (EVENT, PROCESSING)]


def last(harness: OperatorHarness, *, at: int, processing: int) -> object:
    harness.set_processing_time(processing)
    harness.process({"k": "a", "v": 1}, at=at)
    return harness.advance_watermark(at + 1)[-1]["n"]


@pytest.mark.parametrize(("old", "new"), BEGINS)
@pytest.mark.parametrize("declared", [process, running, groups])
def test_state_begins_a_lifetime_that_it_had_not(declared: Declare, old: StateTtl | None, new: StateTtl) -> None:
    after = restored(declared(old), declared(new), (100 * SECOND, 1, None), watermark=100 * SECOND)
    assert [row["k"] for row in after.state()] == ["a"]
    assert last(after, at=101 * SECOND, processing=SECOND) == 2
    assert last(after, at=102 * SECOND, processing=2 * SECOND) == 3
    after.set_processing_time(13 * SECOND)
    after.advance_watermark(119 * SECOND)
    assert last(after, at=120 * SECOND, processing=20 * SECOND) == 1


@pytest.mark.parametrize("declared", [process, running])
def test_it_begins_when_the_key_comes(declared: Declare) -> None:
    after = restored(declared(FOREVER), declared(EVENT), (0, 1, None), watermark=0)
    after.advance_watermark(1_000 * SECOND)
    copied = OperatorHarness(declared(EVENT))
    copied.restore(after.snapshot())
    for harness in (after, copied):
        assert last(harness, at=1_001 * SECOND, processing=0) == 2
        assert last(harness, at=1_100 * SECOND, processing=0) == 1


@pytest.mark.parametrize(("old", "new"), BEGINS)
@pytest.mark.parametrize("by", ["latest", "top"])
def test_rows_of_changelogs_begin_theirs_with_the_next_epoch(by: str, old: StateTtl | None, new: StateTtl) -> None:
    def declared(ttl: StateTtl | None) -> tm.Stream:
        return read().latest(by="k", ttl=ttl).uid("o") if by == "latest" else read().top_n(1, order="v", by="k", key="v", ttl=ttl).uid("o")

    after = restored(declared(old), declared(new), (100 * SECOND, 1, None), watermark=100 * SECOND)
    for number, kept in ((1, 1), (5, 1), (12, 0)):
        after.set_processing_time(number * SECOND)
        after.advance_watermark((100 + number) * SECOND)
        assert len(after.state()) == kept


def test_a_shorter_lifetime_holds_for_what_is_kept() -> None:
    after = restored(process(tm.state_ttl("1 hour", domain="event")), process(EVENT), (100 * SECOND, 1, None), watermark=100 * SECOND)
    assert last(after, at=109 * SECOND, processing=0) == 2
    after = restored(process(tm.state_ttl("1 hour", domain="event")), process(EVENT), (100 * SECOND, 1, None), watermark=100 * SECOND)
    assert last(after, at=111 * SECOND, processing=0) == 1


def test_states_that_are_gone_or_of_another_kind() -> None:
    class Other(Counts):
        def process(self, element: Mapping[str, Any], ctx: Any) -> Iterator[Mapping[str, Any]]:
            del element, ctx
            yield {"n": 0}

    def declared(**states: Any) -> tm.Stream:
        return read().key_by("k").process(Other, returns="n BIGINT", state=states).uid("o")

    assert restored(process(FOREVER), declared(), (0, 1, None), watermark=0).state() == []
    with pytest.raises(StateMismatchError, match="the state 'list' was a list state and is now a value state"):
        restored(process(FOREVER), declared(list=tm.value_state("BIGINT")), (0, 1, None), watermark=0)
    windows = [read().key_by("k").window(each).aggregate(n=tm.count()).uid("w") for each in (tm.tumbling("1 second"), tm.count_window(2))]
    with pytest.raises(StateMismatchError, match="another kind of operator"):
        restored(windows[0], windows[1], (0, 1, None), watermark=0)


def test_instants_are_floored_to_milliseconds() -> None:
    harness = OperatorHarness(read().key_by("k").window(tm.tumbling("1 second")).aggregate(n=tm.count()).uid("w"))
    for second in (-1, 0, 1):
        harness.process({"k": "a", "v": 1}, at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second, microseconds=999_999))
    harness.advance_watermark(datetime(1969, 12, 31, tzinfo=UTC))
    assert [row["window_start"].timestamp() for row in harness.state()] == [-1, 0, 1]  # type: ignore[attr-defined]
