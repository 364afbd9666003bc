"""Counts of two steps of lateness in one sum."""

from __future__ import annotations

import pytest

from tidemark.semantics.watermarks.shortfalls import STEPS_MS, Shortfalls
from tidemark.spark.operators.base.late_metrics import observed_shortfalls, shortfall_metrics

PAIR = 2**26


@pytest.mark.parametrize("late", [1, 70, PAIR - 1])
def test_two_counts_are_read_from_one_sum(late: int) -> None:
    names = [text.rpartition(" AS ")[2] for text in shortfall_metrics()]
    assert len(names) == len(STEPS_MS) // 2 + 2
    counts = [late * number // len(STEPS_MS) for number in range(len(STEPS_MS))]
    sums: list[float | None] = [float(low + high * PAIR) for low, high in zip(counts[::2], counts[1::2], strict=True)]
    found = dict(zip(names, [value or None for value in sums] + [late, 99], strict=True))
    assert observed_shortfalls(found, late, watermark=0, allowed_lateness_ms=0) == Shortfalls(late, tuple(counts), late, 99)


def test_more_late_rows_than_a_sum_can_separate_have_no_counts() -> None:
    assert observed_shortfalls({}, PAIR, watermark=0, allowed_lateness_ms=0) is None
    assert observed_shortfalls({}, 0, watermark=0, allowed_lateness_ms=0) is None
