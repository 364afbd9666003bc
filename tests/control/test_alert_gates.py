from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.alert_cases import SECOND, T0
from tidemark.control.alerts.model.hysteresis import HoldTimes, Limits, ThresholdState, ThresholdStates

LIMITS = Limits(10, 30)


def severities(values: list[float], patience: HoldTimes, *, every: int = 10 * SECOND) -> str:
    """Return what each look says, a letter each."""
    gates, said = ThresholdStates(), ""
    for number, value in enumerate(values):
        gates = gates.updated(value, LIMITS, patience, T0 + number * every)
        said += gates.severity[0]
    return said


@pytest.mark.parametrize(
    ("values", "patience", "said"),
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
def test_a_limit_is_passed_for_a_while_and_left_for_a_while(values: list[float], patience: HoldTimes, said: str) -> None:
    assert severities(values, patience) == said


def test_a_limit_of_none_is_never_reached() -> None:
    assert ThresholdStates().updated(1e12, Limits(10), HoldTimes(), T0).severity == "warn"
    assert ThresholdStates().updated(1e12, Limits(), HoldTimes(), T0).is_idle


def test_a_clock_that_is_put_back_does_not_stop_the_wait() -> None:
    gate = ThresholdState().updated(10, 10, HoldTimes(for_ms=30_000), T0)
    back = T0 - 3_600_000
    gate = gate.updated(10, 10, HoldTimes(for_ms=30_000), back)
    assert not gate.on
    assert gate.updated(10, 10, HoldTimes(for_ms=30_000), back + 30_000).on


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-5_000, 60_000)), max_size=30),
    st.sampled_from([0, 5_000, 30_000]),
    st.sampled_from([0.5, 0.8, 1.0]),
    st.sampled_from([0, 20_000]),
)
def test_an_error_is_a_warning_too_and_what_lasts_is_found(
    looks: list[tuple[int, int]], for_ms: int, clear: float, resolve_after_ms: int
) -> None:
    patience, gates, now = HoldTimes(for_ms, clear, resolve_after_ms), ThresholdStates(), T0
    for value, passed in looks:
        now += passed
        gates = gates.updated(value, LIMITS, patience, now)
        assert gates.warn.on or not gates.error.on
    for value, severity in ((30, "error"), (0, "ok"), (10, "warn")):
        for _ in range(2):
            now += max(for_ms, resolve_after_ms)
            gates = gates.updated(value, LIMITS, patience, now)
        assert gates.severity == severity
    assert not ThresholdStates().updated(0, LIMITS, patience, now).warn.on
