"""Status and history as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.clock import format_ms
from tidemark.control.model.view import JobView
from tidemark.control.view.change_log import Change, ChangeKind
from tidemark.durations import short_duration
from tidemark.state.log.progress import EpochProgress, OperatorProgress, finished_text
from tidemark.state.status.status import JobStatus

_CHANGES: Mapping[ChangeKind, str] = {
    "asked": "generation {} asked",
    "advised": "generation {} advised",
    "started": "attempt {} started",
    "failed": "attempt {} failed",
    "upgrade": "upgrade step {}",
    "request": "request {}",
}
_COLUMNS = ("epoch", "time", "took", "rows in", "rows out", "late", "malformed", "watermark", "lag", "state rows", "state bytes")


def status_text(view: JobView, status: JobStatus) -> str:
    """Return a job that was never submitted as a few lines: its state, its driver's last status, and what to do.

    Args:
        view: the job's current view.
        status: the driver's last status.
    """
    heartbeat = f", {'no heartbeat since' if view.state == 'dead' else 'heartbeat'} {format_ms(view.heartbeat_at)}"
    lines = [f"{view.job}: {view.state}{heartbeat if view.heartbeat_at is not None else ''}"]
    if view.error is not None:
        lines.append(f"  error: {view.error.message}")
    if view.advice:
        lines.append(f"  to do: {view.advice}")
    return "\n".join([*lines, *progress_lines(status)])


def progress_lines(status: JobStatus) -> list[str]:
    """Return the lines of a driver's last status: the watermark, and the row counts of every source, filter and operator."""
    lines = []
    last, totals = status.last, status.totals
    if last is not None:
        lines.append(f"  lineage {last.lineage}, epoch {last.epoch}, watermark {format_ms(last.watermark)}")
        lines += [f"  {finished_text(last)}"] if last.finished_at_start else []
    lines += [f"  source {n}: read {c['read']} = passed {c['passed']} + malformed {c['malformed']}" for n, c in totals["sources"].items()]
    lines += [f"  filter {n}: in {c['in']} = passed {c['passed']} + rejected {c['rejected']}" for n, c in totals["filters"].items()]
    lines += [f"  transform {n}: in {c['in']}, out {c['out']}" for n, c in totals.get("transforms", {}).items()]
    operators = {} if last is None else last.operators
    for uid, counts in totals["operators"].items():
        lines.append(f"  {_operator(uid, counts, operators.get(uid))}")
        lines += [f"    {counter.replace('_', ' ')}: {found}" for counter, found in totals.get("shortfalls", {}).get(uid, {}).items()]
    for name, output in status.outputs.items():
        rows = totals["outputs"].get(name, 0)
        lines.append(f"  output {name}: {rows} rows, {output.sink}{' at ' + output.location if output.location else ''}")
        lines += [f"    {repair}" for repair in output.repairs]
    return lines


def _operator(uid: str, counts: Mapping[str, int], progress: OperatorProgress | None) -> str:
    """Return an operator's rows, and what a process function keeps."""
    function = progress is not None and progress.is_process_function
    rows = " + ".join(f"{name} {rows}" for name, rows in counts.items() if name != "in" and not (function and name == "late"))
    if progress is None or not function:
        return f"{'window' if progress is None else progress.kind} {uid}: in {counts['in']} = {rows}"
    return f"process function {uid}: in {counts['in']} = {rows}; {progress.keys:,} keys, {progress.timers:,} timers"


def history_table(epochs: Sequence[EpochProgress]) -> str:
    """Return epochs as a table with aligned columns, followed by what starts have finished, and repairs of outputs that had lost epochs."""
    rows = [_COLUMNS, *(_row(epoch) for epoch in epochs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines += [finished_text(epoch) for epoch in epochs if epoch.finished_at_start]
    lines += [str(output.repair) for epoch in epochs for output in epoch.outputs.values() if output.repair is not None]
    return "\n".join(lines)


def _row(epoch: EpochProgress) -> tuple[str, ...]:
    lags = [source.lag_ms for source in epoch.sources.values() if source.lag_ms is not None]
    return (
        str(epoch.epoch),
        format_ms(epoch.processing_time),
        short_duration(epoch.duration_ms),
        str(epoch.rows_in),
        str(epoch.rows_out),
        str(epoch.rows_late),
        str(epoch.rows_malformed),
        format_ms(epoch.watermark),
        short_duration(max(lags)) if lags else "-",
        str(sum(operator.state_rows for operator in epoch.operators.values())),
        str(sum(operator.state_bytes for operator in epoch.operators.values())),
    )


def changes_text(changes: Sequence[Change]) -> str:
    """Return events as lines."""
    lines = [(format_ms(item.at), _CHANGES[item.kind].format(item.number), item.by, item.what) for item in changes]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join("  ".join((*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[3])) for line in lines)
