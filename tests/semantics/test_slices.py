"""Slices agree with the windows that they are cut from, whatever the sizes, and so do the bounds that are worked out from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.semantics.watermarks.lateness import is_due, is_expired
from tidemark.semantics.windows.assigners import Cumulative, Sliding
from tidemark.semantics.windows.slices import Slices

TIMES = st.integers(-300, 300)


@st.composite
def assigners(draw: st.DrawFn) -> Sliding | Cumulative:
    step = draw(st.integers(1, 20))
    if draw(st.booleans()):
        return Sliding(draw(st.integers(1, 60)), step, draw(st.integers(-step + 1, step - 1)))
    size = step * draw(st.integers(1, 12))
    return Cumulative(size, step, draw(st.integers(-size + 1, size - 1)))


def slice_of(time: int, slices: Slices) -> int:
    return time - (time - slices.offset) % slices.width


@given(assigners(), TIMES)
def test_all_elements_of_a_slice_are_in_the_same_windows(assigner: Sliding | Cumulative, time: int) -> None:
    slices = Slices.of(assigner)
    start = slice_of(time, slices)
    windows = assigner.assign(time)
    assert all(assigner.assign(other) == windows for other in range(start, start + slices.width))
    assert windows or slices.gaps
    if windows:
        assert slices.first_end_of(start) == min(window.end for window in windows)
        assert slices.last_end_of(start) == max(window.end for window in windows)


@given(assigners(), TIMES)
def test_a_window_is_a_prefix_of_a_block_and_a_suffix_of_the_one_before(assigner: Sliding | Cumulative, time: int) -> None:
    slices = Slices.of(assigner)
    for window in assigner.assign(time):
        block = slices.block_of(window.end - 1)
        assert slices.start_of(window.end) == window.start
        assert (window.start - slices.offset) % slices.width == 0
        assert window.start <= block < window.end <= block + slices.span
        assert block - slices.span < window.start
        assert block == window.start or not slices.growing


@given(assigners(), TIMES, TIMES, st.sampled_from([0, 1, 7, 100]))
def test_bounds_of_slices_are_those_of_their_windows(assigner: Sliding | Cumulative, time: int, watermark: int, lateness: int) -> None:
    slices = Slices.of(assigner)
    end = slices.last_end(watermark)
    assert end - 1 <= watermark < end + slices.ends - 1
    start, windows = slice_of(time, slices), assigner.assign(time)
    if windows:
        assert (start <= slices.last_expired(watermark, lateness)) == all(is_expired(each, lateness, watermark) for each in windows)
        assert (start <= slices.last_fired(watermark)) == any(is_due(each, watermark) for each in windows)


@pytest.mark.parametrize(("assigner", "width"), [(Sliding(24, 10), 2), (Sliding(10, 24), 2), (Cumulative(30, 5), 5), (Sliding(5, 5), 5)])
def test_width(assigner: Sliding | Cumulative, width: int) -> None:
    assert Slices.of(assigner).width == width
