"""Jobs as text for a terminal: one in a few lines, many as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tidemark.cli.show.resource_text import resource_lines
from tidemark.clock import format_ms
from tidemark.control.model.driver_starts import sorted_stages
from tidemark.control.model.records import DriverStart
from tidemark.control.model.view import JobView
from tidemark.control.view.restart_text import policy_text
from tidemark.durations import format_duration, short_duration

COLUMNS = ("job", "state", "health", "gen", "attempt", "epoch", "rows/s", "lag", "busy", "heartbeat", "restarts", "alerts")


def view_text(view: JobView) -> str:
    """Return a submitted job as a few lines: its state, since when, why, what to do, its process and its load."""
    health = f", {view.health}" if view.health != view.state else ""
    since = f", since {format_ms(view.since)}" if view.since is not None else ""
    return "\n".join(
        [
            f"{view.job}: {view.state}{health}{since}",
            *(f"  {line}" for line in (*_position(view), *_problems(view), *_load(view), *resource_lines(view))),
        ]
    )


def _position(view: JobView) -> Iterator[str]:
    """Yield the reason of a job's state, its spec, and its process."""
    if view.reason:
        yield f"reason: {view.reason}"
    upgrade, spec = view.upgrade, view.spec
    if upgrade is not None and upgrade.trouble:
        yield f"blocked since {format_ms(upgrade.trouble_since)}: {upgrade.trouble}"
    if spec is not None:
        seen = "" if view.generation == view.generation_seen else f" (seen: {view.generation_seen})"
        version = f", version {spec.version}" if spec.version else ""
        trigger = format_duration(spec.trigger_ms)
        yield f"generation {view.generation}{seen}: wanted {spec.wanted}, {spec.code}{version}, trigger {trigger}"
        yield f"restarts: {policy_text(spec.restart)}" + (f"; restarts after failures: {view.restarts_done}" if view.restarts_done else "")
    yield from _process(view)
    if view.standby is not None:
        yield f"standby: {view.standby}"


def _problems(view: JobView) -> Iterator[str]:
    """Yield the next restart, the last error, advice and warnings."""
    if view.next_start_at is not None:
        yield f"starts again at {format_ms(view.next_start_at)}"
    if view.error is not None:
        yield f"last error ({'transient' if view.error.transient else 'permanent'}): {view.error.message}"
    if view.advice:
        yield f"to do: {view.advice}"
    yield from alert_lines(view)
    if view.warning:
        yield f"warning: {view.warning}"


def _load(view: JobView) -> Iterator[str]:
    if view.rows_per_second is not None:
        yield f"load: {_rate(view.rows_per_second)} rows/s, busy {busy_text(view)}{_waiting(view)}"
    yield from _autoscaler(view)
    lags = [f"{name} {short_duration(source.lag_ms)}" for name, source in view.sources.items() if source.lag_ms is not None]
    if lags:
        yield f"lag: {', '.join(lags)}"


def _autoscaler(view: JobView) -> Iterator[str]:
    """Yield what the autoscaler recommends; of one that acts also why nothing changes."""
    scaler = view.autoscaler
    found = scaler.evaluation if scaler is not None else None
    if scaler is None or found is None or not (found.has_advice or scaler.mode == "act"):
        return
    what = f"{'scales' if scaler.mode == 'act' else 'advises'} {found.text}" if found.has_advice else "no change"
    held = f" (not now: {found.held})" if found.held else ""
    yield f"autoscaler: {what}{held}: {found.reason}"


def list_table(views: Sequence[JobView]) -> str:
    """Return jobs as a table with aligned columns."""
    rows = [COLUMNS, *(row_of(view) for view in views)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def row_of(view: JobView) -> tuple[str, ...]:
    """Return the cells of a job's row."""
    age = view.heartbeat_age_ms
    return (
        view.job,
        state_text(view),
        view.health,
        str(view.generation) if view.generation else "-",
        str(view.attempt) if view.attempt else "-",
        str(view.epoch) if view.epoch is not None else "-",
        _rate(view.rows_per_second),
        short_duration(view.lag_ms) if view.lag_ms is not None else "-",
        busy_text(view),
        f"{short_duration(age)} ago" if age is not None and view.health != "stopped" else "-",
        str(view.restarts_done),
        alert_counts(view),
    )


def alert_lines(view: JobView) -> list[str]:
    """Return a line for each alert that fires: its severity, rule and subject, since when, and its text."""
    lines = []
    for alert in view.alerts:
        subject = f" of {alert.subject}" if alert.subject else ""
        since = f" since {format_ms(alert.since)}" if alert.since is not None else ""
        lines.append(f"alert ({alert.severity}): {alert.rule}{subject}{since}: {alert.text}")
    return lines


def alert_counts(view: JobView) -> str:
    """Return the number of alerts that fire, by severity."""
    counts = Counter(alert.severity for alert in view.alerts)
    return ", ".join(f"{count} {severity}" for severity, count in sorted(counts.items())) or "-"


def state_text(view: JobView) -> str:
    """Return a job's state for a table; during an upgrade with its step and the code it is heading for."""
    upgrade = view.upgrade
    if view.state != "upgrading" or upgrade is None or upgrade.ended:
        return view.state
    return f"upgrading ({upgrade.step.replace('-', ' ')}, for {upgrade.code})"


def busy_text(view: JobView) -> str:
    """Return the share of time in which epochs run."""
    share = view.pressure.busy_share
    return "-" if share is None else f"{share:.0%}"


def _process(view: JobView) -> Iterator[str]:
    process = view.process
    if process is None:
        return
    name = process.pid if process.pid is not None else process.application
    log = f", log {process.log}" if process.log else ""
    yield f"attempt {view.attempt}: process {name} on host {process.host!r} ({view.process_state or 'unknown'}){log}"
    start = view.start
    if start is not None and start.stage and view.process_state != "gone":
        yield f"starting: {start.stage} for {short_duration(max(0, view.at - start.since))}{_took(start)}"


def _took(start: DriverStart) -> str:
    """Return the duration of a start's stages, in seconds."""
    done = [f"{stage} {ms / 1000:.1f}s" for stage, ms in sorted_stages(start.took)]
    return f" ({', '.join(done)})" if done else ""


def _rate(rows: float | None) -> str:
    return "-" if rows is None else f"{rows:,.0f}" if rows >= 10 or rows == 0 else f"{rows:.1f}"


def _waiting(view: JobView) -> str:
    pressure = view.pressure
    counts = (("files", pressure.waiting_files), ("rows", pressure.waiting_rows), ("bytes", pressure.waiting_bytes))
    known = [f"{count:,} {what}" for what, count in counts if count]
    catching_up = f", caught up in {short_duration(pressure.catch_up_ms)}" if pressure.catch_up_ms is not None else ""
    return (f", waiting {' '.join(known)}" if known else "") + catching_up
