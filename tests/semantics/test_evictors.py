from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import DefinitionError, DurationError, UserCodeError
from tidemark.semantics.process.evictors import CountEvictor, DeltaEvictor, Evictor, TimedRow, TimeEvictor

ELEMENTS = st.lists(st.builds(TimedRow, st.integers(-20, 20), st.integers(0, 9).map(lambda x: {"x": x})), min_size=1, max_size=12)


def apart(earlier: object, row: object) -> float:
    assert isinstance(earlier, dict)
    assert isinstance(row, dict)
    return float(row["x"] - earlier["x"])


@settings(deadline=None)
@given(ELEMENTS, st.integers(1, 12))
def test_count_evictor_keeps_the_last(elements: list[TimedRow], count: int) -> None:
    gone = CountEvictor(count).evicted(elements)
    assert [e for place, e in enumerate(elements) if place not in gone] == elements[-count:]


@settings(deadline=None)
@given(ELEMENTS, st.integers(1, 30))
def test_time_evictor_keeps_the_last_time(elements: list[TimedRow], size: int) -> None:
    gone = TimeEvictor(size).evicted(elements)
    greatest = max(element.timestamp for element in elements)
    assert all((greatest - element.timestamp >= size) == (place in gone) for place, element in enumerate(elements))
    assert len(gone) < len(elements)


@settings(deadline=None)
@given(ELEMENTS, st.integers(-3, 9))
def test_delta_evictor_asks_for_the_distance_of_each_from_the_last(elements: list[TimedRow], threshold: int) -> None:
    gone = DeltaEvictor(threshold, apart).evicted(elements)
    last = elements[-1].row
    assert gone == {place for place, element in enumerate(elements) if apart(element.row, last) >= threshold}


def test_delta_evictor_refuses_sql_what_is_no_row_and_a_function_that_fails() -> None:
    with pytest.raises(DefinitionError, match=r"delta 'a' is SQL.*Fix:"):
        DeltaEvictor(1, "a").evicted([TimedRow(0, {})])
    with pytest.raises(DefinitionError, match=r"a delta evictor takes rows, not 7.*Fix:"):
        DeltaEvictor(1, apart).evicted([TimedRow(0, 7)])
    with pytest.raises(UserCodeError, match=r"delta apart failed: KeyError.*Fix:"):
        DeltaEvictor(1, apart).evicted([TimedRow(0, {})])


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_bad_counts(count: int) -> None:
    with pytest.raises(DefinitionError, match=r"count=.* is not a positive number of elements.*Fix:"):
        CountEvictor(count)


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_bad_sizes(size: int) -> None:
    with pytest.raises(DurationError, match=r"size=.* must be a positive number of milliseconds.*Fix:"):
        TimeEvictor(size)


@pytest.mark.parametrize(
    ("evictor", "text"),
    [
        (CountEvictor(3), "count_evictor(3)"),
        (TimeEvictor(3, after=True), "time_evictor('3ms', after)"),
        (DeltaEvictor(3, apart, after=True), "delta_evictor(3, apart, after)"),
    ],
)
def test_evictors_describe_themselves(evictor: Evictor, text: str) -> None:
    assert evictor.describe() == text
