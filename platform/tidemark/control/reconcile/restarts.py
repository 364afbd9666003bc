"""When a job whose driver failed is started again, and when not any more: Flink's restart strategies, as a pure function."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from tidemark.control.model.records import Failure
from tidemark.control.model.spec import RestartPolicy
from tidemark.durations import format_duration, short_duration

_HEALTHY_MS: Final = 300_000
"""An attempt that lasted so long was well, and its end is not waited for. A start alone may take more than a minute of a busy machine."""


@dataclass(frozen=True)
class Restart:
    """Start again at an instant, milliseconds; ``why`` says what the delay follows from."""

    at: int
    why: str


@dataclass(frozen=True)
class NoRestart:
    """Do not start again until it is requested."""

    why: str


def decide_restart(policy: RestartPolicy, job: str, failures: Sequence[Failure]) -> Restart | NoRestart:
    """Return what follows from the newest failure.

    The same failures give the same answer, jitter included: every reconciler, at any time, decides alike.

    Args:
        policy: the job's.
        job: its name; it spreads the restarts of many jobs that failed together.
        failures: the known ones, oldest first; at least one.
    """
    newest = failures[-1]
    if not newest.transient:
        return NoRestart(f"error {newest.code} does not pass by itself")
    at_epoch = _at_same_epoch(failures)
    if 0 < policy.same_epoch_failures <= at_epoch:
        return NoRestart(f"epoch {newest.epoch} failed {at_epoch} times in a row")
    row = failures_in_a_row(policy, failures)
    if policy.kind == "none":
        return NoRestart("its restart policy is none")
    if policy.kind == "fixed":
        if row > policy.attempts:
            return NoRestart(f"it failed {row} times in a row, and its restart policy is {policy.attempts} attempts")
        return Restart(newest.at + policy.delay_ms, f"restart {row} of {policy.attempts}")
    if policy.kind == "rate":
        # Those after the newest are of a clock that has been set back since; how long they are ago nobody knows.
        recent = sum(newest.at - policy.per_ms < failure.at <= newest.at for failure in failures)
        if recent > policy.failures_per:
            return NoRestart(
                f"it failed {recent} times in {format_duration(policy.per_ms)}, and its restart policy is {policy.failures_per}"
            )
        return Restart(newest.at + policy.delay_ms, f"failure {recent} in {format_duration(policy.per_ms)}")
    return _exponential(policy, job, failures, row)


def failures_in_a_row(policy: RestartPolicy, failures: Sequence[Failure]) -> int:
    """Return how many failures came one after another without an attempt between them that got anywhere.

    One did that committed an epoch, or ran for ``reset_after_ms``; the failure that ended it is the first of a new row.
    """
    for row, failure in enumerate(reversed(failures), start=1):
        if failure.at - failure.started_at >= policy.reset_after_ms or _progressed(failures[: len(failures) - row], failure):
            return row
    return len(failures)


def _progressed(earlier: Sequence[Failure], failure: Failure) -> bool:
    """Say whether the job had another newest epoch when an attempt failed than at the failure before."""
    before = next((item.committed for item in reversed(earlier) if item.committed is not None), None)
    return before is not None and failure.committed is not None and failure.committed != before


def healthy_ms(policy: RestartPolicy) -> int:
    """Return how long an attempt lasts that was well; the failure that ends it is not waited for by ``exponential``, milliseconds."""
    return min(_HEALTHY_MS, policy.reset_after_ms)


def longest_delay(policy: RestartPolicy) -> int:
    """Return the greatest delay that the policy can ask for, milliseconds."""
    return round(policy.longest_ms * (1 + policy.jitter)) if policy.kind == "exponential" else policy.delay_ms


def _exponential(policy: RestartPolicy, job: str, failures: Sequence[Failure], row: int) -> Restart:
    newest = failures[-1]
    at_once = _needs_no_wait(policy, failures, row)
    if row == 1 and at_once:
        # What failed once, after it went well or as the first of all, is most likely to go well again; only a second time says otherwise.
        return Restart(newest.at, "its first failure" if len(failures) == 1 else "its first failure after a stretch of health")
    lived = max(0, newest.at - newest.started_at)
    why = f"failure {row} in a row" if row > 1 else f"it committed epochs, and failed again {short_duration(lived)} after its start"
    delay = float(policy.initial_ms)
    # The first that is waited for waits the first delay, whether one was started at once before it or not.
    for _ in range(row - 1 - at_once):
        delay *= policy.factor
        if delay >= policy.longest_ms:
            break
    spread = int.from_bytes(hashlib.sha256(f"{job}/{newest.attempt}".encode()).digest()[:4]) / 2**31 - 1
    return Restart(newest.at + max(0, round(min(delay, policy.longest_ms) * (1 + policy.jitter * spread))), why)


def _needs_no_wait(policy: RestartPolicy, failures: Sequence[Failure], row: int) -> bool:
    """Say whether the first failure of the newest row was the first of all, or ended an attempt that was well."""
    first = failures[-row]
    return row == len(failures) or first.at - first.started_at >= healthy_ms(policy)


def _at_same_epoch(failures: Sequence[Failure]) -> int:
    """Return how many failures in a row were at the newest one's epoch; none where that is of no epoch."""
    epoch = failures[-1].epoch
    return 0 if epoch is None else sum(1 for _ in takewhile(lambda failure: failure.epoch == epoch, reversed(failures)))
