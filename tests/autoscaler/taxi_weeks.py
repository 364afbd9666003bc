"""Weeks of taxi rides as the load of a simulated job: rides that end, by half hours.

Nights are low, mornings and evenings high, weekends different. One week is of the example's generator of trips; the other one is counted
from three months of real records where they are beside the checkout, which carries none of them.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from examples.taxi.trips import trips_of_hour
from tests.autoscaler.simulated_job import DAY, HOUR, MINUTE, MONDAY, Load

MONTHS: Final = Path(__file__).parents[2].parent / "shared" / "data" / "taxi"
_WEEK: Final = 7 * DAY
_STEP: Final = 30 * MINUTE
_A_MONDAY: Final = datetime(2018, 12, 31, tzinfo=UTC)


def generated_rides() -> Iterator[int]:
    """Yield when the rides of a generated week end, milliseconds since its Monday: 30,000 rides, as three months of the records have."""
    first = MONDAY // HOUR
    for hour in range(first, first + _WEEK // HOUR):
        yield from (int(second) * 1000 - MONDAY for second in trips_of_hour(hour, trips_per_day=30_000 // 7, seed=7).dropoff)


def real_rides() -> Iterator[int]:
    """Yield when the rides of the real months ended, milliseconds since a Monday."""
    for month in sorted(MONTHS.glob("*.csv")):
        with month.open(encoding="utf-8", newline="") as file:
            for ride in csv.DictReader(file):
                yield round((datetime.fromisoformat(f"{ride['dropoff_datetime']}+00:00") - _A_MONDAY).total_seconds() * 1000)


def by_half_hours(rides: Iterable[int], *, rows_per_ride: float) -> Load:
    """Return the load of a week in which rides end: a ride of any week counts in its half hour of the week."""
    ended = Counter(at % _WEEK // _STEP for at in rides)
    return lambda at: ended[at % _WEEK // _STEP] * rows_per_ride
