"""The alert rules: which number of a job is compared with which limits, and its text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tidemark.clock import format_ms
from tidemark.control.alerts.engine.late_share import is_from_start, late_rows, late_share
from tidemark.control.alerts.engine.reading import Reading
from tidemark.control.alerts.engine.resource_rules import resource_readings
from tidemark.control.alerts.model.alert_settings import AlertSettings
from tidemark.control.alerts.model.alert_state import LateWindow
from tidemark.control.alerts.model.hysteresis import Limits
from tidemark.control.model.sanitizing import safe_label, safe_text
from tidemark.control.model.spec import AlertThresholds
from tidemark.control.model.view import Health, JobView, SourceView
from tidemark.durations import format_duration, short_duration
from tidemark.errors import TidemarkError
from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.totals import late_by_operator

RESTARTS_MS = 600_000
MIN_LAG_WARN_MS = 300_000
_MAX_TEXT = 1_000

_HEALTH: Mapping[Health, float | None] = {
    "ok": 0,
    "stopped": 0,
    "starting": None,
    "failing": 1,
    "unwatched": 1,
    "damaged": 2,
    "hung": 2,
    "silent": 2,
    "failed": 2,
}
_MEANING: Mapping[Health, str] = {
    "ok": "runs",
    "stopped": "is stopped, as requested",
    "starting": "is starting",
    "failing": "failed and will be restarted",
    "unwatched": "has no active reconciler",
    "hung": "seems to hang",
    "silent": "should run, and sends no heartbeat",
    "failed": "has failed and will not be restarted until requested",
    "damaged": "has a file that cannot be read",
}


@dataclass(frozen=True)
class FailedCheck:
    """A data check that failed and has not passed since; ``at`` is its last failure."""

    check: str
    severity: Literal["warn", "error"]
    at: int
    text: str = ""


@dataclass(frozen=True)
class RuleContext:
    """Input of rules besides the view: failing checks, and when the newest savepoint was taken."""

    failed_checks: tuple[FailedCheck, ...] = ()
    savepoint_at: int | None = None


def readings(view: JobView, window: LateWindow, context: RuleContext, settings: AlertSettings, now: int) -> tuple[Reading, ...]:
    """Return the readings of all enabled rules.

    Args:
        view: the job's view.
        window: the window in which late rows are counted.
        context: input besides the view.
        settings: which rules are enabled.
        now: processing time, milliseconds.
    """
    limits = view.spec.alerts if view.spec is not None else AlertThresholds()
    found = (
        *_lag(view, limits),
        _late(view, window, limits, now),
        _health(view),
        *_checks(context),
        _restarts(view, limits, now),
        *_savepoint(view, context, limits, now),
        *resource_readings(view, limits),
    )
    return tuple(reading for reading in found if settings.rule(reading.rule).enabled)


def unreadable_reading(job: str, error: TidemarkError) -> Reading:
    """Return the reading of a job whose files cannot be read: an error, as for a failed job, since no reconciler can act on it."""
    facts = {"health": "unreadable", "error_code": error.code, "error": _short(str(error)), "transient": error.transient}
    return Reading("health", "", 2, Limits(1, 2), f"files of {job} cannot be read: {_short(str(error))}", facts)


def lag_limits(thresholds: AlertThresholds, source: SourceView) -> Limits:
    """Return the lags of a source, in milliseconds, that are a warning and an error."""
    bound = source.bound_ms or 0
    warn = thresholds.lag_warn_ms if thresholds.lag_warn_ms is not None else max(5 * bound, MIN_LAG_WARN_MS)
    return Limits(warn, max(thresholds.lag_error_ms if thresholds.lag_error_ms is not None else 3 * warn, warn))


def _lag(view: JobView, thresholds: AlertThresholds) -> Iterator[Reading]:
    for name, source in view.sources.items():
        limits, held_by = lag_limits(thresholds, source), safe_label(source.held_by) if source.held_by else None
        facts = {
            "source": name,
            "lag_ms": source.lag_ms,
            "watermark_ms": source.watermark,
            "held_by": held_by,
            "warn_after_ms": limits.warn,
            "error_after_ms": limits.error,
        }
        if source.lag_ms is None or view.health == "stopped":
            yield Reading("lag", name, 0, limits, f"source {name!r} has no watermark that could lag", facts)
            continue
        held = f", held back by split {held_by!r}" if held_by else ""
        text = f"source {name!r} is {short_duration(source.lag_ms)} behind (watermark {format_ms(source.watermark)}{held})"
        yield Reading("lag", name, source.lag_ms, limits, text, facts)


def _late(view: JobView, window: LateWindow, thresholds: AlertThresholds, now: int) -> Reading:
    limits = Limits(thresholds.late_warn, max(thresholds.late_error, thresholds.late_warn))
    rows, share = late_rows(window, view), late_share(window, view, now)
    where = sorted(uid for uid, late in late_by_operator(view.totals).items() if late)
    from_start = is_from_start(window)
    facts = {
        "late_rows": rows.late,
        "rows_in": rows.rows,
        "ratio": share,
        "since_ms": None if from_start else rows.at,
        "operators": where,
        "epoch": view.epoch,
        "lineage": view.lineage,
    }
    ratio = rows.late / rows.rows if rows.rows else 0.0
    since = "the job's first epoch" if from_start else format_ms(rows.at)
    text = f"{rows.late} of {rows.rows} rows since {since} were too late ({ratio:.3%})"
    text += f"; in the last epoch {share:.3%}" if share > ratio else ""
    # A share of zero never fires, whatever the limit.
    return Reading("late", "", share if rows.late else -1, limits, text, facts)


def _health(view: JobView) -> Reading:
    error = view.error
    parts = [f"{view.job} {_MEANING[view.health]}"]
    parts += [_short(view.reason)] if view.reason else []
    parts += [_short(error.message)] if error is not None and error.message not in view.reason else []
    parts += [view.advice] if view.advice else []
    facts: dict[str, object] = {
        "health": view.health,
        "state": view.state,
        "lifecycle": view.lifecycle,
        "attempt": view.attempt,
        "epoch": view.epoch,
        "heartbeat_at_ms": view.heartbeat_at,
        "next_start_at_ms": view.next_start_at,
    }
    if error is not None:
        facts |= {"error_code": error.code, "error": _short(error.message), "transient": error.transient}
    value = _HEALTH[view.health]
    return Reading("health", "", value, Limits(1, 2), "; ".join(parts), facts)


def _checks(context: RuleContext) -> Iterator[Reading]:
    for check in context.failed_checks:
        text = f"check {check.check!r} failed at {format_ms(check.at)}" + (f": {_short(check.text)}" if check.text else "")
        facts = {"check": check.check, "failed_at_ms": check.at}
        yield Reading("check", check.check, 2 if check.severity == "error" else 1, Limits(1, 2), text, facts)


def _restarts(view: JobView, thresholds: AlertThresholds, now: int) -> Reading:
    count = view.failures_since(now - RESTARTS_MS)
    text = f"{view.job} failed {count} times in {format_duration(RESTARTS_MS)}"
    last = view.failures[-1] if view.failures else None
    facts: dict[str, object] = {"failures": count, "restarts": view.restarts_done}
    if last is not None and count:
        text += f", the last time with {last.code}: {_short(last.message)}"
        facts |= {"error_code": last.code, "epoch": last.epoch}
    return Reading("restarts", "", count, Limits(max(thresholds.restarts_warn, 1)), text, facts)


def _savepoint(view: JobView, context: RuleContext, thresholds: AlertThresholds, now: int) -> Iterator[Reading]:
    limit = thresholds.savepoint_age_ms
    if limit is None:
        return
    start = context.savepoint_at if context.savepoint_at is not None else view.started_at
    age = None if start is None else max(now - start, 0)
    facts = {"savepoint_at_ms": context.savepoint_at, "limit_ms": limit}
    if view.health == "stopped":
        yield Reading("savepoint", "", 0, Limits(limit), f"{view.job} is stopped; its savepoints do not grow older", facts)
    elif context.savepoint_at is None:
        yield Reading("savepoint", "", age, Limits(limit), f"{view.job} has no savepoint", facts)
    else:
        text = f"the newest savepoint of {view.job} is {short_duration(age or 0)} old ({format_ms(context.savepoint_at)})"
        yield Reading("savepoint", "", age, Limits(limit), text, facts)


def _short(text: str) -> str:
    """Return an external text without credentials and unencodable characters, shortened."""
    shown = redacted(safe_text(text[: 4 * _MAX_TEXT]))
    return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"
