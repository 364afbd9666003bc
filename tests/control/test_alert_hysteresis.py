from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.alert_cases import SECOND, T0
from tidemark.control.alerts.model.hysteresis import HoldTimes, Limits, ThresholdState, ThresholdStates

LIMITS = Limits(10, 30)


def severities(values: list[float], hold_times: HoldTimes, *, every: int = 10 * SECOND) -> str:
    """Return what each evaluation gives, a letter each."""
    states, said = ThresholdStates(), ""
    for number, value in enumerate(values):
        states = states.updated(value, LIMITS, hold_times, T0 + number * every)
        said += states.severity[0]
    return said


@pytest.mark.parametrize(
    ("values", "hold_times", "said"),
    [
        ([0, 9, 10, 29, 30, 29, 10, 9], HoldTimes(), "oowwewwo"),
        # Between 80 % of a limit and the limit things stay as they are, on both limits.
        ([9, 10, 9, 8, 7.9, 9, 10], HoldTimes(clear_ratio=0.8), "owwwoow"),
        ([30, 25, 24, 23.9, 30], HoldTimes(clear_ratio=0.8), "eeewe"),
        # It must last for half a minute: four looks, ten seconds apart. A moment below begins the wait anew.
        ([10, 10, 10, 10, 10], HoldTimes(for_ms=30_000), "oooww"),
        ([10, 10, 9, 10, 10, 10, 10], HoldTimes(for_ms=30_000), "oooooow"),
        # What is above the higher limit has been above the lower one at least as long.
        ([10, 10, 30, 30, 30, 30], HoldTimes(for_ms=30_000), "ooowwe"),
        # And it must be lower for long enough.
        ([10, 9, 9, 10, 9, 9, 9], HoldTimes(resolve_after_ms=20_000), "wwwwwwo"),
        ([30, 0, 0], HoldTimes(resolve_after_ms=10_000), "eeo"),
    ],
)
def test_a_threshold_changes_after_its_hold_time_only(values: list[float], hold_times: HoldTimes, said: str) -> None:
    assert severities(values, hold_times) == said


def test_a_limit_of_none_is_never_reached() -> None:
    assert ThresholdStates().updated(1e12, Limits(10), HoldTimes(), T0).severity == "warn"
    assert ThresholdStates().updated(1e12, Limits(), HoldTimes(), T0).is_idle


def test_a_clock_that_is_set_back_does_not_extend_the_hold_time() -> None:
    state = ThresholdState().updated(10, 10, HoldTimes(for_ms=30_000), T0)
    back = T0 - 3_600_000
    state = state.updated(10, 10, HoldTimes(for_ms=30_000), back)
    assert not state.on
    assert state.updated(10, 10, HoldTimes(for_ms=30_000), back + 30_000).on


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-5_000, 60_000)), max_size=30),
    st.sampled_from([0, 5_000, 30_000]),
    st.sampled_from([0.5, 0.8, 1.0]),
    st.sampled_from([0, 20_000]),
)
def test_an_error_counts_as_a_warning_and_what_holds_long_enough_is_found(
    looks: list[tuple[int, int]], for_ms: int, clear: float, resolve_after_ms: int
) -> None:
    hold_times, states, now = HoldTimes(for_ms, clear, resolve_after_ms), ThresholdStates(), T0
    for value, passed in looks:
        now += passed
        states = states.updated(value, LIMITS, hold_times, now)
        assert states.warn.on or not states.error.on
    for value, severity in ((30, "error"), (0, "ok"), (10, "warn")):
        for _ in range(2):
            now += max(for_ms, resolve_after_ms)
            states = states.updated(value, LIMITS, hold_times, now)
        assert states.severity == severity
    assert not ThresholdStates().updated(0, LIMITS, hold_times, now).warn.on
