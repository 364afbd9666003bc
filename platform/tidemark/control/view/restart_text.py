"""A restart policy as text, as the status of a job shows it. Pure."""

from __future__ import annotations

from tidemark.control.model.spec import RestartPolicy
from tidemark.control.reconcile.restarts import healthy_ms
from tidemark.durations import format_duration


def policy_text(policy: RestartPolicy) -> str:
    """Return a restart policy as text.

    >>> for part in policy_text(RestartPolicy(same_epoch_failures=0)).split("; "):
    ...     print(part)
    exponential, at once at first and after 5m of health, else after 1s, then 2 times as long each time up to 5m
    a committed epoch or 1h resets the count
    >>> policy_text(RestartPolicy(kind="rate", same_epoch_failures=0))
    'rate, after 10s, up to 3 failures in 5m'
    """
    if policy.kind == "none":
        return "none, no restart after a failure"
    delay, reset = format_duration(policy.delay_ms), f"a committed epoch or {format_duration(policy.reset_after_ms)} resets the count"
    if policy.kind == "exponential":
        healthy = format_duration(healthy_ms(policy))
        first, most = format_duration(policy.initial_ms), format_duration(policy.longest_ms)
        growing = f"else after {first}, then {policy.factor:g} times as long each time up to {most}"
        parts = [f"exponential, at once at first and after {healthy} of health, {growing}", reset]
    elif policy.kind == "fixed":
        parts = [f"fixed, after {delay}, up to {policy.attempts} times in a row", reset]
    else:
        parts = [f"rate, after {delay}, up to {policy.failures_per} failures in {format_duration(policy.per_ms)}"]
    if policy.same_epoch_failures:
        parts.append(f"{policy.same_epoch_failures} failures at one epoch fail the job")
    return "; ".join(parts)
