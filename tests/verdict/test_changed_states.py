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
    from pyspark.sql import DataFrame, SparkSession

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


KINDS = ("keyed", "connected", "broadcast")
Epochs = list[list[tuple[str, int, int]]]


def declared(function: object, epochs: Epochs) -> dict[str, tm.Stream]:
    """Return what the function makes of elements, by the kind of its operator."""
    timed = [[(k, minute * MINUTE, v) for k, minute, v in epoch] for epoch in epochs]
    read = tm.source("e", tm.from_elements(epochs=timed, schema=SCHEMA), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    even, odd = (read.filter(f"v % 2 = {rest}").key_by("k") for rest in (0, 1))
    rules = read.filter("v > 5").broadcast("rules", key="k", value="v BIGINT")
    return {
        "keyed": read.key_by("k").process(function, returns=RETURNS).uid("keyed"),
        "connected": even.connect(odd).process(function, returns=RETURNS).uid("connected"),
        "broadcast": read.key_by("k").connect(rules).process(function, returns=RETURNS).uid("broadcast"),
    }


def test_changed_states_keep_values_and_timers(spark: SparkSession, tmp_path: Path) -> None:
    store = str(tmp_path / "store")

    def job(function: object, epochs: Epochs) -> tm.Job:
        outputs = {kind: tm.memory(stream, f"{tmp_path}/{kind}") for kind, stream in declared(function, epochs).items()}
        return tm.Job("job", outputs=outputs, store=store, parallelism=2)

    def run(made: tm.Job, **settings: Any) -> dict[str, list[dict[str, Any]]]:
        tm.run(made, spark=spark, clock=ManualClock(NOW), handle_signals=False, **settings)
        found = {kind: tm.memory_table(f"{tmp_path}/{kind}") for kind in KINDS}
        for kind in KINDS:
            tm.clear_memory(f"{tmp_path}/{kind}")
        return {
            kind: [] if rows is None else sorted(rows.to_pylist(), key=lambda row: (row["k"], row["timer"] or ""))
            for kind, rows in found.items()
        }

    assert run(job(Old, FIRST)) == {kind: [] for kind in KINDS}
    for kind in KINDS:
        timers = tm.savepoint("job", store=store).tables(kind, spark)["timers"].toPandas().to_dict("records")
        assert {row["k"] for row in timers} == {"a", "b", "c"}
    SavepointStore(JobStore.open(store), "job").take("first")
    changed = job(New, NEXT)
    with pytest.raises(StateMismatchError, match="the state 'last' was removed"):
        run(changed)
    columns: dict[str, Mapping[str, str | None]] = {kind: {"last": "newest", "gone": None} for kind in KINDS}
    found = check(changed, "first", columns=columns)
    assert [each.status for each in found.operators] == ["migrates"] * len(KINDS)

    for rows in run(changed, restore=Restore("first", columns=columns)).values():
        require_timers_of_the_old_code(rows)
    for kind in KINDS:
        require_new_state(tm.savepoint(changed).tables(kind, spark)["keys"])
    for ended in run(changed, end_of_input=True).values():
        assert [(row["k"], row["timer"], row["total"]) for row in ended] == [
            ("a", None, 9),
            ("a", "quiet", 9),
            ("b", None, 4),
            ("c", None, 8),
            ("c", "quiet", 8),
            ("d", "quiet", 9),
        ]
    assert SavepointStore(JobStore.open(store), "job").get("first").record.operators["broadcast"].files


def require_timers_of_the_old_code(rows: list[dict[str, Any]]) -> None:
    """Make sure that they fire in the new code, with the old code's state."""
    assert [(row["k"], row["timer"], row["total"], row["newest"], row["more"]) for row in rows] == [
        ("a", "quiet", 8, [3, 5], 100),
        ("b", "quiet", 4, [4], 100),
        ("c", "quiet", 6, [6], 100),
    ]
    assert dict(rows[0]["seen"]) == {"3": 3, "5": 5}


def require_new_state(keys: DataFrame) -> None:
    assert keys.columns == ["k", "total", "seen", "newest", "more", "labels"]
    assert {row["k"]: (row["total"], row["newest"], row["more"]) for row in keys.collect()} == {
        "a": (9, [3, 5, 1], 101),
        "b": (4, [4], None),
        "c": (8, [6, 2], 101),
        "d": (9, [9], 101),
    }
