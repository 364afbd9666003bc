"""Writes trips as they would arrive: wave by wave, each a few JSON-lines files, in the order of arrival.

A record is sent when its trip ends, so pick-up times come out of order by nature; some records come hours late, some are
refunds, some cannot be read. The generator knows exactly how many of each it wrote, and which a watermark makes late.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from examples.taxi.trips import KINDS, LONGEST_DELAY_SECONDS, LONGEST_TRIP_SECONDS, MALFORMED, Kind, Trips, trips_of_hour

_LOOK_BACK_HOURS = -(-(LONGEST_TRIP_SECONDS + LONGEST_DELAY_SECONDS) // 3600)
_ABSURD_YEAR = 2090


@dataclass(frozen=True)
class TripPlan:
    """What to generate; the same plan gives the same bytes.

    ``start`` is the pick-up time from which on there are trips, a full hour in UTC; ``trips_per_day`` an average, which the
    time of day and the day of the week vary; a wave is ``wave_hours`` of arrivals in ``files_per_wave`` files of equal time.
    Waves end ``minutes_past`` the hour, so that a watermark a few minutes behind has just closed an hour's windows when some
    of their trips are still on the road.
    """

    start: datetime = datetime(2024, 3, 4, tzinfo=UTC)
    trips_per_day: int = 60_000
    wave_hours: int = 12
    minutes_past: int = 12
    files_per_wave: int = 4
    seed: int = 2019


@dataclass(frozen=True)
class WaveCounts:
    """Exact numbers of the records of one wave, or of several."""

    ordinary: int = 0
    delayed: int = 0
    rejected: int = 0
    unparsable: int = 0
    without_time: int = 0
    absurd_time: int = 0

    @property
    def malformed(self) -> int:
        """Records that cannot be parsed or timed."""
        return self.unparsable + self.without_time + self.absurd_time

    @property
    def total(self) -> int:
        """All records, which is the number of lines written."""
        return self.ordinary + self.delayed + self.rejected + self.malformed

    def __add__(self, other: WaveCounts) -> WaveCounts:
        return WaveCounts(**{kind: getattr(self, kind) + getattr(other, kind) for kind in KINDS})


@dataclass(frozen=True)
class LatenessRule:
    """A tumbling window's view of late records, in seconds; ``files_per_epoch`` says how a wave is cut into epochs."""

    files_per_epoch: int
    bound: int
    lateness: int
    size: int = 3600

    def is_late(self, pickup: int, greatest: int) -> bool:
        """Return whether a pick-up time is late when the greatest event time of earlier epochs is known."""
        end = (pickup // self.size + 1) * self.size
        return (end + self.lateness) * 1000 - 1 <= (greatest - self.bound) * 1000 - 1


class Arrival(NamedTuple):
    """One record of a wave: seconds of its arrival and its pick-up, its kind, its row in the trips of its hour."""

    arrival: int
    pickup: int
    kind: Kind
    trips: Trips
    row: int


def write_wave(folder: str | Path, wave: int, *, plan: TripPlan | None = None) -> WaveCounts:
    """Write the files of one wave; each appears whole or not at all, and writing a wave again changes nothing.

    A file's modification time is the end of the stretch it covers, so that a reader that goes by age takes them in order.

    Args:
        folder: where files arrive; created if missing.
        wave: number of the wave, from 0.
        plan: what to generate.

    Returns:
        How many records of each kind the wave has.
    """
    the_plan = plan or TripPlan()
    landing = Path(folder)
    landing.mkdir(parents=True, exist_ok=True)
    files = _files(wave, the_plan)
    for part, arrivals in enumerate(files):
        end = wave_start(wave, the_plan) + (part + 1) * _file_seconds(the_plan)
        _write(landing / f"trips-{wave:04d}-{part:02d}.json", arrivals, end)
    return _count(files)


def count_wave(wave: int, *, plan: TripPlan | None = None) -> WaveCounts:
    """Return how many records of each kind a wave has, without writing it."""
    return _count(_files(wave, plan or TripPlan()))


def count_late(waves: int, rule: LatenessRule, *, plan: TripPlan | None = None) -> tuple[int, ...]:
    """Return for each wave, from wave 0 on, how many paid records are late if every wave is drained before the next comes.

    Straight from the rule: an element is late when ``end - 1 + lateness <= W`` in milliseconds, with the watermark of the
    epoch before, which is the greatest event time until then, minus the bound, minus one.
    """
    the_plan = plan or TripPlan()
    greatest: int | None = None
    late = []
    for wave in range(waves):
        files = _files(wave, the_plan)
        of_wave = 0
        for begin in range(0, len(files), rule.files_per_epoch):
            timed = [arrival for file in files[begin : begin + rule.files_per_epoch] for arrival in file if arrival.kind not in MALFORMED]
            if greatest is not None:
                of_wave += sum(rule.is_late(arrival.pickup, greatest) for arrival in timed if arrival.kind != "rejected")
            seen = [arrival.pickup for arrival in timed] + ([] if greatest is None else [greatest])
            greatest = max(seen, default=None)
        late.append(of_wave)
    return tuple(late)


def _count(files: list[list[Arrival]]) -> WaveCounts:
    counts: Counter[str] = Counter(arrival.kind for file in files for arrival in file)
    return WaveCounts(**counts)


def _file_seconds(plan: TripPlan) -> int:
    return plan.wave_hours * 3600 // plan.files_per_wave


def wave_start(wave: int, plan: TripPlan) -> int:
    """Return when a wave begins, in seconds."""
    return int(plan.start.timestamp()) + plan.minutes_past * 60 + wave * plan.wave_hours * 3600


def _files(wave: int, plan: TripPlan) -> list[list[Arrival]]:
    """Return the records of each file of a wave, in order of arrival."""
    start, end = wave_start(wave, plan), wave_start(wave + 1, plan)
    opening = int(plan.start.timestamp())
    begin = start if wave else opening  # the first wave takes the minutes past the hour as well
    first_hour = max(begin // 3600 - _LOOK_BACK_HOURS, opening // 3600)
    files: list[list[Arrival]] = [[] for _ in range(plan.files_per_wave)]
    for hour in range(first_hour, end // 3600 + 1):
        trips = trips_of_hour(hour, trips_per_day=plan.trips_per_day, seed=plan.seed)
        for row in np.flatnonzero((trips.arrival >= begin) & (trips.arrival < end)).tolist():
            arrival = Arrival(int(trips.arrival[row]), int(trips.pickup[row]), KINDS[trips.kind[row]], trips, row)
            files[max(arrival.arrival - start, 0) // _file_seconds(plan)].append(arrival)
    for file in files:
        file.sort(key=lambda arrival: (arrival.arrival, arrival.pickup, arrival.row))
    return files


def _write(path: Path, arrivals: list[Arrival], modified: int) -> None:
    """Write a file in one step: readers skip names that begin with a dot, and a rename is atomic."""
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(_line(arrival) + "\n" for arrival in arrivals)
    os.utime(temporary, (modified, modified))
    temporary.replace(path)


def _line(arrival: Arrival) -> str:
    record = _record(arrival)
    match arrival.kind:
        case "unparsable":
            text = json.dumps(record)
            return text[: len(text) // 2 + arrival.row % 40]  # the connection broke off
        case "without_time" if arrival.row % 2:
            del record["pickup_datetime"]
        case "without_time":
            record["pickup_datetime"] = None
        case "absurd_time":
            record["pickup_datetime"] = f"{_ABSURD_YEAR}{_clock_text(arrival.pickup)[4:]}"
        case _:
            pass
    return json.dumps(record)


def _record(arrival: Arrival) -> dict[str, object]:
    """Return the record in the order of the columns of the published files."""
    trips, row = arrival.trips, arrival.row
    times = {"pickup_datetime": _clock_text(arrival.pickup), "dropoff_datetime": _clock_text(int(trips.dropoff[row]))}
    values = {name: column[row] for name, column in trips.values.items()}
    return {"vendor_id": values.pop("vendor_id"), **times, **values}


def _clock_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
