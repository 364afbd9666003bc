"""What alerts can be told: how patient each rule is, how messages are grouped, and who gets which. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal

from tidemark.control.alerts.model.hysteresis import HoldTimes, Severity, rank

RuleName = Literal["lag", "late", "health", "check", "restarts", "savepoint"]
"""``lag``: a source's watermark is behind. ``late``: too many rows are too late. ``health``: the job fails, hangs, is silent or is
unwatched. ``check``: a data check failed. ``restarts``: it starts again and again. ``savepoint``: the newest one is too old."""

RULES: tuple[RuleName, ...] = ("lag", "late", "health", "check", "restarts", "savepoint")


@dataclass(frozen=True)
class RuleSettings:
    """One rule: whether it is on, and how patient it is. From when on it warns is said by the job's spec."""

    hold_times: HoldTimes = field(default_factory=HoldTimes)
    enabled: bool = True


DEFAULT_RULES: Mapping[RuleName, RuleSettings] = MappingProxyType(
    {
        "lag": RuleSettings(HoldTimes(for_ms=60_000, clear_ratio=0.8, resolve_after_ms=60_000)),
        "late": RuleSettings(HoldTimes(clear_ratio=0.5)),
        # A driver that is started again within half a minute is what restarts are for; many of them are ``restarts``.
        "health": RuleSettings(HoldTimes(for_ms=30_000, resolve_after_ms=30_000)),
        "check": RuleSettings(),
        "restarts": RuleSettings(),
        "savepoint": RuleSettings(),
    }
)


@dataclass(frozen=True)
class Grouping:
    """How messages of a job are put together.

    Args:
        wait_ms: how long a change waits for others, to be told with them in one message.
        interval_ms: least time between two messages of a job; something that becomes an error does not wait for it.
    """

    wait_ms: int = 20_000
    interval_ms: int = 300_000


@dataclass(frozen=True)
class Route:
    """What a receiver gets: changes at this severity or worse, of jobs and rules that are named.

    Args:
        min_severity: ``warn`` gets everything; ``error`` what becomes an error, and its end.
        jobs: names of jobs, with ``*`` and ``?``.
        rules: names of rules.
    """

    min_severity: Severity = "warn"
    jobs: tuple[str, ...] = ("*",)
    rules: tuple[RuleName, ...] = RULES

    def matches(self, job: str, rule: RuleName, worst: Severity) -> bool:
        """Say whether a change is for this receiver; ``worst`` is the worst severity that it is about."""
        return rank(worst) >= rank(self.min_severity) and rule in self.rules and any(fnmatchcase(job, pattern) for pattern in self.jobs)


@dataclass(frozen=True)
class AlertSettings:
    """What all receivers have in common; a rule that is not named has its defaults."""

    rules: Mapping[RuleName, RuleSettings] = field(default_factory=lambda: DEFAULT_RULES)
    grouping: Grouping = Grouping()

    def rule(self, name: RuleName) -> RuleSettings:
        """Return a rule's settings: those given, else the defaults."""
        return self.rules.get(name) or DEFAULT_RULES[name]
