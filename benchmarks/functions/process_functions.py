"""Fares by driver and hour as a process function with state and timers, on Tidemark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

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
        """Add the fares of a batch, hour by hour: they come in the order of their times."""
        times, fares = ctx.timestamps.to_numpy(), elements.column("fare").to_numpy()
        start = 0
        while start < len(times):
            end = hour_end(int(times[start]))
            stop = int(times.searchsorted(end))
            if end - 1 <= ctx.current_watermark():
                ctx.output(self.late, elements.slice(start, stop - start))
            else:
                self._add(end, float(fares[start:stop].sum()), stop - start, ctx)
            start = stop

    def _add(self, end: int, total: float, n: int, ctx: tm.ProcessContext) -> None:
        so_far = self.hours.get(end)
        if so_far is None:
            so_far = {"total": 0.0, "n": 0}
            ctx.timer_service().register_event_time_timer(end - 1)
        self.hours.put(end, {"total": so_far["total"] + total, "n": so_far["n"] + n})


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
