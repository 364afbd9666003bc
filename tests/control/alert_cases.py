"""What the tests of alerts have in common: views of jobs, plain readings, receivers that can be told to fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.control.alerts.delivery.delivery_queue import Receiver
from tidemark.control.alerts.engine.alert_evaluator import AlertWatch
from tidemark.control.alerts.engine.reading import Reading
from tidemark.control.alerts.model.alert import Alert
from tidemark.control.alerts.model.alert_settings import RULES, AlertSettings, Grouping, RuleName, RuleSettings
from tidemark.control.alerts.model.hysteresis import HoldTimes, Limits
from tidemark.control.model.records import Failure
from tidemark.control.model.spec import AlertThresholds, JobSpec
from tidemark.control.model.view import Health, JobView, SourceView
from tidemark.errors import AlertError
from tidemark.state.log.totals import Totals
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

T0 = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60_000
HOUR = 3_600_000


def source(lag_ms: int | None, *, bound_ms: int | None = 0, held_by: str | None = None) -> SourceView:
    return SourceView(None if lag_ms is None else T0 - lag_ms, lag_ms, held_by, 0, 0, bound_ms=bound_ms)


def totals(rows: int, late: int) -> Totals:
    return Totals(sources={}, filters={}, operators={"hourly": {"in": rows, "accepted": rows - late, "late": late}}, outputs={})


def job_view(
    job: str = "taxi",
    *,
    lag_ms: int | None = 0,
    health: Health = "ok",
    rows: int = 0,
    late: int = 0,
    failures: tuple[Failure, ...] = (),
    thresholds: AlertThresholds | None = None,
    started_at: int | None = T0,
) -> JobView:
    return JobView(
        job,
        T0,
        "running",
        health,
        spec=JobSpec(job, "m:j", alerts=thresholds or AlertThresholds()),
        lineage="a1",
        epoch=7,
        sources={"trips": source(lag_ms)},
        totals=totals(rows, late),
        judges_lateness=("hourly",),
        failures=failures,
        state="running",
        started_at=started_at,
    )


def failure(at: int, *, code: str = "TM502", message: str = "the executor is gone") -> Failure:
    return Failure(at, 1, at - SECOND, 7, code, message, transient=True)


def reading(value: float | None, *, rule: RuleName = "lag", subject: str = "trips") -> Reading:
    """A number that warns from 10 and is an error from 30."""
    return Reading(rule, subject, value, Limits(10, 30), f"{subject} is at {value}", {"value": value})


@dataclass
class Mailbox:
    """A receiver that keeps what it takes, and takes nothing while it is ``broken``."""

    broken: bool = False
    taken: list[Alert] = field(default_factory=list)
    tried: int = 0

    def send(self, alert: Alert) -> None:
        self.tried += 1
        if self.broken:
            raise AlertError(f"alert {alert.title!r} was not delivered", fix="mend the receiver", job=alert.job)
        self.taken.append(alert)


AT_ONCE = AlertSettings({rule: RuleSettings(HoldTimes()) for rule in RULES}, Grouping(0, 0))


def watch(
    root: JobStore,
    clock: ManualClock,
    receivers: Mapping[str, Receiver],
    *,
    holder: str = "one",
    jobs: tuple[str, ...] | None = None,
    without: tuple[RuleName, ...] = (),
) -> AlertWatch:
    """A watch of all jobs, or of some, that evaluates all rules but those ``without``."""
    rules = {rule: RuleSettings(HoldTimes(), enabled=rule not in without) for rule in RULES}
    settings = AlertSettings(rules, AT_ONCE.grouping)
    return AlertWatch(root, settings=settings, receivers=receivers, holder=holder, jobs=jobs, clock=clock)


def titles(mailbox: Mailbox) -> list[str]:
    return [alert.title for alert in mailbox.taken]
