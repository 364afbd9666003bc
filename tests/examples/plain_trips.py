"""The example job's rules once more, in plain pandas over arrival epochs: what every output must hold, row by row.

Nothing of the engine or of its reference is used here. Times are milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

HOUR = 3_600_000
BOUND = 5 * 60_000
ALLOWED_LATENESS = 10 * 60_000
MAX_FUTURE_SKEW = 86_400_000
NEVER, FOREVER = -(2**63), 2**63 - 1
UNPARSABLE = "record cannot be parsed"
TOO_FAR_AHEAD = "event time 'pickup_datetime' is more than max_future_skew ahead of processing time"

Place = tuple[int, int]
"""A window: its zone, and the hour that it begins with."""


class Paid(NamedTuple):
    """What a window's results are made of."""

    fare: float
    tip: float


@dataclass
class Account:
    """What the job has done until now: its panes, the rows that it set aside, and its watermark after each epoch."""

    panes: list[dict[str, object]] = field(default_factory=list)
    late: list[pd.DataFrame] = field(default_factory=list)
    rejected: list[pd.DataFrame] = field(default_factory=list)
    malformed: list[tuple[str, str]] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)
    accepted: int = 0
    windows: dict[Place, list[Paid]] = field(default_factory=dict)
    emitted: dict[Place, int] = field(default_factory=dict)

    def take(self, lines: Sequence[str], now: int) -> None:
        """Take the lines of one arrival epoch at a processing time."""
        before = self.watermarks[-1] if self.watermarks else NEVER
        trips = self._timed(lines, now)
        paid = self._paid(trips)
        late = paid["hour"] + HOUR - 1 + ALLOWED_LATENESS <= before
        self.late.append(paid[late])
        taken = paid[~late]
        self.accepted += len(taken)
        touched = set()
        columns = (taken[name] for name in ("pickup_location_id", "hour", "fare_amount", "tip_amount"))
        for zone, hour, fare, tip in zip(*columns, strict=True):
            self.windows.setdefault((zone, hour), []).append(Paid(fare, tip))
            touched.add((zone, hour))
        self.watermarks.append(max([before, *(trips["at"] - BOUND - 1)]))
        self._fire(before, self.watermarks[-1], touched)

    def end(self) -> None:
        """Close all windows."""
        self._fire(self.watermarks[-1], FOREVER, set())

    def _timed(self, lines: Sequence[str], now: int) -> pd.DataFrame:
        """Return the trips of lines that can be read and timed; the others are malformed."""
        self.malformed += [(UNPARSABLE, line) for line in lines if not line.endswith("}")]
        whole = [line for line in lines if line.endswith("}")]
        trips = pd.read_json(io.StringIO("\n".join(whole)), lines=True, convert_dates=False, dtype=False, precise_float=True)
        trips["at"] = _millis(trips["pickup_datetime"])
        ahead = trips["at"] > now + MAX_FUTURE_SKEW
        self.malformed += [(TOO_FAR_AHEAD, line) for line, bad in zip(whole, ahead, strict=True) if bad]
        return trips[~ahead]

    def _paid(self, trips: pd.DataFrame) -> pd.DataFrame:
        """Return the trips that were paid, with their hour and their length in minutes; the others are rejected."""
        refund = trips["fare_amount"] < 0
        self.rejected.append(trips[refund])
        paid = trips[~refund]
        return paid.assign(hour=paid["at"] // HOUR * HOUR, minutes=(_millis(paid["dropoff_datetime"]) - paid["at"]) / 60_000)

    def _fire(self, before: int, watermark: int, touched: set[Place]) -> None:
        """Emit a pane of each window that the watermark passed just now, and of each passed before that got late trips."""
        for place, trips in self.windows.items():
            last = place[1] + HOUR - 1
            on_time = before < last <= watermark
            if on_time or (last <= before and place in touched):
                index = self.emitted.get(place, 0)
                self.panes.append(_pane(place, trips, timing="ON_TIME" if on_time else "LATE", index=index))
                self.emitted[place] = index + 1


def account_of(epochs: Sequence[tuple[Sequence[str], int]]) -> Account:
    """Return what comes of arrival epochs, each the lines that arrived and the processing time, and of an end of input."""
    account = Account()
    for lines, now in epochs:
        account.take(lines, now)
    account.end()
    return account


def _pane(place: Place, trips: Sequence[Paid], *, timing: str, index: int) -> dict[str, object]:
    fares = sorted(trip.fare for trip in trips)
    return {
        "pickup_zone": place[0],
        "window_start": place[1],
        "window_end": place[1] + HOUR,
        "pane_timing": timing,
        "pane_index": index,
        "trips": len(trips),
        "tips": math.fsum(trip.tip for trip in trips),
        "fares": math.fsum(fares),
        "medians": (fares[(len(fares) - 1) // 2], fares[len(fares) // 2]),
    }


def _millis(texts: pd.Series[str]) -> pd.Series[int]:
    return (pd.to_datetime(texts, format="%Y-%m-%d %H:%M:%S") - pd.Timestamp(0)) // pd.Timedelta(milliseconds=1)


def lines_of(trips: pd.DataFrame) -> list[str]:
    """Return records as the lines that arrive: JSON, without what a record does not have."""
    records = ({name: value for name, value in row.items() if value == value} for row in trips.to_dict("records"))  # noqa: PLR0124
    return [json.dumps(record) for record in records]
