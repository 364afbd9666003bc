"""Fares by driver and hour as a process function with state and timers, on Tidemark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tidemark as tm
from benchmarks.data.fares import HOUR_MS

RETURNS = "driver BIGINT, window_start TIMESTAMP, window_end TIMESTAMP, total DOUBLE, n BIGINT"
LATE_ROWS = "driver BIGINT, ts TIMESTAMP, fare DOUBLE"


class HourlyFares:
    """Adds each fare to the hour that it belongs to; a timer at the hour's end emits what was added, and drops it."""

    hours = tm.map_state("BIGINT", "STRUCT<total: DOUBLE, n: BIGINT>")

    def __init__(self, late: tm.OutputTag) -> None:
        self.late = late

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None:
        """Add a fare; one whose hour has ended is late."""
        end = hour_end(ctx.timestamp)
        if end - 1 <= ctx.current_watermark():
            ctx.output(self.late, element)
            return
        so_far = self.hours.get(end)
        if so_far is None:
            so_far = {"total": 0.0, "n": 0}
            ctx.timer_service().register_event_time_timer(end - 1)
        self.hours.put(end, {"total": so_far["total"] + element["fare"], "n": so_far["n"] + 1})

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        """Emit an hour."""
        yield {"driver": ctx.current_key["driver"], **_hour(timestamp + 1), **self.hours.get(timestamp + 1)}
        self.hours.remove(timestamp + 1)


class HourlyFaresInBatches(HourlyFares):
    """The same, of many fares at once."""

    process = None  # type: ignore[assignment]

    def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> None:
        """Add the fares of a batch, hour by hour."""
        hours = pc.subtract(ctx.timestamps, pc.multiply(pc.divide(ctx.timestamps, HOUR_MS), HOUR_MS))
        ends = pc.add(pc.subtract(ctx.timestamps, hours), HOUR_MS)
        is_late = pc.less_equal(pc.subtract(ends, 1), ctx.current_watermark())
        if pc.any(is_late).as_py():
            ctx.output(self.late, elements.filter(is_late))
        sums = pa.table({"end": ends, "fare": elements.column("fare")}).filter(pc.invert(is_late)).group_by("end")
        for row in sums.aggregate([("fare", "sum"), ("fare", "count")]).to_pylist():
            so_far = self.hours.get(row["end"])
            if so_far is None:
                so_far = {"total": 0.0, "n": 0}
                ctx.timer_service().register_event_time_timer(row["end"] - 1)
            self.hours.put(row["end"], {"total": so_far["total"] + row["fare_sum"], "n": so_far["n"] + row["fare_count"]})


def hour_end(time: int) -> int:
    """Return the end of the hour of a time, both in milliseconds.

    >>> hour_end(0), hour_end(3_599_999), hour_end(3_600_000)
    (3600000, 3600000, 7200000)
    """
    return time - time % HOUR_MS + HOUR_MS


def _hour(end: int) -> dict[str, object]:
    return {"window_start": instant(end - HOUR_MS), "window_end": instant(end)}


def instant(ms: int) -> datetime:
    """Return a time of milliseconds since 1970 as an instant."""
    return datetime.fromtimestamp(ms / 1000, UTC)
