"""Synthetic trips of New York's yellow taxis: when and where people ride, what they pay, and what goes wrong with a record.

Everything follows from a seed and the hour in which the trips begin, so that any hour can be made again on its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

Kind = Literal["ordinary", "delayed", "rejected", "unparsable", "without_time", "absurd_time"]
"""What becomes of a record: sent at once, sent hours late, a refund, or one of three that cannot be read."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MALFORMED: Final[tuple[Kind, ...]] = ("unparsable", "without_time", "absurd_time")
LONGEST_TRIP_SECONDS: Final = 3 * 3600
LONGEST_DELAY_SECONDS: Final = 9 * 3600

_SHARES: Final = {"delayed": 0.004, "rejected": 0.003, "unparsable": 0.0010, "without_time": 0.0008, "absurd_time": 0.0004}
# Shares of a day's trips by hour of the day, and of an average day by day of the week (Monday first), as in early 2019.
_HOURS: Final = np.array(
    [272, 192, 137, 93, 79, 97, 218, 378, 469, 480, 469, 506, 531, 523, 559, 554, 548, 594, 662, 634, 580, 530, 511, 386]
)
_DAYS: Final = np.array([0.86, 1.02, 1.04, 1.07, 1.09, 1.04, 0.88])
_MILES_PER_HOUR: Final = np.array([17, 18, 19, 20, 21, 20, 16, 13, 11, 10, 10, 10, 10, 10, 10, 10, 10, 9, 10, 11, 13, 14, 15, 16])
_JFK, _LA_GUARDIA = 132, 138
_BUSY_ZONES: Final = {
    237: 44, 161: 40, 236: 39, 162: 37, 186: 36, 230: 35, 48: 34, 142: 31, 234: 31, 170: 30, _JFK: 27, 163: 26, 239: 25, _LA_GUARDIA: 25,
    79: 24, 141: 24, 107: 23, 164: 23, 68: 22, 229: 21, 249: 20, 263: 19, 238: 19, 100: 19, 140: 18,
}  # fmt: skip
_ZONES: Final = 265


@dataclass(frozen=True)
class Trips:
    """Trips that begin in one hour, as columns of one length.

    ``pickup``, ``dropoff`` and ``arrival`` are seconds since 1970-01-01 UTC; ``arrival`` is when the record is sent, ``kind``
    an index into ``KINDS``. ``values`` are the other columns of the record, by name, without the two times.
    """

    pickup: npt.NDArray[np.int64]
    dropoff: npt.NDArray[np.int64]
    arrival: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    values: dict[str, list[object]]

    def __len__(self) -> int:
        return len(self.pickup)


def trips_of_hour(hour: int, *, trips_per_day: int, seed: int) -> Trips:
    """Return the trips that begin in an hour.

    Args:
        hour: hours since 1970-01-01 UTC.
        trips_per_day: trips of an average day; an hour has its share by time of day and day of the week.
        seed: the same seed and hour give the same trips.
    """
    random = np.random.default_rng((seed, hour))
    of_day, weekday = hour % 24, (hour // 24 + 3) % 7  # 1970-01-01 was a Thursday
    count = round(trips_per_day * float(_HOURS[of_day]) / float(_HOURS.sum()) * float(_DAYS[weekday]))
    pickup = hour * 3600 + np.sort(random.integers(0, 3600, count))
    zones = _zone_weights()
    origin = random.choice(_ZONES, count, p=zones) + 1
    destination = random.choice(_ZONES, count, p=zones) + 1
    airport = np.isin(origin, (_JFK, _LA_GUARDIA)) | np.isin(destination, (_JFK, _LA_GUARDIA))
    miles = np.clip(random.lognormal(np.where(airport, math.log(10.5), math.log(1.6)), np.where(airport, 0.3, 0.75)), 0.1, 45).round(2)
    speed = _MILES_PER_HOUR[of_day] * np.where(airport, 1.7, 1.0) * random.lognormal(0, 0.25, count)
    seconds = np.clip(miles / speed * 3600, 60, LONGEST_TRIP_SECONDS).astype(np.int64)
    shares = [1 - sum(_SHARES.values()), *_SHARES.values()]
    kind = random.choice(len(KINDS), count, p=shares)
    delay = np.where(kind == KINDS.index("delayed"), random.integers(3600, LONGEST_DELAY_SECONDS, count), 0)
    values = _paid(random, origin, destination, miles, seconds, of_day=of_day, weekday=weekday)
    refund = kind == KINDS.index("rejected")
    _refund(values, refund)
    dropoff = pickup + seconds
    columns = {name: column.tolist() for name, column in values.items()}
    return Trips(pickup=pickup, dropoff=dropoff, arrival=dropoff + delay, kind=kind, values=columns)


def _zone_weights() -> npt.NDArray[np.float64]:
    weights = np.full(_ZONES, (1000 - sum(_BUSY_ZONES.values())) / (_ZONES - len(_BUSY_ZONES)))
    for zone, weight in _BUSY_ZONES.items():
        weights[zone - 1] = weight
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


def _paid(
    random: np.random.Generator,
    origin: npt.NDArray[np.int64],
    destination: npt.NDArray[np.int64],
    miles: npt.NDArray[np.float64],
    seconds: npt.NDArray[np.int64],
    *,
    of_day: int,
    weekday: int,
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the columns of paid trips by the tariff of 2019: a flag fall, distance, time in traffic, and surcharges."""
    count = len(miles)
    to_jfk = ((origin == _JFK) | (destination == _JFK)) & (random.random(count) < 0.7)
    metered = 2.5 + 0.5 * np.round(miles * 5 * 0.8 + seconds / 60 * 0.35)
    fare = np.where(to_jfk, 52.0, metered)
    peak = 1.0 if weekday < 5 and 16 <= of_day < 20 else 0.5 if of_day >= 20 or of_day < 6 else 0.0
    tolls = np.where(np.isin(destination, (_JFK, _LA_GUARDIA)) & (random.random(count) < 0.4), 5.76, 0.0)
    congestion = np.where(random.random(count) < 0.92, 2.5, 0.0)
    card = random.random(count) < 0.73
    before_tip = fare + peak + 0.5 + tolls + 0.3 + congestion
    tip = np.where(card, np.round(before_tip * random.choice([0.0, 0.1, 0.2, 0.25, 0.3], count, p=[0.05, 0.1, 0.5, 0.2, 0.15]), 2), 0.0)
    return {
        "vendor_id": random.choice([1, 2, 4], count, p=[0.38, 0.612, 0.008]),
        "passenger_count": random.choice(7, count, p=[0.059, 0.675, 0.144, 0.040, 0.018, 0.040, 0.024]),
        "trip_distance": miles,
        "rate_code_id": np.where(to_jfk, 2, 1),
        "store_and_fwd_flag": np.where(random.random(count) < 0.005, "Y", "N"),
        "pickup_location_id": origin,
        "dropoff_location_id": destination,
        "payment_type": np.where(card, 1, 2),
        "fare_amount": fare,
        "extra": np.full(count, peak),
        "mta_tax": np.full(count, 0.5),
        "tip_amount": tip,
        "tolls_amount": tolls,
        "improvement_surcharge": np.full(count, 0.3),
        "total_amount": np.round(before_tip + tip, 2),
        "congestion_surcharge": congestion,
    }


def _refund(values: dict[str, npt.NDArray[np.generic]], refund: npt.NDArray[np.bool_]) -> None:
    """Turn some trips into disputed ones, whose amounts the meter books back."""
    for name in ("fare_amount", "extra", "mta_tax", "improvement_surcharge", "congestion_surcharge"):
        values[name] = np.where(refund, -values[name].astype(np.float64), values[name])
    values["tip_amount"] = np.where(refund, 0.0, values["tip_amount"])
    values["tolls_amount"] = np.where(refund, 0.0, values["tolls_amount"])
    values["payment_type"] = np.where(refund, 4, values["payment_type"])
    names = ("fare_amount", "extra", "mta_tax", "improvement_surcharge", "congestion_surcharge")
    total = np.round(np.sum([values[name].astype(np.float64) for name in names], axis=0), 2)
    values["total_amount"] = np.where(refund, total, values["total_amount"])
