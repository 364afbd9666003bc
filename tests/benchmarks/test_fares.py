"""The input of the benchmarks is what the page says it is, and the same every time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.fares import FIRST_TIME_MS, HOUR_MS, JITTER_MS, LATE_BY_MS, FaresPlan, ensure_fares, read_fares

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
