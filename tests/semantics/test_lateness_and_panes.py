from __future__ import annotations

import pytest

from tidemark.semantics.triggers.panes import Pane, PaneTiming, due_timing, next_index
from tidemark.semantics.watermarks.lateness import Lateness, cleanup_time, is_due, is_expired, is_late, lateness_of
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

WINDOW = Window(0, 10)


@pytest.mark.parametrize(
    ("lateness", "watermark", "verdict"),
    [
        (0, MIN_WATERMARK, "on_time"),
        (0, 8, "on_time"),
        (0, 9, "late"),
        (5, 8, "on_time"),
        (5, 9, "late_accepted"),
        (5, 13, "late_accepted"),
        (5, 14, "late"),
        (5, MAX_WATERMARK, "late"),
    ],
)
def test_verdict_at_the_edges(lateness: int, watermark: int, verdict: Lateness) -> None:
    assert lateness_of(WINDOW, lateness, watermark) == verdict
    assert is_late(WINDOW, lateness, watermark) == (verdict == "late")
    assert is_expired(WINDOW, lateness, watermark) == (verdict == "late")
    assert is_due(WINDOW, watermark) == (watermark >= 9)


def test_lateness_does_not_outlive_the_end_of_input() -> None:
    assert cleanup_time(WINDOW, MAX_WATERMARK) == MAX_WATERMARK
    assert not is_late(WINDOW, MAX_WATERMARK, MAX_WATERMARK - 1)
    assert is_late(WINDOW, MAX_WATERMARK, MAX_WATERMARK)
    assert is_expired(Window(0, 2**64), 5, MAX_WATERMARK)
    assert is_due(Window(0, 2**64), MAX_WATERMARK)


def test_global_window_is_due_at_the_end_of_input_only() -> None:
    assert not is_due(GLOBAL_WINDOW, MAX_WATERMARK - 1)
    assert not is_late(GLOBAL_WINDOW, 0, MAX_WATERMARK - 1)
    assert is_due(GLOBAL_WINDOW, MAX_WATERMARK)


@pytest.mark.parametrize(
    ("before", "after", "touched", "timing"),
    [
        (MIN_WATERMARK, 8, True, None),
        (MIN_WATERMARK, 9, True, "ON_TIME"),
        (8, 9, False, "ON_TIME"),
        (8, MAX_WATERMARK, False, "ON_TIME"),
        (9, 9, False, None),
        (9, 20, False, None),
        (9, 9, True, "LATE"),
        (12, 30, True, "LATE"),
    ],
)
def test_timing_follows_from_the_two_watermarks(before: int, after: int, touched: bool, timing: PaneTiming | None) -> None:  # noqa: FBT001
    assert due_timing(WINDOW, before=before, after=after, touched=touched) == timing


def test_index_counts_panes_and_goes_on_from_the_greatest_absorbed() -> None:
    assert next_index() == 0
    assert next_index(0) == 0
    assert next_index(3) == 3
    assert next_index(1, 4, 0) == 4


def test_result_time_is_the_windows_last_instant() -> None:
    assert Pane(("a",), WINDOW, "ON_TIME", 0, 1).result_time == 9
