"""How alerts go on: what was remembered and one more look at the job give what is remembered next, and what is to be told.

Pure. What holds, whatever is seen and however the clock goes: of one condition people are never told twice that it began without
being told between that it ended; what was there for as long as its rule's patience is told, also when it is over by then; after
a pause, however long, one message tells all that is different.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemark.control.alerts.engine.alert_rules import Reading, RuleContext, readings, unreadable_reading
from tidemark.control.alerts.engine.alert_silences import Silence, silenced
from tidemark.control.alerts.engine.late_share import current_window, next_window
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
    """Return what is remembered after a look at a job, and what is to be told now: nothing, or one notification.

    Args:
        state: what was remembered; its outbox is left as it is.
        view: the job.
        now: the time, milliseconds.
        settings: patience, grouping.
        context: what rules look at besides the view.
        silences: what is not to be told.
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
    """Return the same for a job whose files cannot be read: that is told, and the rest stays as it was."""
    held = (Reading(item.rule, item.subject, None, Limits(), "") for item in state.conditions if item.rule != "health")
    unreadable_now = (unreadable_reading(state.job, error),) if settings.rule("health").enabled else ()
    return advance(state, (*held, *unreadable_now), now, settings=settings, silences=silences)


def advance(
    state: JobAlerts, found: Iterable[Reading], now: int, *, settings: AlertSettings = DEFAULT_SETTINGS, silences: Iterable[Silence] = ()
) -> tuple[JobAlerts, tuple[Notification, ...]]:
    """Return the same for numbers that were read already; a condition that none of them is about is over."""
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
    hold_times = settings.rule(condition.rule).hold_times
    return replace(condition, gates=condition.gates.updated(reading.value, reading.limits, hold_times, now))


def _muted(condition: Condition) -> Condition:
    """Under a silence nothing is told, nor remembered to be told later, but what is still so when the silence ends."""
    return replace(condition, peak=condition.told, since=None)


def _with_change(condition: Condition, reading: Reading, now: int) -> Condition:
    """Note what people do not know yet, and the words for it when it is worst."""
    peak = worse_of(condition.peak, condition.severity)
    if peak == condition.told == condition.severity:
        return replace(condition, peak=peak, since=None)
    since = now if condition.since is None else min(condition.since, now)
    if rank(peak) > rank(condition.peak):
        return replace(condition, peak=peak, since=since, text=reading.text, facts=reading.facts)
    return replace(condition, peak=peak, since=since)


def _is_due(state: JobAlerts, now: int, grouping: Grouping) -> bool:
    """Say whether to tell now: the first change has waited for others, and the last message is not of just now."""
    unreported = [(item, item.since) for item in state.conditions if item.since is not None]
    if not unreported or now - min(since for _, since in unreported) < grouping.wait_ms:
        return False
    urgent = any(item.peak == "error" and item.told != "error" for item, _ in unreported)
    # A message of the future was told before the clock was put back.
    recent = state.notified_at is not None and 0 <= now - state.notified_at < grouping.interval_ms
    return urgent or not recent


def _notify(state: JobAlerts, read: Mapping[_Key, Reading], now: int) -> tuple[JobAlerts, tuple[Notification, ...]]:
    changed = [item for item in state.conditions if item.since is not None]
    keys = {(item.rule, item.subject) for item in changed}
    still = tuple(item for item in state.notified_conditions() if (item.rule, item.subject) not in keys)
    number = state.notified + 1
    changes = tuple(_change(item, read.get((item.rule, item.subject))) for item in changed)
    told = tuple(
        replace(item, told=item.severity, peak=item.severity, since=None) if item.since is not None else item for item in state.conditions
    )
    after = replace(state, conditions=tuple(item for item in told if not item.is_idle), notified=number, notified_at=now)
    return after, (Notification(state.job, number, now, changes, still),)


def _change(condition: Condition, reading: Reading | None) -> Change:
    """Return what is told of a condition: what is now, or, where it is over already, what it was."""
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
