from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import DurationError
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, MergedWindow, MergingWindowAssigner, Window, merge_touching

WINDOWS = st.builds(lambda start, size: Window(start, start + size), st.integers(-50, 50), st.integers(1, 15))


@pytest.mark.parametrize(
    ("size", "offset", "timestamp", "start"),
    [
        (10, 0, 0, 0),
        (10, 0, 9, 0),
        (10, 0, 10, 10),
        (10, 0, -1, -10),
        (10, 0, -10, -10),
        (10, 0, -11, -20),
        (10, 3, 2, -7),
        (10, 3, 3, 3),
        (10, 3, 12, 3),
        (10, 3, 13, 13),
        (10, -3, 6, -3),
        (10, -3, 7, 7),
        (10, -3, -4, -13),
        (1, 0, -5, -5),
        (7 * 86_400_000, 4 * 86_400_000, 0, -3 * 86_400_000),
    ],
)
def test_tumbling_is_aligned_to_1970_plus_offset_by_a_floored_modulo(size: int, offset: int, timestamp: int, start: int) -> None:
    assert Tumbling(size, offset).assign(timestamp) == (Window(start, start + size),)


@settings(deadline=None)
@given(timestamp=st.integers(-(10**14), 10**14), size=st.integers(1, 10**9), data=st.data())
def test_tumbling_windows_cover_their_element_and_tile_time(timestamp: int, size: int, data: st.DataObject) -> None:
    offset = data.draw(st.integers(-size + 1, size - 1))
    (window,) = Tumbling(size, offset).assign(timestamp)
    assert window.start <= timestamp < window.end == window.start + size
    assert (window.start - offset) % size == 0
    assert Tumbling(size, offset).assign(window.end) == (Window(window.end, window.end + size),)
    assert Tumbling(size, offset).assign(window.start - 1) == (Window(window.start - size, window.start),)


def test_window_is_half_open_and_its_results_have_its_last_instant() -> None:
    assert Window(0, 10).max_timestamp == 9


def test_tumbling_describes_itself_and_never_merges() -> None:
    assert Tumbling(10, -3).describe() == "tumbling('10ms', offset='-3ms')"
    assert not Tumbling(10).merging
    assert not isinstance(Tumbling(10), MergingWindowAssigner)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None])
def test_bad_sizes(size: int) -> None:
    with pytest.raises(DurationError, match=r"size=.* must be a positive number of milliseconds.*Fix:"):
        Tumbling(size)


@pytest.mark.parametrize("offset", [10, -10, 11, 0.5])
def test_bad_offsets(offset: int) -> None:
    with pytest.raises(DurationError, match=r"offset=.* must be less than the size, 10ms.*Fix:"):
        Tumbling(10, offset)


def test_offset_may_be_anything_short_of_the_size() -> None:
    assert Tumbling(10, 9).assign(9) == (Window(9, 19),)
    assert Tumbling(10, -9).assign(1) == (Window(1, 11),)


def test_windows_that_overlap_or_touch_merge() -> None:
    merged = merge_touching([Window(20, 30), Window(0, 10), Window(10, 15), Window(31, 40), Window(2, 4)])
    assert merged == (
        MergedWindow(Window(0, 15), (Window(0, 10), Window(2, 4), Window(10, 15))),
        MergedWindow(Window(20, 30), (Window(20, 30),)),
        MergedWindow(Window(31, 40), (Window(31, 40),)),
    )


@settings(deadline=None)
@given(st.lists(WINDOWS, max_size=12), st.randoms(use_true_random=False))
def test_merging_keeps_every_window_once_and_leaves_gaps(windows: list[Window], random: Random) -> None:
    merged = merge_touching(windows)
    shuffled = list(windows)
    random.shuffle(shuffled)
    assert merge_touching(shuffled) == merged
    assert sorted(part for group in merged for part in group.parts) == sorted(set(windows))
    assert all(left.window.end < right.window.start for left, right in pairwise(merged))
    covered = {instant for window in windows for instant in range(window.start, window.end)}
    assert covered == {instant for group in merged for instant in range(group.window.start, group.window.end)}


def test_global_window_holds_all_of_time() -> None:
    assert GLOBAL_WINDOW.start == -(2**63)
    assert GLOBAL_WINDOW.max_timestamp == 2**63 - 1
