"""The input of the benchmarks is what the page says it is, and the same every time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.data.fares import FIRST_TIME_MS, HOUR_MS, JITTER_MS, LATE_BY_MS, FaresPlan, Plan, ensure_fares, read_fares
from benchmarks.data.growth import EPOCH_MS, GrowthPlan, Stage

PLAN = FaresPlan(rows=100_000, drivers=50)


def test_rows_are_as_planned(tmp_path: Path) -> None:
    files = list(read_fares(PLAN, ensure_fares(PLAN, tmp_path)))
    assert len(files) == PLAN.files
    late = 0
    for number, rows in enumerate(files):
        delay = PLAN.planned_times(number) - rows.times_ms
        assert np.abs(delay[~rows.late]).max() <= JITTER_MS
        assert {round(by / HOUR_MS) * HOUR_MS for by in delay[rows.late].tolist()} <= set(LATE_BY_MS)
        assert rows.times_ms.min() >= FIRST_TIME_MS - JITTER_MS
        late += int(rows.late.sum())
    assert sum(len(rows.drivers) for rows in files) == PLAN.rows
    assert 0.2 * PLAN.rows / 2000 < late < 1.5 * PLAN.rows / 2000
    assert {int(driver) for rows in files for driver in np.unique(rows.drivers)} == set(range(PLAN.drivers))


def test_files_are_read_in_order_of_their_times(tmp_path: Path) -> None:
    paths = sorted(ensure_fares(PLAN, tmp_path).iterdir())
    assert all(before.stat().st_mtime < after.stat().st_mtime for before, after in pairwise(paths))


def test_the_same_plan_gives_the_same_rows_and_writes_them_once(tmp_path: Path) -> None:
    one, other = ensure_fares(PLAN, tmp_path / "one"), ensure_fares(PLAN, tmp_path / "other")
    assert [file.read_bytes() for file in sorted(one.iterdir())] == [file.read_bytes() for file in sorted(other.iterdir())]
    marked = next(one.iterdir())
    marked.write_bytes(b"kept")
    assert ensure_fares(PLAN, tmp_path / "one") == one
    assert marked.read_bytes() == b"kept"


def test_other_plans_have_other_folders() -> None:
    plans: list[Plan] = [PLAN, FaresPlan(rows=100_000, drivers=50, late_share=0.1), FaresPlan(rows=100_000, drivers=50, breaks=0.2), GROWTH]
    assert len({plan.name for plan in plans}) == len(plans)


def test_the_share_of_late_rows_is_as_planned(tmp_path: Path) -> None:
    few = FaresPlan(rows=100_000, drivers=50, late_share=0.01)
    late = sum(int(rows.late.sum()) for rows in read_fares(few, ensure_fares(few, tmp_path)))
    assert 0.5 * few.rows / 100 < late < few.rows / 100


def test_each_driver_takes_a_break_in_every_hour(tmp_path: Path) -> None:
    plan = FaresPlan(rows=100_000, drivers=20, hours=12, breaks=0.2)
    files = list(read_fares(plan, ensure_fares(plan, tmp_path)))
    drivers = np.concatenate([rows.drivers for rows in files])
    times = np.concatenate([rows.times_ms for rows in files])
    for driver in range(plan.drivers):
        mine = np.sort(times[drivers == driver])
        breaks = np.diff(mine) > 0.2 * HOUR_MS - 2 * JITTER_MS
        assert plan.hours - 2 <= np.count_nonzero(breaks) <= plan.hours + 1


GROWTH = GrowthPlan(
    (
        Stage("load", 1, (0, 20)),
        Stage("touch", 3, (0, 20), 10),
        Stage("load", 2, (20, 101)),
        Stage("touch", 2, (0, 101), 10),
        Stage("close", 1, (0, 20), 5),
    ),
    close_after_ms=24 * HOUR_MS,
)


def test_growing_fares_load_each_driver_once_and_touch_different_ones(tmp_path: Path) -> None:
    files = list(read_fares(GROWTH, ensure_fares(GROWTH, tmp_path)))
    assert [len(rows.drivers) for rows in files] == [20, 10, 10, 10, 41, 40, 10, 10, 5]
    assert sum(len(rows.drivers) for rows in files) == GROWTH.total_rows
    assert len(files) == GROWTH.files
    assert set(files[0].drivers.tolist()) == set(range(20))
    assert sorted([*files[4].drivers.tolist(), *files[5].drivers.tolist()]) == list(range(20, 101))
    assert all(len(set(rows.drivers.tolist())) == len(rows.drivers) for rows in files)
    assert max(files[3].drivers) < 20 <= max(files[6].drivers) < GROWTH.drivers


def test_growing_fares_are_ten_seconds_each_until_the_last_which_closes_windows(tmp_path: Path) -> None:
    files = list(read_fares(GROWTH, ensure_fares(GROWTH, tmp_path)))
    for number, rows in enumerate(files[:-1]):
        assert {(time - FIRST_TIME_MS) // EPOCH_MS for time in rows.times_ms.tolist()} == {number}
    assert files[-1].times_ms.min() >= FIRST_TIME_MS + GROWTH.close_after_ms
    assert not any(rows.late.any() for rows in files)
