"""The alerts of a job that fire, as commands and pages show them: stored by the last evaluation, with texts as of now."""

from __future__ import annotations

from tidemark.control.alerts.engine.alert_inputs import savepoint_at
from tidemark.control.alerts.engine.alert_rules import RuleContext, readings
from tidemark.control.alerts.engine.alert_store import read_alerts
from tidemark.control.alerts.engine.late_share import current_window
from tidemark.control.alerts.model.alert_settings import AlertSettings
from tidemark.control.alerts.model.alert_state import Condition, JobAlerts
from tidemark.control.alerts.model.hysteresis import rank
from tidemark.control.model.view import AlertView, JobView
from tidemark.state.store.store import JobStore


def read_firing_alerts(root: JobStore, view: JobView) -> tuple[AlertView, ...]:
    """Return the alerts of a job that fire, the worst first.

    Raises:
        FormatError: a newer release wrote them.
        StoreError: the store cannot be reached.
    """
    alerts = read_alerts(root, view.job).alerts
    if not alerts.firing_conditions():
        return ()
    return firing_alerts(alerts, view, RuleContext(savepoint_at=savepoint_at(root, view)))


def firing_alerts(alerts: JobAlerts, view: JobView, context: RuleContext) -> tuple[AlertView, ...]:
    """Return the alerts that fire. Pure.

    A number has changed since the evaluation that stored a condition, so its text is made again from the view, where the rule still holds.

    Args:
        alerts: the stored alerts.
        view: the job's view.
        context: input besides the view. Failed checks are not among it: their stored texts do not change.
    """
    window = current_window(alerts.late, view, view.at)
    found = readings(view, window, context, AlertSettings(), view.at)
    texts = {(item.rule, item.subject): item.text for item in found if item.exceeds_warning}
    firing = sorted(alerts.firing_conditions(), key=lambda item: (-rank(item.severity), item.rule, item.subject))
    return tuple(_view(item, texts.get((item.rule, item.subject), item.text)) for item in firing)


def _view(item: Condition, text: str) -> AlertView:
    return AlertView(item.rule, item.subject, "error" if item.severity == "error" else "warn", item.fired_at, text)
