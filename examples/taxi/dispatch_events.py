"""Writes the events of airport rides as they would arrive, wave by wave: starts and ends, payments, and limits that change.

The rides are those of the example's trips, with a number and a driver each. Some starts, ends and payments get lost; the generator knows
what the job must make of that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from examples.taxi.dispatch import BOUND_MINUTES, HOUR_MS, LONG_HOURS, WAIT_HOURS
from examples.taxi.generator import TripPlan, wave_start
from examples.taxi.trips import KINDS, LONGEST_TRIP_SECONDS, trips_of_hour

AIRPORTS: Final = (132, 138)
"""The zones of JFK and La Guardia."""

_DRIVERS: Final = 400
_LONGEST_PAYMENT_SECONDS: Final = 600
_LOST = {"start": 0.004, "end": 0.004, "fare": 0.008}
_LOOK_BACK_HOURS: Final = -(-(LONGEST_TRIP_SECONDS + _LONGEST_PAYMENT_SECONDS) // 3600)


class Ride(NamedTuple):
    """A ride: when it started, ended and was paid, in seconds, and which of these was never reported."""

    ride_id: int
    driver_id: int
    zone: int
    start: int
    end: int
    paid: int
    tip: float
    total: float
    lost: frozenset[str]


@dataclass(frozen=True)
class DispatchCounts:
    """What the job must have emitted, in rows; tips by driver and hour are compared with those of a window."""

    rides_with_fares: int
    unmatched: int
    long_rides: int
    high_fares: int


def write_events(folder: str | Path, wave: int, *, plan: TripPlan) -> int:
    """Write the events of one wave, a file for each source; return how many rides' events and payments there are."""
    begin, end = _bounds(wave, plan)
    rides = list(_rides_of(wave, plan))
    events = [
        (at, {"ride_id": ride.ride_id, "driver_id": ride.driver_id, "zone": ride.zone, "event": event, "at": _text(at)})
        for ride in rides
        for event, at in (("start", ride.start), ("end", ride.end))
        if event not in ride.lost and begin <= at < end
    ]
    fares = [(ride.paid, _fare(ride)) for ride in rides if "fare" not in ride.lost and begin <= ride.paid < end]
    _write(Path(folder) / "rides" / f"{wave:04d}.json", events, end)
    _write(Path(folder) / "fares" / f"{wave:04d}.json", fares, end)
    limits = [(begin, {"zone": zone, "at": _text(begin), **limit}) for zone, limit in _changed_limits(wave).items()]
    _write(Path(folder) / "limits" / f"{wave:04d}.json", limits, end)
    return len(events) + len(fares)


def count_dispatch(waves: int, *, plan: TripPlan) -> DispatchCounts:
    """Return what the job must have emitted if every wave is drained before the next comes."""
    rides = {ride.ride_id: ride for wave in range(waves) for ride in _rides_of(wave, plan)}.values()
    _, now = _bounds(waves - 1, plan)
    # The watermarks, in seconds: of rides, and of rides and payments together.
    reported = [at for ride in rides for what, at in (("start", ride.start), ("end", ride.end)) if what not in ride.lost and at < now]
    paid = [ride.paid for ride in rides if "fare" not in ride.lost and ride.paid < now]
    of_rides = max(reported) - BOUND_MINUTES * 60
    of_both = min(of_rides, max(paid) - BOUND_MINUTES * 60)
    wait, long = (hours * HOUR_MS // 1000 for hours in (WAIT_HOURS, LONG_HOURS))
    started = [ride for ride in rides if "start" not in ride.lost and ride.start < now]
    alone = [ride.start for ride in started if "fare" in ride.lost or ride.paid >= now]
    alone += [ride.paid for ride in rides if "start" in ride.lost and "fare" not in ride.lost and ride.paid < now]
    ended = [ride for ride in started if "end" not in ride.lost and ride.end < now]
    return DispatchCounts(
        rides_with_fares=sum("fare" not in ride.lost and ride.paid < now for ride in started),
        unmatched=sum(at + wait < of_both for at in alone),
        long_rides=sum(ride.end - ride.start > long for ride in ended)
        + sum(ride.start + long < of_rides for ride in started if "end" in ride.lost or ride.end >= now),
        high_fares=sum(_high(wave, plan) for wave in range(waves)),
    )


def limits_at(wave: int) -> dict[int, float]:
    """Return the limit of each zone that has one in a wave."""
    found: dict[int, float] = {}
    for each in range(wave + 1):
        for zone, limit in _changed_limits(each).items():
            if limit["gone"]:
                found.pop(zone, None)
            else:
                found[zone] = limit["dollars"]
    return found


def _changed_limits(wave: int) -> dict[int, dict[str, Any]]:
    """Return the limits that a wave changes: JFK's each time, La Guardia's from the first wave to the third."""
    jfk, la_guardia = AIRPORTS
    found: dict[int, dict[str, Any]] = {jfk: {"dollars": 75.0 + 5 * (wave % 3), "gone": False}}
    if wave == 0:
        found[la_guardia] = {"dollars": 65.0, "gone": False}
    elif wave == 2:
        found[la_guardia] = {"dollars": None, "gone": True}
    return found


def _high(wave: int, plan: TripPlan) -> int:
    (begin, end), limits = _bounds(wave, plan), limits_at(wave)
    paid = (ride for ride in _rides_of(wave, plan) if "fare" not in ride.lost and begin <= ride.paid < end)
    return sum(ride.total > limits.get(ride.zone, float("inf")) for ride in paid)


def _bounds(wave: int, plan: TripPlan) -> tuple[int, int]:
    """Return when a wave begins and ends; the first one has the minutes past the hour as well."""
    return (wave_start(wave, plan) if wave else int(plan.start.timestamp())), wave_start(wave + 1, plan)


def _rides_of(wave: int, plan: TripPlan) -> Iterator[Ride]:
    """Yield the rides that may have events in a wave."""
    begin, end = _bounds(wave, plan)
    opening = int(plan.start.timestamp())
    for hour in range(max(begin // 3600 - _LOOK_BACK_HOURS, opening // 3600), end // 3600 + 1):
        yield from _rides_of_hour(hour, plan)


@cache
def _rides_of_hour(hour: int, plan: TripPlan) -> tuple[Ride, ...]:
    return tuple(_made_in(hour, plan))


def _made_in(hour: int, plan: TripPlan) -> Iterator[Ride]:
    trips = trips_of_hour(hour, trips_per_day=plan.trips_per_day, seed=plan.seed)
    zones = np.array(trips.values["pickup_location_id"])
    ordinary = trips.kind == KINDS.index("ordinary")
    random = np.random.default_rng((plan.seed, hour, 1))
    for row in np.flatnonzero(np.isin(zones, AIRPORTS) & ordinary).tolist():
        end = int(trips.dropoff[row])
        yield Ride(
            ride_id=hour * 10_000 + row,
            driver_id=int(random.integers(1, _DRIVERS + 1)),
            zone=int(zones[row]),
            start=int(trips.pickup[row]),
            end=end,
            paid=end + int(random.integers(0, _LONGEST_PAYMENT_SECONDS)),
            tip=float(str(trips.values["tip_amount"][row])),
            total=float(str(trips.values["total_amount"][row])),
            lost=frozenset(what for what, share in _LOST.items() if random.random() < share),
        )


def _fare(ride: Ride) -> dict[str, object]:
    keys = {"ride_id": ride.ride_id, "driver_id": ride.driver_id, "zone": ride.zone}
    return {**keys, "paid_at": _text(ride.paid), "tip": ride.tip, "total": ride.total}


def _write(path: Path, rows: Sequence[tuple[int, dict[str, Any]]], modified: int) -> None:
    """Write a file in one step, in order of arrival."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for _, row in sorted(rows, key=lambda each: each[0]))
    os.utime(temporary, (modified, modified))
    temporary.replace(path)


def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
