"""When a job is started again: the four strategies, and the end they come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.control.records import Failure
from tidemark.control.restarts import NoRestart, Restart, decide_restart, failures_in_a_row, longest_delay
from tidemark.control.spec import RestartPolicy

HOUR = 3_600_000


def failures(*ends: tuple[int, int], epoch: int | None = None, transient: bool = True) -> tuple[Failure, ...]:
    """Return failures by when they began and ended."""
    return tuple(Failure(ended, number, begun, epoch, "TM502", "lost", transient) for number, (begun, ended) in enumerate(ends, start=1))


def in_a_row(count: int) -> tuple[Failure, ...]:
    return failures(*((number * 10_000, number * 10_000 + 5_000) for number in range(count)))


def delay(policy: RestartPolicy, known: tuple[Failure, ...]) -> int | str:
    verdict = decide_restart(policy, "fares", known)
    return verdict.at - known[-1].at if isinstance(verdict, Restart) else verdict.why


@pytest.mark.parametrize(
    ("policy", "known", "expected"),
    [
        (RestartPolicy(jitter=0), in_a_row(1), 0),
        (RestartPolicy(), in_a_row(1), 0),
        (RestartPolicy(jitter=0), in_a_row(2), 2_000),
        (RestartPolicy(jitter=0), in_a_row(5), 16_000),
        (RestartPolicy(jitter=0), in_a_row(40), 300_000),
        (RestartPolicy(jitter=0, factor=1), in_a_row(40), 1_000),
        (RestartPolicy(jitter=0), failures((0, 5), (10, 10 + HOUR)), 0),
        (RestartPolicy(jitter=0), failures((0, HOUR), (HOUR, HOUR + 5)), 2_000),
        (RestartPolicy(kind="fixed"), in_a_row(3), 10_000),
        (RestartPolicy(kind="fixed"), in_a_row(4), "it failed 4 times in a row, and its restart policy is 3 attempts"),
        (RestartPolicy(kind="fixed", attempts=0), in_a_row(1), "it failed 1 times in a row, and its restart policy is 0 attempts"),
        (RestartPolicy(kind="fixed"), failures((0, 5), (5, 9), (9, 12), (12, 12 + HOUR)), 10_000),
        (RestartPolicy(kind="rate"), in_a_row(3), 10_000),
        (RestartPolicy(kind="rate"), in_a_row(4), "it failed 4 times in 5m, and its restart policy is 3"),
        (RestartPolicy(kind="rate"), failures((0, 5), (5, 9), (9, 12), (12, 400_000)), 10_000),
        # The clock was set back by an hour before the newest.
        (RestartPolicy(kind="rate"), failures((HOUR, HOUR), (HOUR, HOUR + 5), (HOUR, HOUR + 9), (0, 5)), 10_000),
        (RestartPolicy(kind="none"), in_a_row(1), "its restart policy is none"),
        (RestartPolicy(), failures((0, 5), transient=False), "error TM502 does not pass by itself"),
        (RestartPolicy(), failures((0, 5), (5, 9), (9, 12), epoch=7), "epoch 7 failed 3 times in a row"),
        (RestartPolicy(jitter=0, same_epoch_failures=0), failures((0, 5), (5, 9), (9, 12), epoch=7), 4_000),
        (RestartPolicy(jitter=0), (*failures((0, 5), (5, 9), epoch=7), *failures((9, 12), epoch=8)), 4_000),
    ],
)
def test_what_follows_from_failures(policy: RestartPolicy, known: tuple[Failure, ...], expected: int | str) -> None:
    assert delay(policy, known) == expected


def test_jitter_spreads_jobs_and_is_the_same_for_all_who_decide() -> None:
    at = {decide_restart(RestartPolicy(), f"job-{number}", in_a_row(6)) for number in range(50)}
    delays = sorted(verdict.at - in_a_row(6)[-1].at for verdict in at if isinstance(verdict, Restart))
    assert len(delays) > 40
    assert 0.9 * 32_000 <= delays[0] < 0.95 * 32_000
    assert 1.05 * 32_000 < delays[-1] <= 1.1 * 32_000
    assert decide_restart(RestartPolicy(), "fares", in_a_row(6)) == decide_restart(RestartPolicy(), "fares", in_a_row(6))


@given(
    st.builds(
        RestartPolicy,
        kind=st.sampled_from(["exponential", "fixed", "rate"]),
        initial_ms=st.integers(0, 10_000),
        longest_ms=st.integers(10_000, 600_000),
        factor=st.floats(1, 10),
        jitter=st.floats(0, 1),
        delay_ms=st.integers(0, 60_000),
    ),
    st.integers(1, 50),
)
def test_a_delay_is_never_longer_than_the_longest(policy: RestartPolicy, count: int) -> None:
    known = in_a_row(count)
    verdict = decide_restart(policy, "fares", known)
    assert isinstance(verdict, NoRestart) or 0 <= verdict.at - known[-1].at <= longest_delay(policy)
    assert failures_in_a_row(policy, known) == count
