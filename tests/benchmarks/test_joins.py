"""What the measurements of joins are checked by is what joining row by row gives; both engines come to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.joins import __main__ as program
from benchmarks.joins.inputs import WITHIN_MS, Side, Sums, grouped, joined
from tests.seeds import only_long


@pytest.mark.parametrize("outer", [False, True])
def test_a_join_row_by_row(outer: bool) -> None:  # noqa: FBT001
    left, right = Side(500, 7, 1), Side(500, 7, 2)
    (ids, keys, times, _), (other_ids, other_keys, other_times, _) = left.columns(), right.columns()
    rows = one = other = 0
    for row in range(left.rows):
        meets = (other_keys == keys[row]) & (abs(other_times - times[row]) <= WITHIN_MS)
        found = int(meets.sum())
        rows, one, other = rows + found, one + found * int(ids[row]), other + int(other_ids[meets].sum())
        if outer and not found:
            rows, one = rows + 1, one + int(ids[row])
    assert joined(left, right, outer=outer) == Sums(rows, one, other)


def test_groups_row_by_row() -> None:
    side = Side(300, 40, 3)
    _, keys, _, values = side.columns()
    assert grouped(side) == Sums(len({*keys.tolist()}), 300, sum(values.tolist()))


def test_the_page_has_ratios_of_medians() -> None:
    page = program.render({"outer-1k": {"tidemark": [1.0, 3.0, 2.0], "spark-rocksdb": [8.0]}}, 1_000)
    line = next(line for line in page.splitlines() if line.startswith("| left"))
    assert line == f"| {program.WORKLOADS['outer-1k'].title(1_000)} | 1,000 | 250 | 4.0 times |"


@only_long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", ["outer-1k", "running-1k"])
def test_both_engines_come_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(program, "SCRATCH", tmp_path / "scratch")
    (tmp_path / "scratch").mkdir()
    assert {engine: len(seconds) for engine, seconds in program.measure(name, 20_000, 1).items()} == {"tidemark": 1, "spark-rocksdb": 1}
