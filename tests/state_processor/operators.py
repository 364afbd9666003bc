"""One job with every kind of operator, over files of rides: as it was written first, and as it is changed."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE, HOUR = 60_000, 3_600_000
NOW = 1_700_000_000_000
BEFORE = "k STRING, t BIGINT, v INT"
AFTER = "k STRING, t BIGINT, v BIGINT, c INT"

Ride = Mapping[str, object]
RIDES: tuple[Sequence[Ride], ...] = (
    (
        {"k": "a", "t": 5 * MINUTE, "v": 4},
        {"k": "a", "t": 15 * MINUTE, "v": 9},
        {"k": "b", "t": 20 * MINUTE, "v": 1},
        {"k": None, "t": 25 * MINUTE, "v": 2},
    ),
    ({"k": "a", "t": 45 * MINUTE, "v": 6}, {"k": "b", "t": 100 * MINUTE, "v": None}, {"k": "a", "t": 101 * MINUTE, "v": 3}),
    (
        {"k": "a", "t": 102 * MINUTE, "v": 5_000_000_000, "c": 3},
        {"k": "b", "t": 103 * MINUTE, "v": 8, "c": 1},
        {"k": "b", "t": 150 * MINUTE, "v": 2, "c": 3},
        {"k": "a", "t": 200 * MINUTE, "v": 1, "c": None},
    ),
)
"""Rows of three files. Only the last ones have ``c``, so aggregates over it cover them alone, whenever they are added."""


def listed(elements: Any, context: Any) -> list[dict[str, object]]:
    """Return all of a window in one row, and count the panes of the key."""
    context.key_state["panes"] = int(context.key_state.get("panes", 0)) + 1
    rows = list(elements)
    return [{"n": len(rows), "v": [row["v"] for row in rows], "c": [row.get("c") for row in rows], "panes": context.key_state["panes"]}]


def nothing() -> int:
    """Return the sum of no elements."""
    return 0


def add(state: int, value: int | None) -> int:
    """Return the sum with one more."""
    return state + (value or 0)


def same(state: int) -> int:
    """Return the sum."""
    return state


def first_aggregates() -> dict[str, tm.Aggregate]:
    """Return the aggregates of the first job."""
    return {"n": tm.count(), "low": tm.min("v"), "high": tm.max("v"), "total": tm.sum("v"), "gone": tm.max("t")}


def changed_aggregates() -> dict[str, tm.Aggregate]:
    """Return the aggregates of the changed one: ``low`` is called ``least``, ``gone`` is gone, and some over ``c`` are new."""
    return {
        "n": tm.count(),
        "least": tm.min("v"),
        "high": tm.max("v"),
        "total": tm.sum("v"),
        "c_n": tm.count("c"),
        "c_list": tm.collect_list("c"),
    }


def more_aggregates() -> dict[str, tm.Aggregate]:
    """Return aggregates of all other kinds that one operator of the changed job has as well."""
    return {
        "c_mean": tm.avg("c"),
        "c_set": tm.collect_set("c"),
        "c_distinct": tm.count_distinct("c"),
        "c_about": tm.approx_count_distinct("c"),
        "c_half": tm.approx_percentile("c", 0.5),
        "c_spread": tm.stddev("c"),
        "c_first": tm.first("c", ignore_nulls=True),
        "c_by": tm.max_by("v", "c"),
        "c_top": tm.top_k("c", 2),
        "c_own": tm.python_aggregate(nothing, add, add, same, arguments=["c"], state="BIGINT", returns="BIGINT"),
    }


NAMES: Mapping[str, str | None] = {"low": "least", "gone": None}


@dataclass(frozen=True)
class Lab:
    """Where a job is run, drained, over the files there are."""

    spark: SparkSession
    folder: Path

    def land(self, number: int, *more: int) -> None:
        """Put one of the files there, with the rows of some others, if there are more."""
        path = self.folder / "landing" / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(dict(ride))}\n" for each in (number, *more) for ride in RIDES[each]))
        os.utime(path, (1_600_000_000 + number,) * 2)

    def rides(self, schema: str, *, name: str = "rides") -> tm.Stream:
        """Return the stream of rides, by the name of its source."""
        spec = tm.files(str(self.folder / "landing"), format="json", schema=schema, max_files_per_epoch=1)
        return tm.source(name, spec, watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="t"))

    def job(self, name: str, *, changed: bool, only: Collection[str] = ()) -> tm.Job:
        """Return the job with all its operators, or with some."""
        rides = self.rides(AFTER if changed else BEFORE)
        streams = operators(rides, changed_aggregates() if changed else first_aggregates(), more_aggregates() if changed else {})
        outputs = {uid: tm.memory(streams[uid], f"{self.folder}/{name}/{uid}") for uid in only or streams}
        return tm.Job(name, outputs=outputs, store=str(self.folder / "store"), parallelism=2)

    def run(self, job: tm.Job, **settings: Any) -> dict[str, list[dict[str, object]]]:
        """Run a job until its files are read; return the rows of each output since it was asked last, as text in order."""
        tm.run(job, spark=self.spark, clock=ManualClock(NOW), handle_signals=False, **settings)
        found = {}
        for uid in job.outputs:
            table = tm.memory_table(f"{self.folder}/{job.name}/{uid}")
            tm.clear_memory(f"{self.folder}/{job.name}/{uid}")
            found[uid] = sorted([] if table is None else table.to_pylist(), key=repr)
        return found


def operators(
    rides: tm.Stream, aggregates: Mapping[str, tm.Aggregate], more: Mapping[str, tm.Aggregate] = MappingProxyType({})
) -> dict[str, tm.Stream]:
    """Return window operators of every kind that keeps its state in its own way, by uid; the first has more aggregates."""
    by_key = rides.key_by("k")
    early = tm.event_time_trigger(early=tm.count_trigger(2))
    windowed = {
        "tumbling": by_key.window(tm.tumbling("2 hours")),
        "late": rides.key_by(m="v % 2").window(tm.tumbling("1 hour")).allowed_lateness("3 hours"),
        "sliding": rides.window_all(tm.sliding("2 hours", "30 minutes")),
        "session": by_key.window(tm.session("30 minutes")).allowed_lateness("4 hours"),
        "count": by_key.window(tm.count_window(4, 2)),
        "triggered": by_key.window(tm.tumbling("4 hours")).trigger(early),
        "triggered-session": by_key.window(tm.session("90 minutes")).trigger(early),
        "purging": by_key.window(tm.tumbling("4 hours")).trigger(tm.purging_trigger(tm.count_trigger(2))),
        "purging-session": by_key.window(tm.session("90 minutes")).trigger(tm.purging_trigger(early)),
    }
    made = {uid: each.aggregate(**aggregates, **(more if uid == "tumbling" else {})).uid(uid) for uid, each in windowed.items()}
    made["listed"] = by_key.window(tm.tumbling("4 hours")).process(listed, "n INT, v ARRAY<BIGINT>, c ARRAY<INT>, panes INT").uid("listed")
    return made


def columns() -> dict[str, Mapping[str, str | None]]:
    """Return what a restore is told of the changed names."""
    stream = tm.source("x", tm.from_elements([], schema=BEFORE), watermarks=tm.ascending(timestamp="timestamp_millis(t)"))
    return {uid: NAMES for uid in operators(stream, first_aggregates()) if uid != "listed"}
