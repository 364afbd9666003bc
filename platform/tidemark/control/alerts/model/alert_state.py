"""The alert state of a job between two evaluations. Plain data; ``alert_engine`` computes the next state.

Times are milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.control.alerts.model.alert_settings import RuleName
from tidemark.control.alerts.model.hysteresis import Severity, ThresholdStates, worse_of
from tidemark.state.encoding.codec import added_field

ChangeKind = Literal["fired", "worse", "better", "resolved", "passed", "again"]
"""``passed``: it became worse and returned to the notified severity before a message was sent. ``again``: it became better, and is back."""


@dataclass(frozen=True)
class Condition:
    """A condition that a rule watches: of a source, a check, or (with an empty subject) of the job.

    Args:
        rule: the rule.
        subject: the source or check.
        gates: its threshold states.
        told: the severity that was last notified.
        peak: the worst severity since then; never better than ``told``.
        since: since when it differs from the notified severity, milliseconds; None if it does not.
        text: its text when it was worst or last notified.
        facts: the same as values for programs.
        fired_at: since when it fires, milliseconds: when it first was at its limit; None while it does not.
    """

    rule: RuleName
    subject: str
    gates: ThresholdStates = field(default_factory=ThresholdStates)
    told: Severity = "ok"
    peak: Severity = "ok"
    since: int | None = None
    text: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    fired_at: int | None = added_field(None)

    @property
    def severity(self) -> Severity:
        """The current severity."""
        return self.gates.severity

    @property
    def is_idle(self) -> bool:
        """Whether it need not be stored."""
        return self.gates.is_idle and self.told == "ok" and self.since is None


@dataclass(frozen=True)
class Change:
    """A change of one condition in a message: the severity notified before, the current one, the worst in between."""

    rule: RuleName
    subject: str
    before: Severity
    now: Severity
    peak: Severity
    since: int
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def worst(self) -> Severity:
        """The worst severity of the change."""
        return worse_of(self.peak, self.before)

    @property
    def kind(self) -> ChangeKind:
        """The kind of change."""
        if self.now == self.before:
            return "passed" if self.peak != self.before else "again"
        if self.now == "ok":
            return "resolved"
        if self.before == "ok":
            return "fired"
        return "worse" if self.now == "error" else "better"


@dataclass(frozen=True)
class OpenCondition:
    """A notified condition that still holds."""

    rule: RuleName
    subject: str
    severity: Severity


@dataclass(frozen=True)
class Notification:
    """One notification about a job: changes, and conditions that still hold. Numbers count from 1 per job."""

    job: str
    number: int
    at: int
    changes: tuple[Change, ...]
    still: tuple[OpenCondition, ...] = ()


@dataclass(frozen=True)
class Outgoing:
    """A notification, and the receivers that have not accepted it yet."""

    notification: Notification
    receivers: tuple[str, ...]


@dataclass(frozen=True)
class RowCount:
    """Total rows of a job's windows and the late ones among them, since the lineage began."""

    at: int
    rows: int
    late: int


@dataclass(frozen=True)
class LateWindow:
    """The window of the share of late rows: the counts at two instants, a window apart.

    ``judged`` is whether they are of operators to which rows may be late; those of earlier releases are of all operators.
    """

    lineage: str
    older: RowCount
    newer: RowCount
    judged: bool = added_field(False)


@dataclass(frozen=True)
class JobAlerts:
    """The alert state of one job.

    Args:
        job: the job's name.
        conditions: conditions that are not idle, sorted by rule and subject.
        notified: number of the last notification.
        notified_at: when that was.
        late: the window of the share of late rows.
        outbox: notifications that a receiver has not accepted yet, oldest first.
    """

    job: str
    conditions: tuple[Condition, ...] = ()
    notified: int = 0
    notified_at: int | None = None
    late: LateWindow | None = None
    outbox: tuple[Outgoing, ...] = ()

    def firing_conditions(self) -> tuple[Condition, ...]:
        """Return the conditions that fire, whether they were notified or not."""
        return tuple(item for item in self.conditions if item.severity != "ok")

    def notified_conditions(self) -> tuple[OpenCondition, ...]:
        """Return the notified conditions that were not reported as resolved."""
        return tuple(OpenCondition(item.rule, item.subject, item.told) for item in self.conditions if item.told != "ok")
