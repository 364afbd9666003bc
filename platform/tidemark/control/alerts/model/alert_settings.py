"""Settings of alerts: hold times of rules, grouping of messages, and routes. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal

from tidemark.control.alerts.model.hysteresis import HoldTimes, Severity, rank

RuleName = Literal["lag", "late", "health", "check", "restarts", "savepoint", "memory", "gc"]
"""``lag``: a source's watermark is behind. ``late``: too many rows are late. ``health``: the job fails, hangs, is silent or is
unwatched. ``check``: a data check failed. ``restarts``: it restarts repeatedly. ``savepoint``: the newest one is too old.
``memory``: the driver's heap or container is nearly full. ``gc``: collections of garbage take too large a share of the time."""

RULES: tuple[RuleName, ...] = ("lag", "late", "health", "check", "restarts", "savepoint", "memory", "gc")


@dataclass(frozen=True)
class RuleSettings:
    """One rule: whether it is enabled, and its hold times. Its thresholds are in the job's spec."""

    hold_times: HoldTimes = field(default_factory=HoldTimes)
    enabled: bool = True


DEFAULT_RULES: Mapping[RuleName, RuleSettings] = MappingProxyType(
    {
        "lag": RuleSettings(HoldTimes(for_ms=60_000, clear_ratio=0.8, resolve_after_ms=60_000)),
        "late": RuleSettings(HoldTimes(clear_ratio=0.5)),
        # A driver that is restarted within half a minute is no problem; many restarts are covered by ``restarts``.
        "health": RuleSettings(HoldTimes(for_ms=30_000, resolve_after_ms=30_000)),
        "check": RuleSettings(),
        "restarts": RuleSettings(),
        "savepoint": RuleSettings(),
        # One large epoch may need most of the memory and be over.
        "memory": RuleSettings(HoldTimes(for_ms=180_000, clear_ratio=0.95, resolve_after_ms=60_000)),
        "gc": RuleSettings(HoldTimes(for_ms=180_000, clear_ratio=0.75, resolve_after_ms=60_000)),
    }
)


@dataclass(frozen=True)
class Grouping:
    """How changes of a job are grouped into messages.

    Args:
        wait_ms: how long a change waits for others, to be sent with them in one message.
        interval_ms: minimum time between two messages of a job; a condition that becomes an error does not wait for it.
    """

    wait_ms: int = 20_000
    interval_ms: int = 300_000


@dataclass(frozen=True)
class Route:
    """What a receiver gets: changes at this severity or worse, of the named jobs and rules.

    Args:
        min_severity: ``warn`` gets everything; ``error`` only conditions that become an error, and their end.
        jobs: names of jobs, with ``*`` and ``?``.
        rules: names of rules.
    """

    min_severity: Severity = "warn"
    jobs: tuple[str, ...] = ("*",)
    rules: tuple[RuleName, ...] = RULES

    def matches(self, job: str, rule: RuleName, worst: Severity) -> bool:
        """Return whether a change is for this receiver; ``worst`` is the change's worst severity."""
        return rank(worst) >= rank(self.min_severity) and rule in self.rules and any(fnmatchcase(job, pattern) for pattern in self.jobs)


@dataclass(frozen=True)
class AlertSettings:
    """Settings shared by all receivers; rules that are not listed have their defaults."""

    rules: Mapping[RuleName, RuleSettings] = field(default_factory=lambda: DEFAULT_RULES)
    grouping: Grouping = Grouping()

    def rule(self, name: RuleName) -> RuleSettings:
        """Return a rule's settings: those given, else the defaults."""
        return self.rules.get(name) or DEFAULT_RULES[name]
