"""A job whose states changed resumes from those that the old code left, in the three kinds; timers stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tidemark.errors import StateMismatchError
from tidemark.savepoints.compatibility.checking import check
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = Mapping[str, Any]
MINUTE = 60_000
NOW = 1_700_000_000_000
SCHEMA = "k STRING, t BIGINT, v BIGINT"
FIRST = [[("a", 0, 3), ("b", 1, 4), ("a", 2, 5)], [("c", 3, 6)]]
NEXT = [*FIRST, [("a", 10, 1), ("c", 11, 2), ("d", 12, 9)]]
RETURNS = "k STRING, timer STRING, total BIGINT, seen MAP<STRING, BIGINT>, newest ARRAY<BIGINT>, more BIGINT"


class Old:
    """Adds up and remembers, and says what it knows when a key was quiet for five minutes."""

    total = tm.reducing_state("INT", lambda one, other: one + other)
    seen = tm.map_state("STRING", "INT", ttl=tm.state_ttl("1 day", domain="event"))
    last = tm.list_state("BIGINT")
    gone = tm.value_state("STRING")

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        self.total.add(element["v"])
        self.seen.put(str(element["v"]), element["v"])
        self.last.add(element["v"])
        self.gone.update("gone")
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 5 * MINUTE, "quiet")
        ctx.timer_service().register_event_time_timer(60 * MINUTE)

    def process1(self, element: Row, ctx: tm.ProcessContext) -> None:
        self.process(element, ctx)

    def process2(self, element: Row, ctx: tm.ProcessContext) -> None:
        self.process(element, ctx)

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        del timestamp
        yield {
            "k": ctx.current_key["k"],
            "timer": ctx.timer_name,
            "total": self.total.get(),
            "seen": dict(self.seen.items()),
            "newest": self.last.get(),
        }


class New:
    """The same with ``last`` called ``newest``, wider types, ``gone`` left out, and two states more."""

    total = tm.reducing_state("BIGINT", lambda one, other: one + other)
    seen = tm.map_state("STRING", "BIGINT", ttl=tm.state_ttl("2 days", domain="event"))
    newest = tm.list_state("BIGINT", ttl=tm.state_ttl("1 day", domain="event"))
    more = tm.value_state("BIGINT", default=100)
    labels = tm.map_state("STRING", "STRING", ttl=tm.state_ttl("1 day", domain="event"))

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        self.total.add(element["v"])
        self.seen.put(str(element["v"]), element["v"])
        self.newest.add(element["v"])
        self.more.update(self.more.value() + 1)
        self.labels.put("v", str(element["v"]))
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 5 * MINUTE, "quiet")

    def process1(self, element: Row, ctx: tm.ProcessContext) -> None:
        self.process(element, ctx)

    def process2(self, element: Row, ctx: tm.ProcessContext) -> None:
        self.process(element, ctx)

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        del timestamp
        yield {
            "k": ctx.current_key["k"],
            "timer": ctx.timer_name,
            "total": self.total.get(),
            "seen": dict(self.seen.items()),
            "newest": self.newest.get(),
            "more": self.more.value(),
        }


def declared(kind: str, function: object, epochs: list[list[tuple[str, int, int]]]) -> tm.Stream:
    timed = [[(k, minute * MINUTE, v) for k, minute, v in epoch] for epoch in epochs]
    read = tm.source("e", tm.from_elements(epochs=timed, schema=SCHEMA), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    if kind == "connected":
        return (
            read.filter("v % 2 = 0").key_by("k").connect(read.filter("v % 2 = 1").key_by("k")).process(function, returns=RETURNS).uid("w")
        )
    if kind == "broadcast":
        rules = read.filter("v > 5").broadcast("rules", key="k", value="v BIGINT")
        return read.key_by("k").connect(rules).process(function, returns=RETURNS).uid("w")
    return read.key_by("k").process(function, returns=RETURNS).uid("w")


@pytest.mark.parametrize("kind", ["keyed", "connected", "broadcast"])
def test_changed_states_keep_values_and_timers(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table, store = f"{tmp_path}/out", str(tmp_path / "store")

    def job(function: object, epochs: list[list[tuple[str, int, int]]]) -> tm.Job:
        return tm.Job("job", outputs={"out": tm.memory(declared(kind, function, epochs), table)}, store=store, parallelism=2)

    def run(made: tm.Job, **settings: Any) -> list[dict[str, Any]]:
        tm.run(made, spark=spark, clock=ManualClock(NOW), handle_signals=False, **settings)
        found = tm.memory_table(table)
        tm.clear_memory(table)
        return [] if found is None else sorted(found.to_pylist(), key=lambda row: (row["k"], row["timer"] or ""))

    assert run(job(Old, FIRST)) == []
    before = {row["k"]: row for row in tm.savepoint("job", store=store).tables("w", spark)["timers"].toPandas().to_dict("records")}
    assert set(before) == {"a", "b", "c"}
    SavepointStore(JobStore.open(store), "job").take("first")
    changed = job(New, NEXT)
    with pytest.raises(StateMismatchError, match="the state 'last' was removed"):
        run(changed)
    columns = {"w": {"last": "newest", "gone": None}}
    found = check(changed, "first", columns=columns)
    assert [each.status for each in found.operators] == ["migrates"]

    rows = run(changed, restore=Restore("first", columns=columns))
    # The old code's timers fire in the new code, with the old code's state.
    assert [(row["k"], row["timer"], row["total"], row["newest"], row["more"]) for row in rows] == [
        ("a", "quiet", 8, [3, 5], 100),
        ("b", "quiet", 4, [4], 100),
        ("c", "quiet", 6, [6], 100),
    ]
    assert dict(rows[0]["seen"]) == {"3": 3, "5": 5}
    keys = tm.savepoint(changed).tables("w", spark)["keys"]
    assert keys.columns == ["k", "total", "seen", "newest", "more", "labels"]
    assert {row["k"]: (row["total"], row["newest"], row["more"]) for row in keys.collect()} == {
        "a": (9, [3, 5, 1], 101),
        "b": (4, [4], None),
        "c": (8, [6, 2], 101),
        "d": (9, [9], 101),
    }
    ended = run(changed, end_of_input=True)
    assert [(row["k"], row["timer"], row["total"]) for row in ended] == [
        ("a", None, 9),
        ("a", "quiet", 9),
        ("b", None, 4),
        ("c", None, 8),
        ("c", "quiet", 8),
        ("d", "quiet", 9),
    ]
    if kind == "broadcast":
        assert SavepointStore(JobStore.open(store), "job").get("first").record.operators["w"].files
