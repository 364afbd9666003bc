"""The alert state machine: from a job's stored alerts and a new view to its next state and notifications. Pure.

Invariants, for any views and clock changes: firing and resolved notifications alternate per condition; a condition that lasted its
``for`` time is reported even if it has resolved by the time we send; after a pause of any length one message reports all differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemark.control.alerts.engine.alert_rules import RuleContext, readings, unreadable_reading
from tidemark.control.alerts.engine.alert_silences import Silence, silenced
from tidemark.control.alerts.engine.late_share import current_window, next_window
from tidemark.control.alerts.engine.reading import Reading
from tidemark.control.alerts.model.alert_settings import AlertSettings, Grouping, RuleName
from tidemark.control.alerts.model.alert_state import Change, Condition, JobAlerts, Notification
from tidemark.control.alerts.model.hysteresis import Limits, rank, worse_of
from tidemark.control.model.view import JobView
from tidemark.errors import TidemarkError

DEFAULT_SETTINGS = AlertSettings()
NO_CONTEXT = RuleContext()

_Key = tuple[RuleName, str]


def step(
    state: JobAlerts,
    view: JobView,
    now: int,
    *,
    settings: AlertSettings = DEFAULT_SETTINGS,
    context: RuleContext = NO_CONTEXT,
    silences: Iterable[Silence] = (),
) -> tuple[JobAlerts, tuple[Notification, ...]]:
    """Return a job's next alert state, and the notifications to send now: none or one.

    Args:
        state: the previous state; its outbox is not changed.
        view: the job's view.
        now: processing time, milliseconds.
        settings: hold times and grouping.
        context: input of rules besides the view.
        silences: active silences.
    """
    window = current_window(state.late, view, now)
    found = readings(view, window, context, settings, now)
    after, notifications = advance(state, found, now, settings=settings, silences=silences)
    return replace(after, late=next_window(window, view, now)), notifications


def step_unreadable(
    state: JobAlerts,
    error: TidemarkError,
    now: int,
    *,
    settings: AlertSettings = DEFAULT_SETTINGS,
    silences: Iterable[Silence] = (),
) -> tuple[JobAlerts, tuple[Notification, ...]]:
    """Return the same for a job whose files cannot be read: that is reported, and other conditions stay unchanged."""
    held = (Reading(item.rule, item.subject, None, Limits(), "") for item in state.conditions if item.rule != "health")
    unreadable_now = (unreadable_reading(state.job, error),) if settings.rule("health").enabled else ()
    return advance(state, (*held, *unreadable_now), now, settings=settings, silences=silences)


def advance(
    state: JobAlerts, found: Iterable[Reading], now: int, *, settings: AlertSettings = DEFAULT_SETTINGS, silences: Iterable[Silence] = ()
) -> tuple[JobAlerts, tuple[Notification, ...]]:
    """Return the same for given readings; a condition without a reading has resolved.

    Conditions of rules that are not enabled stay as they are: another process, which evaluates these rules, raised them.
    """
    others = tuple(item for item in state.conditions if not settings.rule(item.rule).enabled)
    own = tuple(item for item in state.conditions if settings.rule(item.rule).enabled)
    after, notifications = _advance_own(replace(state, conditions=own), found, now, settings=settings, silences=silences)
    together = sorted((*after.conditions, *others), key=lambda item: (item.rule, item.subject))
    return replace(after, conditions=tuple(together)), notifications


def _advance_own(
    state: JobAlerts, found: Iterable[Reading], now: int, *, settings: AlertSettings, silences: Iterable[Silence]
) -> tuple[JobAlerts, tuple[Notification, ...]]:
    quiet = tuple(silence for silence in silences if silence.until > now)
    known: dict[_Key, Condition] = {(item.rule, item.subject): item for item in state.conditions}
    read: dict[_Key, Reading] = {(item.rule, item.subject): item for item in found}
    conditions = []
    for key in sorted(known.keys() | read.keys()):
        condition = known.get(key) or Condition(*key)
        reading = read.get(key) or _resolved_reading(key)
        looked = _with_reading(condition, reading, now, settings)
        muted = silenced(quiet, job=state.job, rule=key[0])
        conditions.append(_muted(looked) if muted else _with_change(looked, reading, now))
    after = replace(state, conditions=tuple(item for item in conditions if not item.is_idle))
    if not _is_due(after, now, settings.grouping):
        return after, ()
    return _notify(after, read, now)


def _resolved_reading(key: _Key) -> Reading:
    subject = f" {key[1]!r}" if key[1] else ""
    return Reading(*key, value=0, limits=Limits(), text=f"{key[0]}{subject}: nothing more to report")


def _with_reading(condition: Condition, reading: Reading, now: int, settings: AlertSettings) -> Condition:
    if reading.value is None:
        return condition
    gates = condition.gates.updated(reading.value, reading.limits, settings.rule(condition.rule).hold_times, now)
    fired_at = None if gates.severity == "ok" else condition.fired_at if condition.fired_at is not None else gates.reached_at
    return replace(condition, gates=gates, fired_at=fired_at)


def _muted(condition: Condition) -> Condition:
    """While silenced, send and queue nothing. A condition that still holds when the silence ends is notified then."""
    return replace(condition, peak=condition.told, since=None)


def _with_change(condition: Condition, reading: Reading, now: int) -> Condition:
    """Record a change that was not notified yet, with the text of its worst reading."""
    peak = worse_of(condition.peak, condition.severity)
    if peak == condition.told == condition.severity:
        return replace(condition, peak=peak, since=None)
    since = now if condition.since is None else min(condition.since, now)
    if rank(peak) > rank(condition.peak):
        return replace(condition, peak=peak, since=since, text=reading.text, facts=reading.facts)
    return replace(condition, peak=peak, since=since)


def _is_due(state: JobAlerts, now: int, grouping: Grouping) -> bool:
    """Return whether to notify now: the first change has waited ``wait_ms``, and the last message is ``interval_ms`` old."""
    unreported = [(item, item.since) for item in state.conditions if item.since is not None]
    if not unreported or now - min(since for _, since in unreported) < grouping.wait_ms:
        return False
    urgent = any(item.peak == "error" and item.told != "error" for item, _ in unreported)
    # A message in the future was sent before the clock was set back.
    recent = state.notified_at is not None and 0 <= now - state.notified_at < grouping.interval_ms
    return urgent or not recent


def _notify(state: JobAlerts, read: Mapping[_Key, Reading], now: int) -> tuple[JobAlerts, tuple[Notification, ...]]:
    changed = [item for item in state.conditions if item.since is not None]
    keys = {(item.rule, item.subject) for item in changed}
    still = tuple(item for item in state.notified_conditions() if (item.rule, item.subject) not in keys)
    number = state.notified + 1
    changes = tuple(_change(item, read.get((item.rule, item.subject))) for item in changed)
    notified = tuple(
        replace(item, told=item.severity, peak=item.severity, since=None) if item.since is not None else item for item in state.conditions
    )
    after = replace(state, conditions=tuple(item for item in notified if not item.is_idle), notified=number, notified_at=now)
    return after, (Notification(state.job, number, now, changes, still),)


def _change(condition: Condition, reading: Reading | None) -> Change:
    """Return the change to report for a condition: its current reading or, if it was worse before, that one."""
    worst = condition.severity != condition.peak and rank(condition.peak) > rank(condition.told)
    current = reading if reading is not None and not worst else None
    return Change(
        rule=condition.rule,
        subject=condition.subject,
        before=condition.told,
        now=condition.severity,
        peak=condition.peak,
        since=condition.since or 0,
        text=current.text if current is not None else condition.text,
        facts=current.facts if current is not None else condition.facts,
    )
