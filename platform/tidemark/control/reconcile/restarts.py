"""Decides whether and when a job whose driver failed is restarted: Flink's restart strategies, as a pure function."""

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
"""An attempt that ran this long was healthy and is restarted without delay. A start alone may take over a minute on a busy machine."""


@dataclass(frozen=True)
class Restart:
    """Restart at an instant in milliseconds; ``why`` is the reason for the delay."""

    at: int
    why: str


@dataclass(frozen=True)
class NoRestart:
    """Do not restart until it is requested."""

    why: str


def decide_restart(policy: RestartPolicy, job: str, failures: Sequence[Failure]) -> Restart | NoRestart:
    """Return the decision on the newest failure.

    The same failures give the same answer, jitter included, so that all reconcilers decide alike at any time.

    Args:
        policy: the job's restart policy.
        job: its name, which spreads the restarts of many jobs that failed together.
        failures: the known ones, oldest first; at least one.
    """
    newest = failures[-1]
    if not newest.transient:
        return NoRestart(f"error {newest.code} is permanent")
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
        # Failures after the newest are from a clock that was set back since; their age is unknown.
        recent = sum(newest.at - policy.per_ms < failure.at <= newest.at for failure in failures)
        if recent > policy.failures_per:
            return NoRestart(
                f"it failed {recent} times in {format_duration(policy.per_ms)}, and its restart policy is {policy.failures_per}"
            )
        return Restart(newest.at + policy.delay_ms, f"failure {recent} in {format_duration(policy.per_ms)}")
    return _exponential(policy, job, failures, row)


def failures_in_a_row(policy: RestartPolicy, failures: Sequence[Failure]) -> int:
    """Return the number of consecutive failures without an attempt that made progress.

    An attempt made progress if it committed an epoch or ran for ``reset_after_ms``; the failure that ended it is the first of a new row.
    """
    for row, failure in enumerate(reversed(failures), start=1):
        if failure.at - failure.started_at >= policy.reset_after_ms or _progressed(failures[: len(failures) - row], failure):
            return row
    return len(failures)


def _progressed(earlier: Sequence[Failure], failure: Failure) -> bool:
    """Return whether the job's newest epoch changed between the previous failure and this one."""
    before = next((item.committed for item in reversed(earlier) if item.committed is not None), None)
    return before is not None and failure.committed is not None and failure.committed != before


def healthy_ms(policy: RestartPolicy) -> int:
    """Return the duration in milliseconds from which an attempt was healthy; ``exponential`` restarts it without delay."""
    return min(_HEALTHY_MS, policy.reset_after_ms)


def longest_delay(policy: RestartPolicy) -> int:
    """Return the policy's longest delay in milliseconds."""
    return round(policy.longest_ms * (1 + policy.jitter)) if policy.kind == "exponential" else policy.delay_ms


def _exponential(policy: RestartPolicy, job: str, failures: Sequence[Failure], row: int) -> Restart:
    newest = failures[-1]
    at_once = _needs_no_wait(policy, failures, row)
    if row == 1 and at_once:
        # A first failure, or one after a healthy period, is likely to be a single one; only a second one says otherwise.
        return Restart(newest.at, "its first failure" if len(failures) == 1 else "its first failure after a healthy period")
    lived = max(0, newest.at - newest.started_at)
    why = f"failure {row} in a row" if row > 1 else f"it committed epochs, and failed again {short_duration(lived)} after its start"
    delay = float(policy.initial_ms)
    # The first delayed restart has the initial delay, whether a restart at once came before it or not.
    for _ in range(row - 1 - at_once):
        delay *= policy.factor
        if delay >= policy.longest_ms:
            break
    spread = int.from_bytes(hashlib.sha256(f"{job}/{newest.attempt}".encode()).digest()[:4]) / 2**31 - 1
    return Restart(newest.at + max(0, round(min(delay, policy.longest_ms) * (1 + policy.jitter * spread))), why)


def _needs_no_wait(policy: RestartPolicy, failures: Sequence[Failure], row: int) -> bool:
    """Return whether the first failure of the newest row was the first of all, or ended a healthy attempt."""
    first = failures[-row]
    return row == len(failures) or first.at - first.started_at >= healthy_ms(policy)


def _at_same_epoch(failures: Sequence[Failure]) -> int:
    """Return how many failures in a row were at the newest one's epoch; 0 if that has no epoch."""
    epoch = failures[-1].epoch
    return 0 if epoch is None else sum(1 for _ in takewhile(lambda failure: failure.epoch == epoch, reversed(failures)))
