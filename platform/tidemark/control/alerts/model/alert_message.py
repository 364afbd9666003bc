"""Formats notifications as messages: of one job, or of many at once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from tidemark.clock import format_ms
from tidemark.control.alerts.model.alert import Alert, AlertLevel
from tidemark.control.alerts.model.alert_settings import Route, RuleName
from tidemark.control.alerts.model.alert_state import Change, ChangeKind, Notification, Outgoing
from tidemark.control.alerts.model.hysteresis import Severity, rank, worse_of

MAX_LINES = 50
"""Lines of a message; further ones are counted."""

MAX_CHARACTERS = 20_000
"""Characters of a message's text: within the limits of all receivers."""

MAX_PENDING = 20
"""Pending notifications of a job that are kept separately; more are merged, so that a receiver that is down for weeks costs no space."""

_TOPICS: Mapping[RuleName, str] = {
    "lag": "watermark of {subject} is behind",
    "late": "too many late rows",
    "health": "not healthy",
    "check": "check {subject} fails",
    "restarts": "fails again and again",
    "savepoint": "no recent savepoint",
    "memory": "memory of the {subject} is nearly full",
    "gc": "much time for garbage collection ({subject})",
}
_ENDINGS: Mapping[ChangeKind, str] = {
    "fired": "",
    "worse": ", and it became worse",
    "better": ", but less than before",
    "resolved": ": over",
    "passed": ": came and went",
    "again": ": it was over, and is there again",
}


def for_route(notification: Notification, route: Route) -> Notification | None:
    """Return the part of a notification that a receiver gets, None for nothing."""
    job = notification.job
    changes = tuple(change for change in notification.changes if route.matches(job, change.rule, change.worst))
    if not changes:
        return None
    still = tuple(item for item in notification.still if route.matches(job, item.rule, item.severity))
    return replace(notification, changes=changes, still=still)


def merged(notifications: Sequence[Notification]) -> Notification:
    """Merge several notifications of one job, oldest first, into one.

    Conditions that are unchanged in the end are included: the receiver may have accepted one of them before its sender died.
    """
    changes: dict[tuple[RuleName, str], Change] = {}
    for notification in notifications:
        for change in notification.changes:
            key = (change.rule, change.subject)
            changes[key] = _joined(changes[key], change) if key in changes else change
    last = notifications[-1]
    still = tuple(item for item in last.still if (item.rule, item.subject) not in changes)
    return replace(last, changes=tuple(change for _, change in sorted(changes.items())), still=still)


def compacted(outbox: Sequence[Outgoing]) -> tuple[Outgoing, ...]:
    """Return an outbox of bounded length: if too many notifications are pending, those for the same receivers are merged."""
    if len(outbox) <= MAX_PENDING:
        return tuple(outbox)
    by_receivers: dict[tuple[str, ...], list[Notification]] = {}
    for item in outbox:
        by_receivers.setdefault(item.receivers, []).append(item.notification)
    left = (Outgoing(merged(items), receivers) for receivers, items in by_receivers.items())
    return tuple(sorted(left, key=lambda item: item.notification.number))


def message(notification: Notification) -> Alert:
    """Return the message of a notification."""
    job, changes = notification.job, notification.changes
    lines = [_line(change) for change in changes]
    lines += [f"still: [{item.severity}] {_topic(item.rule, item.subject)}" for item in notification.still]
    return Alert(level_of(changes), _title(job, changes), "\n".join(_limited(lines)), job, _facts(notification))


def digest(notifications: Sequence[Notification]) -> Alert:
    """Return one message for notifications of many jobs, the worst first."""
    ordered = sorted(notifications, key=lambda item: (-rank(_worst_now(item.changes)), item.job))
    changes = [change for item in ordered for change in item.changes]
    counts = {level: sum(change.now == level for change in changes) for level in ("error", "warn", "ok")}
    words = {"error": "errors", "warn": "warnings", "ok": "over"}
    summary = ", ".join(f"{count} {words[level]}" for level, count in counts.items() if count)
    lines = [f"{item.job}: {_line(change)}" for item in ordered for change in item.changes]
    jobs = [item.job for item in ordered]
    facts: dict[str, object] = {
        "jobs": jobs,
        "errors": counts["error"],
        "warnings": counts["warn"],
        "over": counts["ok"],
        "messages": [_facts(item) for item in ordered[:MAX_LINES]],
    }
    shown = ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")
    return Alert(level_of(changes), f"{len(jobs)} jobs: {summary}", "\n".join(_limited(lines)), shown, facts)


def level_of(changes: Sequence[Change]) -> AlertLevel:
    """Return the level of changes: that of the worst current severity."""
    worst = _worst_now(changes)
    return "resolved" if worst == "ok" else worst


def _worst_now(changes: Sequence[Change]) -> Severity:
    return max((change.now for change in changes), key=rank, default="ok")


def _joined(first: Change, then: Change) -> Change:
    peak = worse_of(worse_of(first.peak, then.peak), worse_of(first.now, then.before))
    ended = then.now == "ok" and first.before == "ok"
    words = first if ended and rank(first.peak) >= rank(then.peak) else then
    return replace(then, before=first.before, peak=peak, since=min(first.since, then.since), text=words.text, facts=words.facts)


def _topic(rule: RuleName, subject: str) -> str:
    return _TOPICS[rule].format(subject=subject)


def _title(job: str, changes: Sequence[Change]) -> str:
    if len(changes) == 1:
        (change,) = changes
        return f"{job}: {_topic(change.rule, change.subject)}{_ENDINGS[change.kind]}"
    over = sum(change.now == "ok" for change in changes)
    parts = [f"{len(changes) - over} problems"] if over < len(changes) else []
    parts += [f"{over} over"] if over else []
    return f"{job}: {', '.join(parts)}"


def _line(change: Change) -> str:
    shown: str = "over" if change.now == "ok" else change.now
    if change.kind == "again":
        shown = f"{change.now} again"
    elif change.kind == "passed":
        shown = f"{change.peak}, {'over' if change.now == 'ok' else 'again ' + change.now}"
    elif change.kind in ("worse", "better"):
        shown = f"{change.now}, was {change.before}"
    return f"[{shown}] {_topic(change.rule, change.subject)}: {change.text} (since {format_ms(change.since)})"


def _limited(lines: Sequence[str]) -> list[str]:
    sizes = accumulate(len(line) for line in lines)
    shown = [line for line, size in zip(lines[:MAX_LINES], sizes, strict=False) if size <= MAX_CHARACTERS]
    left = len(lines) - len(shown)
    return [*shown, f"and {left} more"] if left else shown


def _facts(notification: Notification) -> dict[str, object]:
    return {
        "job": notification.job,
        "notification": notification.number,
        "at_ms": notification.at,
        "changes": [
            {
                "rule": change.rule,
                "subject": change.subject,
                "kind": change.kind,
                "before": change.before,
                "now": change.now,
                "peak": change.peak,
                "since_ms": change.since,
                "text": change.text,
                "facts": dict(change.facts),
            }
            for change in notification.changes
        ],
        "still": [{"rule": item.rule, "subject": item.subject, "severity": item.severity} for item in notification.still],
    }
