"""Thresholds with hysteresis and hold times: when a fluctuating number counts as too high.

Pure; times are milliseconds since 1970-01-01 UTC and an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["ok", "warn", "error"]
SEVERITIES: tuple[Severity, ...] = ("ok", "warn", "error")


def rank(severity: Severity) -> int:
    """Return a severity's rank: 0, 1, 2.

    >>> rank("error") > rank("warn") > rank("ok")
    True
    """
    return SEVERITIES.index(severity)


def worse_of(one: Severity, other: Severity) -> Severity:
    """Return the worse of two severities."""
    return max(one, other, key=rank)


@dataclass(frozen=True)
class HoldTimes:
    """The hold times of a threshold.

    Args:
        for_ms: how long it must be at the limit or above before that counts.
        clear_ratio: the share of the limit that it must fall below before it counts as lower again, at most 1.
        resolve_after_ms: how long it must be lower before that counts.
    """

    for_ms: int = 0
    clear_ratio: float = 1.0
    resolve_after_ms: int = 0


@dataclass(frozen=True)
class ThresholdState:
    """The state of one limit: ``on`` is whether it fires, ``above`` whether the last number was above, ``since`` since when."""

    on: bool = False
    above: bool = False
    since: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not self.on and not self.above

    def updated(self, value: float, limit: float | None, hold_times: HoldTimes, now: int) -> ThresholdState:
        """Return the next state for a new number; a limit of None is never reached.

        Between ``clear_ratio`` times the limit and the limit the number counts as being where it was before.
        """
        above = limit is not None and (value >= limit or (self.above and value >= limit * hold_times.clear_ratio))
        # After the clock is set back, the wait must not start in the future.
        since = now if above != self.above else min(self.since, now)
        wait = hold_times.for_ms if above else hold_times.resolve_after_ms
        on = above if now - since >= wait else self.on
        state = ThresholdState(on, above=above, since=since)
        return ThresholdState() if state.is_idle else state


@dataclass(frozen=True)
class Limits:
    """The numbers from which there is a warning and an error; None for no limit."""

    warn: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class ThresholdStates:
    """The states of a number's two limits."""

    warn: ThresholdState = ThresholdState()
    error: ThresholdState = ThresholdState()

    @property
    def severity(self) -> Severity:
        """The current severity."""
        return "error" if self.error.on else "warn" if self.warn.on else "ok"

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return self.warn.is_idle and self.error.is_idle

    @property
    def reached_at(self) -> int | None:
        """Since when the number has been at a limit that fires; None if it is below them, or none fires."""
        return min((state.since for state in (self.warn, self.error) if state.on and state.above), default=None)

    def updated(self, value: float, limits: Limits, hold_times: HoldTimes, now: int) -> ThresholdStates:
        """Return the next states for a new number."""
        return replace(
            self,
            warn=self.warn.updated(value, limits.warn, hold_times, now),
            error=self.error.updated(value, limits.error, hold_times, now),
        )
