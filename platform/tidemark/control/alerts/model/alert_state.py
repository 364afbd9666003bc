"""What is remembered of a job's alerts between two looks at it. Plain data; how it goes on is ``alert_engine``.

Times are milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.control.alerts.model.alert_settings import RuleName
from tidemark.control.alerts.model.hysteresis import Severity, ThresholdStates, worse_of

ChangeKind = Literal["fired", "worse", "better", "resolved", "passed", "again"]
"""``passed``: it became worse and is back where it was before anybody was told. ``again``: it became better, and is back."""


@dataclass(frozen=True)
class Condition:
    """Something that a rule watches: of a source, a check, or (subject empty) of the job.

    Args:
        rule: the rule.
        subject: what it is about.
        gates: the verdict of now.
        told: what people believe it is.
        peak: the worst it was since they were told; never better than ``told``.
        since: when it became something that they were not told.
        text: in words, when it was at its worst or was told.
        facts: the same for programs.
    """

    rule: RuleName
    subject: str
    gates: ThresholdStates = field(default_factory=ThresholdStates)
    told: Severity = "ok"
    peak: Severity = "ok"
    since: int | None = None
    text: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        """The verdict of now."""
        return self.gates.severity

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return self.gates.is_idle and self.told == "ok" and self.since is None


@dataclass(frozen=True)
class Change:
    """What a message says of one condition: what people believed, what is now, the worst between."""

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
        """The worst severity that the change is about."""
        return worse_of(self.peak, self.before)

    @property
    def kind(self) -> ChangeKind:
        """The change in a word."""
        if self.now == self.before:
            return "passed" if self.peak != self.before else "again"
        if self.now == "ok":
            return "resolved"
        if self.before == "ok":
            return "fired"
        return "worse" if self.now == "error" else "better"


@dataclass(frozen=True)
class OpenCondition:
    """A condition that people were told of and that goes on."""

    rule: RuleName
    subject: str
    severity: Severity


@dataclass(frozen=True)
class Notification:
    """What is to be told about a job at once: changes, and what goes on besides. Numbers count from 1 per job."""

    job: str
    number: int
    at: int
    changes: tuple[Change, ...]
    still: tuple[OpenCondition, ...] = ()


@dataclass(frozen=True)
class Outgoing:
    """A notification, and the receivers that have not taken it yet."""

    notification: Notification
    receivers: tuple[str, ...]


@dataclass(frozen=True)
class RowCount:
    """Rows at a job's windows and those of them too late, in all, since the lineage began."""

    at: int
    rows: int
    late: int


@dataclass(frozen=True)
class LateWindow:
    """Where the share of late rows is counted from: the counts at two instants, a window apart."""

    lineage: str
    older: RowCount
    newer: RowCount


@dataclass(frozen=True)
class JobAlerts:
    """All that is remembered of one job.

    Args:
        job: the job's name.
        conditions: those with something to remember, sorted by rule and subject.
        notified: number of the last notification.
        notified_at: when that was.
        late: where the share of late rows is counted from.
        outbox: notifications that some receiver has not taken yet, oldest first.
    """

    job: str
    conditions: tuple[Condition, ...] = ()
    notified: int = 0
    notified_at: int | None = None
    late: LateWindow | None = None
    outbox: tuple[Outgoing, ...] = ()

    def notified_conditions(self) -> tuple[OpenCondition, ...]:
        """Return what people were told of and believe to go on."""
        return tuple(OpenCondition(item.rule, item.subject, item.told) for item in self.conditions if item.told != "ok")
