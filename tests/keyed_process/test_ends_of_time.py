"""Process functions in epochs without input, and at the end of time: what fails there, what is kept there, what others read of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]
FAILED = tm.OutputTag("failed")


def rides(*epochs: list[tuple[str, int, int]]) -> tm.Stream:
    given = tm.from_elements(epochs=list(epochs), schema="k STRING, t BIGINT, v BIGINT")
    return tm.source("rides", given, watermarks=tm.ascending(timestamp="t"))


def rows_of(name: str) -> list[dict[str, Any]]:
    table = tm.memory_table(name)
    tm.clear_memory(name)
    return [] if table is None else table.to_pylist()


class FailsLater:
    """Sets a timer far ahead that fails, and keeps something there."""

    last = tm.value_state("BIGINT", ttl=tm.state_ttl("1 hour", domain="event"))

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(element["t"] + 1_000_000)
        ctx.timer_service().register_event_time_timer(element["t"] + 2_000_000)

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        yield {"v": self.last.value()}
        self.last.update(timestamp)
        if timestamp % 2_000_000 > 1_000_000:
            raise ValueError("too late")


def test_timers_that_fail_in_an_epoch_without_input_have_the_columns_of_elements(spark: SparkSession, tmp_path: Path) -> None:
    stream = rides([("a", 10, 1)], [("b", 20, 2)]).key_by("k").process(FailsLater, returns="v BIGINT", on_error=FAILED).uid("later")
    failed = stream.side_output(FAILED)
    streams = {
        "results": stream,
        "failed": failed.select("k", "v", "error"),
        "counts": failed.key_by("k").aggregate(n=tm.count()).uid("counts"),
    }
    job = tm.Job("ends", outputs={name: tm.memory(each, f"{tmp_path}/{name}") for name, each in streams.items()}, store=str(tmp_path / "s"))
    tm.run(job, spark=spark, clock=ManualClock(50_000_000), handle_signals=False)
    tm.run(job, spark=spark, clock=ManualClock(60_000_000), handle_signals=False, end_of_input=True)
    # What the first timer of each key wrote and emitted is undone; the second one reads nothing, and keeps its time to the end of time.
    assert rows_of(f"{tmp_path}/results") == [{"v": None}] * 2
    found = rows_of(f"{tmp_path}/failed")
    assert [(row["k"], row["v"]) for row in found] == [(None, None)] * 2
    assert all("too late" in row["error"] for row in found)
    assert [row["n"] for row in rows_of(f"{tmp_path}/counts")] == [1, 2]
