"""Fares by driver and hour with stock Spark's ``transformWithState``: rows, or pandas.

Both add up a batch's fares of a driver before they touch state, so that each hour costs one round trip of a read and one of a write.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.data.fares import HOUR_MS
from benchmarks.functions.process_functions import hour_end, instant

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues


class _Hourly(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.hours = handle.getMapState("hours", "hour BIGINT", "total DOUBLE, n BIGINT")

    def close(self) -> None:
        """Nothing is open."""

    def add(self, sums: dict[int, tuple[float, int]]) -> None:
        """Add the sums of a batch to those of the hours that it has fares of."""
        for end, (total, count) in sums.items():
            before = self.hours.getValue((end,)) if self.hours.containsKey((end,)) else None
            if before is None:
                self.handle.registerTimer(end - 1)
                before = (0.0, 0)
            self.hours.updateValue((end,), (before[0] + total, before[1] + count))

    def take(self, expired: Any) -> tuple[datetime, datetime, float, int]:  # noqa: ANN401 - Spark's own
        """Return an hour that has ended, and drop it."""
        end = expired.getExpiryTimeInMs() + 1
        total, count = self.hours.getValue((end,)) or (0.0, 0)
        self.hours.removeKey((end,))
        return instant(end - HOUR_MS), instant(end), total, count


class HourlyRows(_Hourly):
    """For ``transformWithState``."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803, ANN401 - Spark's own
        """Add the fares of a driver."""
        del key, timerValues
        sums: dict[int, tuple[float, int]] = {}
        for row in rows:
            time = round(row.ts.timestamp() * 1000)
            end = hour_end(time)
            total, count = sums.get(end, (0.0, 0))
            sums[end] = total + row.fare, count + 1
        self.add(sums)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803, ANN401 - Spark's own
        """Emit an hour."""
        del timerValues
        start, end, total, count = self.take(expiredTimerInfo)
        yield Row(driver=key[0], window_start=start, window_end=end, total=total, n=count)


class HourlyFrames(_Hourly):
    """For ``transformWithStateInPandas``."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:  # noqa: N802, N803, ANN401 - Spark's own
        """Add the fares of a driver."""
        del key, timerValues
        sums: dict[int, tuple[float, int]] = {}
        for frame in rows:
            ends = frame["ts"].dt.floor("h")
            for hour, fares in frame["fare"].groupby(ends):
                end = round(hour.timestamp() * 1000) + HOUR_MS
                total, count = sums.get(end, (0.0, 0))
                sums[end] = total + float(fares.sum()), count + len(fares)
        self.add(sums)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803, ANN401 - Spark's own
        """Emit an hour."""
        del timerValues
        start, end, total, count = self.take(expiredTimerInfo)
        yield pd.DataFrame({"driver": [key[0]], "window_start": [start], "window_end": [end], "total": [total], "n": [count]})
