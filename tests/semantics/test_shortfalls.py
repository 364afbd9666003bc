"""Shortfalls say what a greater lateness would have kept: the reference, run again with it, keeps exactly that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemark as tm
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Fold
from tidemark.semantics.watermarks.shortfalls import STEPS_MS, Shortfalls, shortfall
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.assigners import Cumulative, Session, Sliding, Tumbling
from tidemark.semantics.windows.windows import WindowAssigner
from tidemark.state.encoding.codec import from_jsonable, to_jsonable

MINUTE = 60_000
HOUR = 60 * MINUTE
ALIGNED: Sequence[WindowAssigner] = (
    Tumbling(10 * MINUTE, 7_000),
    Sliding(HOUR, 15 * MINUTE),
    Sliding(MINUTE, 5 * MINUTE),
    Cumulative(HOUR, 10 * MINUTE),
)
COUNT: Fold[int] = Fold(create=int, add=lambda count, value, timestamp, position: count + 1, result=lambda count: count)  # noqa: ARG005

# Times spread over days, so that steps from seconds to a day all matter.
TIMES = st.one_of(st.integers(0, 3 * 24 * HOUR), st.integers(0, 200).map(lambda tenths: 48 * HOUR + tenths * 6_000))
STREAMS = st.lists(st.lists(TIMES, min_size=1, max_size=8), min_size=1, max_size=5)
LATENESS = st.sampled_from([0, 1, 30_000, 2 * HOUR])


def run(stream: Sequence[Sequence[int]], assigner: WindowAssigner, lateness: int) -> Sequence[EpochResult]:
    epochs = [
        Epoch(
            tuple(Element(("k",), time, None, "e", "", (number, place)) for place, time in enumerate(times)), processing_time=4 * 24 * HOUR
        )
        for number, times in enumerate(stream)
    ]
    strategy = tm.bounded_out_of_orderness("1 minute", timestamp="t")
    return run_reference(ReferenceJob({"e": strategy}, assigner, COUNT, lateness), epochs)


def positions_of_late(results: Sequence[EpochResult]) -> set[object]:
    return {element.position for result in results for element in result.late}


def counted(results: Sequence[EpochResult], assigner: WindowAssigner, lateness: int) -> Shortfalls:
    """Return the shortfalls of all late elements, from the watermarks that they were compared with."""
    found: list[int | None] = []
    before = MIN_WATERMARK
    for result in results:
        for element in result.late:
            windows = assigner.assign(element.timestamp or 0)
            found.append(shortfall(windows[-1].end - 1, lateness, before) if windows else None)
        before = result.watermark
    return Shortfalls.of(found, lateness)


@given(STREAMS, st.sampled_from(ALIGNED), LATENESS)
def test_so_much_more_lateness_keeps_exactly_so_many_elements(stream: list[list[int]], assigner: WindowAssigner, lateness: int) -> None:
    results = run(stream, assigner, lateness)
    late, found = positions_of_late(results), counted(results, assigner, lateness)
    assert found.rows == len(late)
    for step, kept in zip(STEPS_MS, found.kept, strict=True):
        assert len(late - positions_of_late(run(stream, assigner, lateness + step))) == kept
    assert len(late - positions_of_late(run(stream, assigner, lateness + 2**53))) == found.reachable
    if found.greatest is not None:
        assert len(late - positions_of_late(run(stream, assigner, lateness + found.greatest))) == found.reachable
        assert len(late - positions_of_late(run(stream, assigner, lateness + found.greatest - 1))) < found.reachable


@given(STREAMS, LATENESS)
def test_of_sessions_it_keeps_at_least_so_many(stream: list[list[int]], lateness: int) -> None:
    assigner = Session(10 * MINUTE)
    results = run(stream, assigner, lateness)
    late, found = positions_of_late(results), counted(results, assigner, lateness)
    for step, kept in zip(STEPS_MS, found.kept, strict=True):
        assert len(late - positions_of_late(run(stream, assigner, lateness + step))) >= kept


@given(st.lists(st.one_of(st.none(), st.integers(1, 10 * 24 * HOUR)), min_size=1), st.integers(0, 20))
def test_counts_of_parts_add_up_and_advice_is_read_off_them(each: list[int | None], cut: int) -> None:
    found = Shortfalls.of(each[:cut]) + Shortfalls.of(each[cut:])
    assert found == Shortfalls.of(each)
    shares = [rows for _, rows in found.steps]
    assert shares == sorted(shares)
    assert all(rows == sum(value is not None and value <= step for value in each) for step, rows in found.steps)
    assert (found.advised is None) == (found.reachable == 0) == (not found.steps)
    if found.advised is not None:
        assert sum(value is not None and value <= found.advised for value in each) >= 0.99 * found.reachable
        assert shares[-1] == found.reachable


def test_a_step_is_at_most_twice_the_one_before_from_a_second_to_a_day() -> None:
    assert (STEPS_MS[0], STEPS_MS[-1]) == (1_000, 24 * HOUR)
    assert all(low < high <= 2 * low for low, high in pairwise(STEPS_MS))
    assert Shortfalls.of([100 * MINUTE]).advised == 2 * HOUR


def test_counts_of_an_earlier_release_are_read_at_its_steps_and_begin_again() -> None:
    """Those of the record of an earlier build: eight steps."""
    stored = {"rows": 10, "kept": [1, 2, 4, 4, 5, 8, 9, 9], "reachable": 10, "greatest": 90_000_000, "allowed_lateness_ms": 0}
    former = from_jsonable(Shortfalls, stored, path="record")
    assert former.steps == ((1_000, 1), (10_000, 2), (60_000, 4), (300_000, 4), (900_000, 5), (3_600_000, 8), (21_600_000, 9),
                            (86_400_000, 9), (90_000_000, 10))  # fmt: skip
    assert str(former) == "an allowed lateness of 15m would have kept 50% of 10 late rows, one of 6h 90%, one of 1d 1h all"
    assert to_jsonable(former) == stored
    later = Shortfalls.of([5_000])
    assert former + later == later


def test_counts_under_another_lateness_are_not_mixed() -> None:
    later = Shortfalls.of([5_000], 60_000)
    assert Shortfalls.of([1, 2], 0) + later == later


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Shortfalls.of([500, 700]), "an allowed lateness of 1s would have kept all of 2 late rows"),
        (Shortfalls.of([None, None]), "no lateness would have kept any of 2 late rows"),
        (Shortfalls.of([1, None], 600_000), "an allowed lateness of 10m 1s would have kept 50% of 2 late rows"),
        (
            Shortfalls.of([50_000] * 6 + [5 * MINUTE] * 3 + [30 * HOUR], None),
            "a bound of the watermark greater by 1m would have kept 60% of 10 late rows, by 5m 90%, by 1d 6h all",
        ),
    ],
)
def test_what_people_read(found: Shortfalls, text: str) -> None:
    assert str(found) == text


def test_after_the_end_of_input_no_lateness_keeps_an_element() -> None:
    assert shortfall(100, 0, MAX_WATERMARK) is None
    assert shortfall(9, 0, 9) == 1
