"""When a job is started again: the four strategies, and the end they come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.control.worlds import World, lifecycle
from tidemark.cli.program.main import main
from tidemark.control.desired.spec_store import read_spec
from tidemark.control.model.records import Failure
from tidemark.control.model.spec import RestartPolicy
from tidemark.control.reconcile.restarts import NoRestart, Restart, decide_restart, failures_in_a_row, longest_delay
from tidemark.control.view.restart_text import policy_text
from tidemark.state.store.store import JobStore

HOUR = 3_600_000


def failures(*ends: tuple[int, int], epoch: int | None = None, transient: bool = True) -> tuple[Failure, ...]:
    """Return failures by when they began and ended."""
    return tuple(Failure(ended, number, begun, epoch, "TM502", "lost", transient) for number, (begun, ended) in enumerate(ends, start=1))


def in_a_row(count: int) -> tuple[Failure, ...]:
    return failures(*((number * 10_000, number * 10_000 + 5_000) for number in range(count)))


def at_epochs(*committed: int | None) -> tuple[Failure, ...]:
    """Return failures a few seconds after one another, by the job's newest epoch at each."""
    return tuple(replace(failure, committed=epoch) for failure, epoch in zip(in_a_row(len(committed)), committed, strict=True))


def committing(lived: int, *, attempts: int = 40) -> tuple[Failure, ...]:
    """Return the failures of attempts that each commit an epoch and then die, so long after they began."""
    ends = failures(*((number * HOUR, number * HOUR + lived) for number in range(attempts)))
    return tuple(replace(failure, committed=epoch) for epoch, failure in enumerate(ends))


def delay(policy: RestartPolicy, known: tuple[Failure, ...]) -> int | str:
    verdict = decide_restart(policy, "fares", known)
    return verdict.at - known[-1].at if isinstance(verdict, Restart) else verdict.why


@pytest.mark.parametrize(
    ("policy", "known", "expected"),
    [
        (RestartPolicy(jitter=0), in_a_row(1), 0),
        (RestartPolicy(), in_a_row(1), 0),
        (RestartPolicy(jitter=0), in_a_row(2), 1_000),
        (RestartPolicy(jitter=0), in_a_row(3), 2_000),
        (RestartPolicy(jitter=0, initial_ms=7_000), in_a_row(2), 7_000),
        (RestartPolicy(jitter=0), in_a_row(5), 8_000),
        (RestartPolicy(jitter=0), in_a_row(40), 300_000),
        (RestartPolicy(jitter=0, factor=1), in_a_row(40), 1_000),
        (RestartPolicy(jitter=0), failures((0, 5), (10, 10 + HOUR)), 0),
        (RestartPolicy(jitter=0), failures((0, HOUR), (HOUR, HOUR + 5)), 1_000),
        (RestartPolicy(kind="fixed"), in_a_row(3), 10_000),
        (RestartPolicy(kind="fixed"), in_a_row(4), "it failed 4 times in a row, and its restart policy is 3 attempts"),
        (RestartPolicy(kind="fixed", attempts=0), in_a_row(1), "it failed 1 times in a row, and its restart policy is 0 attempts"),
        (RestartPolicy(kind="fixed"), failures((0, 5), (5, 9), (9, 12), (12, 12 + HOUR)), 10_000),
        # What was committed in between counts, however short the attempts.
        (RestartPolicy(jitter=0), at_epochs(*range(10)), 1_000),
        (RestartPolicy(kind="fixed"), at_epochs(*range(25)), 10_000),
        (RestartPolicy(jitter=0), at_epochs(-1, 0, 0, 0), 4_000),
        (RestartPolicy(jitter=0), at_epochs(7, 7, 7), 2_000),
        (RestartPolicy(jitter=0), at_epochs(-1, -1), 1_000),
        (RestartPolicy(kind="fixed"), at_epochs(3, 4, 4, 4), 10_000),
        (RestartPolicy(kind="fixed"), at_epochs(4, 4, 4, 4), "it failed 4 times in a row, and its restart policy is 3 attempts"),
        # Put back in between: somebody has seen to it.
        (RestartPolicy(jitter=0), at_epochs(9, 2), 1_000),
        # Where it is not known, as an older release left it or of an attempt that was not launched, it is not taken for progress.
        (RestartPolicy(jitter=0), at_epochs(None, 5, None, 5), 4_000),
        (RestartPolicy(jitter=0), at_epochs(4, None, 5), 1_000),
        (RestartPolicy(kind="fixed"), at_epochs(5, 5, None, 5), "it failed 4 times in a row, and its restart policy is 3 attempts"),
        (RestartPolicy(kind="fixed"), at_epochs(5, 5, 5, None), "it failed 4 times in a row, and its restart policy is 3 attempts"),
        # It commits and dies, again and again: only after a stretch of health is a failure not waited for.
        (RestartPolicy(jitter=0), committing(299_999), 1_000),
        (RestartPolicy(jitter=0), committing(300_000), 0),
        (RestartPolicy(jitter=0, initial_ms=7_000), committing(20_000), 7_000),
        (RestartPolicy(jitter=0, reset_after_ms=20_000), committing(20_000), 0),
        (RestartPolicy(jitter=0, initial_ms=0), committing(20_000), 0),
        (RestartPolicy(jitter=0), tuple(replace(item, epoch=7) for item in at_epochs(6, 6, 6)), "epoch 7 failed 3 times in a row"),
        (RestartPolicy(kind="rate"), at_epochs(1, 2, 3, 4), "it failed 4 times in 5m, and its restart policy is 3"),
        (RestartPolicy(kind="rate"), in_a_row(3), 10_000),
        (RestartPolicy(kind="rate"), in_a_row(4), "it failed 4 times in 5m, and its restart policy is 3"),
        (RestartPolicy(kind="rate"), failures((0, 5), (5, 9), (9, 12), (12, 400_000)), 10_000),
        # The clock was set back by an hour before the newest.
        (RestartPolicy(kind="rate"), failures((HOUR, HOUR), (HOUR, HOUR + 5), (HOUR, HOUR + 9), (0, 5)), 10_000),
        (RestartPolicy(kind="none"), in_a_row(1), "its restart policy is none"),
        (RestartPolicy(), failures((0, 5), transient=False), "error TM502 is permanent"),
        (RestartPolicy(), failures((0, 5), (5, 9), (9, 12), epoch=7), "epoch 7 failed 3 times in a row"),
        (RestartPolicy(jitter=0, same_epoch_failures=0), failures((0, 5), (5, 9), (9, 12), epoch=7), 2_000),
        (RestartPolicy(jitter=0), (*failures((0, 5), (5, 9), epoch=7), *failures((9, 12), epoch=8)), 2_000),
    ],
)
def test_what_follows_from_failures(policy: RestartPolicy, known: tuple[Failure, ...], expected: int | str) -> None:
    assert delay(policy, known) == expected


def test_what_commits_and_dies_is_neither_given_up_nor_waited_for_longer_and_longer() -> None:
    policy = RestartPolicy()
    known = committing(20_000)
    delays = [delay(policy, known[: count + 1]) for count in range(len(known))]
    assert delays[0] == 0
    assert all(isinstance(wait, int) and 900 <= wait <= 1_100 for wait in delays[1:])


def test_a_job_that_commits_an_epoch_in_every_attempt_and_dies_is_not_started_in_a_hot_loop() -> None:
    world = World()
    world.submit(restart=RestartPolicy(jitter=0))
    reconciler = world.reconciler()
    world.run(reconciler, 20)
    waits = []
    for _ in range(5):
        world.driver().end(-9)
        reconciler.reconcile_all()
        at = world.status().next_start_at
        waits.append(0 if at is None else at - world.clock.now_ms())
        world.run(reconciler, 20)
        lifecycle(world, "running")
    assert waits == [0, 1_000, 1_000, 1_000, 1_000]


@pytest.mark.parametrize(
    ("known", "delays"),
    [
        (in_a_row(5), [0, 1_000, 2_000, 4_000, 8_000]),
        # The second committed epochs and died soon after it was started at once, the others did not get that far.
        (at_epochs(6, 7, 7, 7), [0, 1_000, 2_000, 4_000]),
        # The third was well for hours.
        (failures((0, 5), (5, 9), (9, 3 * HOUR), (3 * HOUR, 3 * HOUR + 5)), [0, 1_000, 0, 1_000]),
    ],
)
def test_the_delay_that_is_given_is_the_first_that_is_waited_for(known: tuple[Failure, ...], delays: list[int]) -> None:
    policy = RestartPolicy(jitter=0)
    assert [delay(policy, known[: count + 1]) for count in range(len(known))] == delays


def test_jitter_spreads_jobs_and_is_the_same_for_all_who_decide() -> None:
    at = {decide_restart(RestartPolicy(), f"job-{number}", in_a_row(6)) for number in range(50)}
    delays = sorted(verdict.at - in_a_row(6)[-1].at for verdict in at if isinstance(verdict, Restart))
    assert len(delays) > 40
    assert 0.9 * 16_000 <= delays[0] < 0.95 * 16_000
    assert 1.05 * 16_000 < delays[-1] <= 1.1 * 16_000
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


def submit(folder: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["submit", "m:job", "--name", "fares", "--store", str(folder), "--suspended", *options])
    return done.exit_code, done.stderr


@pytest.mark.parametrize(
    ("options", "policy", "shown"),
    [
        (
            (),
            RestartPolicy(),
            "exponential, at once at first and after 5m of health, else after 1s, then 2 times as long each time up to 5m",
        ),
        (
            ("--restart-delay", "2 s", "--restart-longest", "1 minute", "--restart-multiplier", "1.5", "--restart-jitter", "0"),
            RestartPolicy(initial_ms=2_000, delay_ms=2_000, longest_ms=60_000, factor=1.5, jitter=0),
            "exponential, at once at first and after 5m of health, else after 2s, then 1.5 times as long each time up to 1m",
        ),
        (("--restart-delay", "10 minutes"), RestartPolicy(initial_ms=600_000, delay_ms=600_000, longest_ms=600_000), "up to 10m"),
        (
            ("--restart", "fixed", "--restart-attempts", "7", "--restart-reset-after", "2 hours"),
            RestartPolicy(kind="fixed", attempts=7, failures_per=7, reset_after_ms=2 * HOUR),
            "fixed, after 10s, up to 7 times in a row; a committed epoch or 2h resets the count; 3 failures at one epoch fail the job",
        ),
        (
            ("--restart", "rate", "--restart-attempts", "5", "--restart-window", "1 hour", "--same-epoch-failures", "0"),
            RestartPolicy(kind="rate", attempts=5, failures_per=5, per_ms=HOUR, same_epoch_failures=0),
            "rate, after 10s, up to 5 failures in 1h",
        ),
        (("--restart", "none"), RestartPolicy(kind="none"), "none, no restart after a failure"),
    ],
)
def test_every_bound_is_an_option_of_submit_and_shown(options: tuple[str, ...], policy: RestartPolicy, shown: str, tmp_path: Path) -> None:
    assert submit(tmp_path, *options) == (0, "")
    made = read_spec(JobStore.open(str(tmp_path)), "fares")
    assert made is not None
    assert made.spec.restart == policy
    assert shown in policy_text(policy)
    status = CliRunner().invoke(main, ["status", "fares", "--store", str(tmp_path)], terminal_width=200).stdout
    assert f"  restarts: {policy_text(policy)}" in status


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--restart-multiplier", "0.5"), "restart.factor=0.5 is too small"),
        (("--restart-multiplier", "inf"), "restart.factor=inf is infinite"),
        (("--restart-jitter", "2"), "restart.jitter=2.0 is more than the whole delay"),
        (("--restart-longest", "10 ms"), "restart.longest_ms=10 is too small"),
        (("--restart", "fixed", "--restart-attempts", "50"), "more failures than are stored"),
        (("--restart-attempts", "5"), "--restart-attempts has no effect with the restart strategy 'exponential'"),
        (("--restart", "fixed", "--restart-multiplier", "3"), "--restart-multiplier has no effect with the restart strategy 'fixed'"),
        (("--restart", "none", "--restart-delay", "1 s"), "set --restart exponential or --restart fixed or --restart rate"),
        (("--restart", "fixed", "--restart-window", "1 h"), "leave it out, or set --restart rate"),
    ],
)
def test_a_bound_that_cannot_be_or_would_do_nothing_is_refused(options: tuple[str, ...], says: str, tmp_path: Path) -> None:
    code, said = submit(tmp_path, *options)
    assert code == 1
    assert says in said
    assert "Fix: " in said


def test_a_job_that_commits_between_its_failures_is_started_again_for_ever() -> None:
    """Five kills, epochs between them: three in a row are what ends it, and these are not in a row."""
    world = World()
    world.submit(restart=RestartPolicy(kind="fixed", attempts=2, delay_ms=1_000))
    reconciler = world.reconciler()
    for _ in range(5):
        world.run(reconciler, 20)
        world.driver().end(-9)
    world.run(reconciler, 20)
    lifecycle(world, "running")
    # One that commits nothing is given up as ever.
    world.driver().end(-9)
    for _ in range(3):
        world.run(reconciler, 5)
        for process in world.alive():
            process.end(-9)
    world.run(reconciler, 5)
    lifecycle(world, "failed")
    assert "it failed 3 times in a row, and its restart policy is 2 attempts" in world.status().reason
