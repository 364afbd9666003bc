"""The generator of trips writes what it says it writes, the same each time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.taxi.generator import LatenessRule, TripPlan, WaveCounts, count_late, count_wave, write_wave

COLUMNS = [
    "vendor_id", "pickup_datetime", "dropoff_datetime", "passenger_count", "trip_distance", "rate_code_id", "store_and_fwd_flag",
    "pickup_location_id", "dropoff_location_id", "payment_type", "fare_amount", "extra", "mta_tax", "tip_amount", "tolls_amount",
    "improvement_surcharge", "total_amount", "congestion_surcharge",
]  # fmt: skip
PLAN = TripPlan(trips_per_day=6_000, files_per_wave=3)
RULE = LatenessRule(files_per_epoch=2, bound=300, lateness=600)


def lines_of(folder: Path) -> list[str]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_text(encoding="utf-8").splitlines()]


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def kind_of(line: str) -> str:
    """Return the kind of a record as a reader sees it: delayed ones look like ordinary ones."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return "unparsable"
    if record.get("pickup_datetime") is None:
        return "without_time"
    if record["pickup_datetime"].startswith("2090"):
        return "absurd_time"
    return "rejected" if record["fare_amount"] < 0 else "paid"


def test_counts_are_those_of_the_lines_written(tmp_path: Path) -> None:
    total = sum((write_wave(tmp_path, wave, plan=PLAN) for wave in range(4)), WaveCounts())
    found = Counter(map(kind_of, lines_of(tmp_path)))
    assert total.total == found.total() > 10_000
    assert found == {
        "paid": total.ordinary + total.delayed,
        "rejected": total.rejected,
        "unparsable": total.unparsable,
        "without_time": total.without_time,
        "absurd_time": total.absurd_time,
    }
    assert min(found.values()) > 0


def test_the_same_plan_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = tmp_path / "first", tmp_path / "again", tmp_path / "other"
    write_wave(first, 1, plan=PLAN)
    write_wave(again, 0, plan=PLAN)  # another order of waves
    write_wave(again, 1, plan=PLAN)
    write_wave(again, 1, plan=PLAN)
    write_wave(other, 1, plan=TripPlan(trips_per_day=6_000, files_per_wave=3, seed=1))
    written = {path.name: path.read_bytes() for path in first.iterdir()}
    assert {name: (again / name).read_bytes() for name in written} == written
    assert lines_of(other) != lines_of(first)


def test_records_have_the_published_columns_in_order_of_arrival(tmp_path: Path) -> None:
    write_wave(tmp_path, 1, plan=PLAN)
    records = [json.loads(line) for line in lines_of(tmp_path) if kind_of(line) == "paid"]
    assert all(list(record) == COLUMNS for record in records)
    pickups = [seconds(record["pickup_datetime"]) for record in records]
    assert pickups != sorted(pickups)
    start = seconds("2024-03-04 12:12:00")
    dropoffs = [seconds(record["dropoff_datetime"]) for record in records]
    assert sum(start <= dropoff < start + 12 * 3600 for dropoff in dropoffs) > 0.98 * len(records)
    assert max(dropoffs) < start + 12 * 3600, "nothing arrives before its trip has ended"


def test_files_age_in_the_order_of_their_stretches_and_appear_whole(tmp_path: Path) -> None:
    for wave in range(2):
        write_wave(tmp_path, wave, plan=PLAN)
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == [f"trips-{wave:04d}-{part:02d}.json" for wave in range(2) for part in range(3)]
    ages = [path.stat().st_mtime for path in paths]
    assert ages == sorted(set(ages))


def test_every_trip_arrives_in_exactly_one_wave() -> None:
    halves = [count_wave(wave, plan=PLAN) for wave in range(4)]
    days = [count_wave(wave, plan=TripPlan(trips_per_day=6_000, files_per_wave=3, wave_hours=24)) for wave in range(2)]
    assert [halves[0] + halves[1], halves[2] + halves[3]] == days


def test_a_wave_of_the_default_plan_has_tens_of_thousands_of_trips() -> None:
    assert 15_000 < count_wave(2).total < 50_000


@pytest.mark.parametrize(
    ("pickup", "greatest", "late"),
    [
        (0, 3600 + 600 + 300 - 1, False),  # the watermark is one millisecond short
        (0, 3600 + 600 + 300, True),
        (3599, 3600 + 600 + 300, True),
        (3600, 3600 + 600 + 300, False),  # the next window
    ],
)
def test_lateness_is_decided_as_the_contract_says(pickup: int, greatest: int, *, late: bool) -> None:
    assert RULE.is_late(pickup, greatest) is late


def test_late_records_are_those_of_a_plain_count_over_the_files(tmp_path: Path) -> None:
    for wave in range(3):
        write_wave(tmp_path, wave, plan=PLAN)
    late, greatest = [], None
    for wave in range(3):
        paths = sorted(tmp_path.glob(f"trips-{wave:04d}-*.json"))
        late.append(0)
        for epoch in (paths[:2], paths[2:]):
            lines = [line for path in epoch for line in path.read_text(encoding="utf-8").splitlines()]
            times = {
                kind: [seconds(json.loads(line)["pickup_datetime"]) for line in lines if kind_of(line) == kind]
                for kind in ("paid", "rejected")
            }
            if greatest is not None:
                watermark = greatest - 300
                late[-1] += sum(time // 3600 * 3600 + 3600 + 600 <= watermark for time in times["paid"])
            greatest = max([*times["paid"], *times["rejected"], *([] if greatest is None else [greatest])])
    assert tuple(late) == count_late(3, RULE, plan=PLAN)
    assert sum(late) > 0
