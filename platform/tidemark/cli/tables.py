"""Status and history as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.clock import format_ms
from tidemark.durations import format_duration
from tidemark.state.progress import EpochProgress
from tidemark.state.status import JobStatus

_COLUMNS = ("epoch", "time", "took", "rows in", "rows out", "late", "malformed", "watermark", "lag", "state rows", "state bytes")


def status_text(status: JobStatus, *, heartbeat: int, silent: bool) -> str:
    """Return a job's status as a few lines: state, watermark, and the conservation of every source, filter and window.

    Args:
        status: what the driver last said.
        heartbeat: when it last gave a sign of life, milliseconds.
        silent: whether that is so long ago that a driver which says that it runs does not.
    """
    stale = silent and status.state == "running"
    lines = [f"{status.job}: {status.state}, {'no heartbeat since' if stale else 'heartbeat'} {format_ms(heartbeat)}"]
    if status.error:
        lines.append(f"  error: {status.error}")
    last, totals = status.last, status.totals
    if last is not None:
        lines.append(f"  lineage {last.lineage}, epoch {last.epoch}, watermark {format_ms(last.watermark)}")
    lines += [f"  source {n}: read {c['read']} = passed {c['passed']} + malformed {c['malformed']}" for n, c in totals["sources"].items()]
    lines += [f"  filter {n}: in {c['in']} = passed {c['passed']} + rejected {c['rejected']}" for n, c in totals["filters"].items()]
    lines += [f"  window {n}: in {c['in']} = accepted {c['accepted']} + late {c['late']}" for n, c in totals["operators"].items()]
    for name, output in status.outputs.items():
        rows = totals["outputs"].get(name, 0)
        lines.append(f"  output {name}: {rows} rows, {output.sink}{' at ' + output.location if output.location else ''}")
        lines += [f"    {repair}" for repair in output.repairs]
    return "\n".join(lines)


def history_table(epochs: Sequence[EpochProgress]) -> str:
    """Return epochs as a table with aligned columns, and behind it what was done in them about epochs that outputs had lost."""
    rows = [_COLUMNS, *(_row(epoch) for epoch in epochs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines += [str(output.repair) for epoch in epochs for output in epoch.outputs.values() if output.repair is not None]
    return "\n".join(lines)


def _row(epoch: EpochProgress) -> tuple[str, ...]:
    lags = [source.lag_ms for source in epoch.sources.values() if source.lag_ms is not None]
    return (
        str(epoch.epoch),
        format_ms(epoch.processing_time),
        f"{epoch.duration_ms} ms",
        str(epoch.rows_in),
        str(epoch.rows_out),
        str(epoch.rows_late),
        str(epoch.rows_malformed),
        format_ms(epoch.watermark),
        format_duration(max(lags)) if lags else "-",
        str(sum(operator.state_rows for operator in epoch.operators.values())),
        str(sum(operator.state_bytes for operator in epoch.operators.values())),
    )
