"""Savepoints as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.clock import format_ms
from tidemark.savepoints.core.differences import Counted, SavepointDifference
from tidemark.savepoints.core.expiry import Restorable
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.gc.file_references import FileReference

_COLUMNS = ("savepoint", "epoch", "taken", "kind", "state rows", "state bytes", "restorable until", "note")
NO_LONGER = "no longer"


def savepoint_table(savepoints: Sequence[Savepoint], restorable: Sequence[Restorable]) -> str:
    """Return savepoints, and until when each can be restored, as a table with aligned columns."""
    rows = [_COLUMNS, *(_row(savepoint, found) for savepoint, found in zip(savepoints, restorable, strict=True))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def savepoint_text(savepoint: Savepoint, holds: Sequence[FileReference], restorable: Restorable) -> str:
    """Return a savepoint's details: its state, counts, tables, references and until when it can be restored."""
    info, record = savepoint.info, savepoint.record
    lines = [str(savepoint), f"  code version {info.code_version or '-'}, watermark {format_ms(record.progress.watermark)}"]
    if info.by or info.note:
        lines.append(f"  taken by {info.by or '-'}{f': {info.note}' if info.note else ''}")
    if info.labels:
        lines.append(f"  labels: {', '.join(f'{key}={value}' for key, value in sorted(info.labels.items()))}")
    if info.imported_from:
        lines.append(f"  imported from {info.imported_from}")
    for uid, state in sorted(record.operators.items()):
        rows, size = sum(file.rows for file in state.files), sum(file.bytes for file in state.files)
        lines.append(f"  operator {uid}: {rows} rows, {size} bytes in {len(state.files)} files, watermark {format_ms(state.watermark)}")
    for name, counts in record.totals["sources"].items():
        lines.append(f"  source {name}: {counts.get('read', 0)} rows read")
    for name, table in sorted(info.tables.items()):
        lines.append(f"  output {name}: version {table.version} of {table.location}, kept until {format_ms(table.until)}")
    lines += [f"  held for job {reference.job} since {format_ms(reference.held_at)}" for reference in holds]
    lines.append(f"  {_how_long(restorable)}")
    inputs = [expiry for expiry in restorable.limits if expiry.what == "input"]
    lines += [f"    {limit}" + (f", until {format_ms(limit.until)}" if limit.until is not None else "") for limit in inputs]
    return "\n".join(lines)


def difference_text(found: SavepointDifference) -> str:
    """Return what changed between two savepoints."""
    how = "the same lineage" if found.same_lineage else "other lineages: a restore or a rewind lies between them"
    lines = [f"{found.name} -> {found.other}: epoch {_change(found.epochs)}, {how}"]
    if found.code_versions[0] != found.code_versions[1]:
        lines.append(f"  code version {found.code_versions[0] or '-'} -> {found.code_versions[1] or '-'}")
    lines += _lines("operator {}: state rows", found.state_rows)
    lines += [f"  operator {uid}: watermark {format_ms(c.before)} -> {format_ms(c.after)}" for uid, c in found.watermarks.items()]
    lines += _lines("source {}: rows read", found.read)
    lines += _lines("output {}: rows", found.written)
    return "\n".join(lines)


def _row(savepoint: Savepoint, restorable: Restorable) -> tuple[str, ...]:
    info = savepoint.info
    return (
        savepoint.name,
        str(savepoint.record.epoch),
        format_ms(savepoint.taken_at),
        info.kind,
        str(info.state_rows),
        str(info.state_bytes),
        NO_LONGER if restorable.lost else format_ms(restorable.until),
        info.note,
    )


def _how_long(restorable: Restorable) -> str:
    if restorable.lost:
        return f"{NO_LONGER} restorable without loss"
    return f"restorable until {format_ms(restorable.until)}" if restorable.until is not None else "restorable, with no known end"


def _lines(form: str, counts: Mapping[str, Counted]) -> list[str]:
    return [f"  {form.format(name)} {_change(count)}" for name, count in counts.items()]


def _change(count: Counted) -> str:
    if count.before is None or count.after is None:
        return f"{'-' if count.before is None else count.before} -> {'-' if count.after is None else count.after}"
    return f"{count.before} -> {count.after} ({count.after - count.before:+})"
