from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.state.gc.compaction import FANOUT, SMALLEST_TIER, plan_compaction, tier_of
from tidemark.state.log.records import StateFile


def file(number: int, size: int = 1000, *, last: int | None = 0) -> StateFile:
    return StateFile(f"state/u/{number:08d}.parquet", 1, size, last, last, number)


def test_few_files_are_left_alone() -> None:
    for size, few in ((1000, 15), (SMALLEST_TIER + 1, 7)):
        plan = plan_compaction([file(number, size) for number in range(few)])
        assert (plan.merge, plan.drop) == ((), ())


def test_enough_files_of_a_tier_are_merged_oldest_first() -> None:
    for size, enough in ((1000, 16), (SMALLEST_TIER + 1, 8)):
        files = tuple(file(number, size) for number in range(enough))
        assert plan_compaction(files).merge == (files,)
        assert plan_compaction(files, max_files=5, min_files=enough // 2).merge == (files[:5],)


def test_tiers_are_merged_apart() -> None:
    small = tuple(file(number, SMALLEST_TIER) for number in range(16))
    large = tuple(file(number + 16, SMALLEST_TIER + 1) for number in range(9))
    odd = (file(90, 100 * SMALLEST_TIER),)
    assert plan_compaction(small + large + odd).merge == (small, large)


def test_the_largest_files_are_left_alone() -> None:
    files = [file(number, 10_000) for number in range(20)]
    assert plan_compaction(files, largest_file=10_000).merge == ()
    assert plan_compaction(files, largest_file=10_001).merge != ()


@pytest.mark.parametrize(
    ("last", "expired_before", "dropped"), [(99, 100, True), (100, 100, False), (None, 100, False), (99, None, False), (-5, -4, True)]
)
def test_a_file_is_dropped_when_all_its_times_are_before(last: int | None, expired_before: int | None, *, dropped: bool) -> None:
    plan = plan_compaction([file(1, last=last)], expired_before=expired_before)
    assert bool(plan.drop) == dropped


@given(
    st.lists(st.tuples(st.integers(1, 2**34), st.one_of(st.none(), st.integers(-100, 100))), max_size=60),
    st.one_of(st.none(), st.integers(-100, 100)),
    st.integers(2, 10),
    st.integers(10, 64),
)
def test_a_plan_takes_each_file_once_and_only_drops_expired_ones(
    sizes: list[tuple[int, int | None]], expired_before: int | None, min_files: int, max_files: int
) -> None:
    files = [file(number, size, last=last) for number, (size, last) in enumerate(sizes)]
    plan = plan_compaction(files, expired_before=expired_before, min_files=min_files, max_files=max_files)
    taken = [item for group in plan.merge for item in group] + list(plan.drop)
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(files)
    assert all(min_files <= len(group) <= max_files for group in plan.merge)
    expired = {item for item in files if expired_before is not None and item.max_time is not None and item.max_time < expired_before}
    assert set(plan.drop) == expired


@pytest.mark.parametrize("collapse", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("largest", [2_000, 60_000, 2_000_000])
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_epochs_keep_few_files_and_rewrite_little(collapse: float, largest: int, seed: int) -> None:
    """Nothing expires. ``collapse`` 0: merging adds sizes up; 1: all rows meet the same keys, and a merge is as large as its largest."""
    draw = random.Random(seed)
    live: list[StateFile] = []
    written = rewritten = most = 0
    for epoch in range(10_000):
        size = draw.randint(1_500, largest)
        live.append(file(epoch, size))
        written += size
        plan = plan_compaction(live)
        gone = {item for group in plan.merge for item in group}
        merged = []
        for number, group in enumerate(plan.merge):
            biggest = max(item.bytes for item in group)
            total = int(biggest + (1 - collapse) * (sum(item.bytes for item in group) - biggest))
            rewritten += total
            merged.append(file(epoch * 10 + 1_000_000 + number, total))
        live = [item for item in live if item not in gone] + merged
        most = max(most, len(live))
    tiers = 2 + math.log(max(written / SMALLEST_TIER, 1), FANOUT)
    assert most <= 8 * (tiers + 1) + written / (512 * 1024 * 1024)
    assert rewritten <= (tiers + SMALLEST_TIER / 1_500 / 2) * written
    assert most < 120


def test_tiers_begin_after_their_bound() -> None:
    assert tier_of(1) == tier_of(SMALLEST_TIER) == 0
    assert [tier_of(SMALLEST_TIER * FANOUT**n + 1) for n in range(4)] == [1, 2, 3, 4]
