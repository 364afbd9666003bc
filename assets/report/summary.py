"""The numbers of a run for people: in groups, in units, as one table. The plain numbers beside it are for plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import dagster as dg

from tidemark.assets.values.metadata_values import MetadataItem

SUMMARY_KEY: Final = "tidemark/summary"

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def summary(metadata: Mapping[str, MetadataItem]) -> dg.MarkdownMetadataValue:
    """Return the metadata of a run as a table: rows, late rows, event time, windows, functions, state, the run.

    Args:
        metadata: the numbers of ``output_metrics``.
    """
    numbers = {key.rpartition("/")[2]: getattr(value, "value", value) for key, value in metadata.items()}
    lines = [f"| **{group}** | {', '.join(parts)} |" for group, found in _groups(numbers) if (parts := [part for part in found if part])]
    return dg.MetadataValue.md("\n".join(("| | |", "|---|---|", *lines)))


def _groups(numbers: Mapping[str, object]) -> Iterator[tuple[str, Iterator[str]]]:
    yield "rows", _rows(numbers)
    yield "late", _late(numbers)
    yield "event time", _event_time(numbers)
    yield "windows", _counts(numbers, panes_on_time="on time", panes_late="corrected", panes_early="early", windows_closed="closed")
    yield "functions", _counts(numbers, keys="keys", timers="timers", timers_fired="fired", state_expired="expired", failed_rows="failed")
    yield "state", _state(numbers)
    yield "run", _run(numbers)


def _rows(numbers: Mapping[str, object]) -> Iterator[str]:
    added, size = _number(numbers, "rows_added"), _number(numbers, "bytes_added")
    if added is not None:
        yield f"{added:,.0f} added" + (f" ({bytes_text(size)})" if size else "")
    yield from _counts(numbers, row_count="in all", inserts="inserts", updates="updates", deletes="deletes")
    read, rate = _number(numbers, "rows_read"), _number(numbers, "rows_per_second")
    if read is not None:
        yield f"{read:,.0f} read" + (f" at {rate:,.0f} a second" if rate is not None else "")


def _late(numbers: Mapping[str, object]) -> Iterator[str]:
    late, ratio = _number(numbers, "late_rows"), _number(numbers, "late_ratio")
    if late is not None:
        yield f"{late:,.0f} too late" + (f" ({ratio:.2%})" if ratio is not None else "")
    yield from _counts(numbers, rejected_rows="rejected", malformed_rows="malformed")


def _event_time(numbers: Mapping[str, object]) -> Iterator[str]:
    watermark, lag, oldest = _number(numbers, "watermark"), numbers.get("watermark_lag"), _number(numbers, "oldest_open_window")
    if watermark is not None:
        yield f"watermark {_instant(watermark)}" + (f", {lag} behind" if lag else "")
    if oldest is not None:
        yield f"oldest open window {_instant(oldest)}"


def _state(numbers: Mapping[str, object]) -> Iterator[str]:
    size, files = _number(numbers, "state_bytes"), _number(numbers, "state_files")
    yield from _counts(numbers, state_rows="rows")
    if size is not None and files is not None:
        yield f"{bytes_text(size)} in {files:,.0f} file{'' if files == 1 else 's'}"


def _run(numbers: Mapping[str, object]) -> Iterator[str]:
    epochs, seconds, epoch = (_number(numbers, name) for name in ("epochs", "epoch_seconds", "epoch"))
    if epochs is not None and seconds is not None:
        yield f"{epochs:,.0f} epochs in {seconds:,.1f} s"
    if epoch is not None:
        yield f"up to epoch {epoch:.0f} of lineage {numbers.get('lineage', '')}"


def _counts(numbers: Mapping[str, object], **names: str) -> Iterator[str]:
    for name, word in names.items():
        count = _number(numbers, name)
        if count is not None:
            yield f"{count:,.0f} {word}"


def _number(numbers: Mapping[str, object], name: str) -> float | None:
    found = numbers.get(name)
    return float(found) if isinstance(found, int | float) else None


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def bytes_text(size: float) -> str:
    """Return a number of bytes in its greatest unit.

    >>> [bytes_text(size) for size in (0, 1023, 1536, 5 * 1024**3)]
    ['0 B', '1023 B', '1.5 KiB', '5.0 GiB']
    """
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
