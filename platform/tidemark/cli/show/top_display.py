"""The pages of ``tidemark top``: a table of jobs, or one job with its sources, windows and epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tidemark.cli.show.view_text import COLUMNS, row_of, view_text
from tidemark.clock import format_ms
from tidemark.control.model.view import Health, JobView
from tidemark.durations import short_duration
from tidemark.state.log.progress import EpochProgress, OperatorProgress
from tidemark.state.status.driver_load import Backlog

_STYLES: Final[Mapping[Health, str]] = {
    "ok": "green",
    "starting": "cyan",
    "stopped": "dim",
    "hung": "bold red",
    "silent": "bold red",
    "failing": "yellow",
    "failed": "bold red",
    "unwatched": "bold yellow",
    "damaged": "bold red",
}

_STATE: Final = ("state rows", "bytes", "files")


def jobs_page(views: Sequence[JobView], *, title: str, problem: str = "") -> Group:
    """Return all jobs as a table."""
    table = _table(*COLUMNS)
    table.columns[0].min_width = max((len(view.job) for view in views), default=0)
    for view in views:
        table.add_row(*(escape(cell) for cell in row_of(view)), style=_STYLES[view.health])
    return Group(_head(title, problem), table, *(Text(f"{view.job}: {note}") for view in views for note in notes(view)))


def notes(view: JobView) -> list[str]:
    """Return the notes on an unhealthy job below a table of jobs: the reason, its error, and what to do."""
    if view.health in {"ok", "stopped"}:
        return []
    error = view.error.message if view.error is not None and view.error.message not in view.reason else ""
    return [note for note in (view.reason, error, view.advice) if note]


def job_page(view: JobView, epochs: Sequence[EpochProgress], *, title: str, problem: str = "") -> Group:
    """Return one job: its state, its sources, its operators, its newest epochs, newest first."""
    return Group(
        _head(title, problem),
        Text(view_text(view), style=_STYLES[view.health]),
        *_progress_of_drain(view),
        _sources(view),
        *_operators(epochs),
        _epochs(epochs),
    )


def _head(title: str, problem: str) -> Text:
    return Text(title, style="bold") + Text(f"\n{problem}" if problem else "", style="bold red")


def _progress_of_drain(view: JobView) -> list[Text]:
    if view.driver_lifecycle != "draining":
        return []
    pressure = view.pressure
    counts = (("files", pressure.waiting_files), ("rows", pressure.waiting_rows), ("bytes", pressure.waiting_bytes))
    known = ", ".join(f"{count:,} {what}" for what, count in counts if count is not None)
    return [Text(f"draining: {known or 'an unknown backlog'} to go, epoch {view.epoch}", style="cyan")]


def _sources(view: JobView) -> Table:
    table = _table("source", "split", "watermark", "lag", "rows", "malformed", "waiting")
    for name, source in view.sources.items():
        waits = _waits(view.pressure.waiting.get(name, Backlog()))
        row = (_instant(source.watermark), _lag(source.lag_ms), f"{source.rows_read:,}", f"{source.rows_malformed:,}", waits)
        table.add_row(escape(name), "", *row)
        for split, at in source.splits.items():
            if split:
                held = "idle" if at.idle else "holds it" if split == source.held_by else ""
                table.add_row("", escape(split), _instant(at.watermark), _lag(at.lag_ms), "", "", held)
    return table


def _waits(waiting: Backlog) -> str:
    """Return a source's backlog in one unit: files, else rows (Kafka), else bytes."""
    counts = (("files", waiting.files), ("rows", waiting.rows), ("bytes", waiting.bytes))
    return next((f"{count:,} {what}" for what, count in counts if count is not None), "-")


def _operators(epochs: Sequence[EpochProgress]) -> list[Table]:
    operators = epochs[-1].operators if epochs else {}
    functions = {uid: item for uid, item in operators.items() if item.is_process_function}
    windows = {uid: item for uid, item in operators.items() if uid not in functions}
    tables = []
    if windows:
        tables.append(_table("window", "accepted", "late", "panes", "oldest open", *_STATE))
    for uid, item in windows.items():
        panes = item.panes_early + item.panes_on_time + item.panes_late
        counts = (f"{item.rows_accepted:,}", f"{item.late:,}", f"{panes:,}", _instant(item.oldest_open_window))
        tables[-1].add_row(escape(uid), *counts, *_state(item))
    if functions:
        tables.append(_table("process function", "accepted", "failed", "keys", "timers", "fired", "expired", *_STATE))
    for uid, item in functions.items():
        rows = (item.rows_accepted, item.rows_in - item.rows_accepted)
        numbers = (*rows, item.keys, item.timers, item.timers_fired, item.state_expired)
        tables[-1].add_row(escape(uid), *(f"{number:,}" for number in numbers), *_state(item))
    return tables


def _state(item: OperatorProgress) -> tuple[str, str, str]:
    return f"{item.state_rows:,}", f"{item.state_bytes:,}", f"{item.state_files:,}"


def _epochs(epochs: Sequence[EpochProgress]) -> Table:
    table = _table("epoch", "at", "took", "in", "out", "late", "malformed", "watermark")
    for epoch in reversed(epochs):
        counts = (epoch.rows_in, epoch.rows_out, epoch.rows_late, epoch.rows_malformed)
        took = short_duration(epoch.duration_ms)
        table.add_row(
            str(epoch.epoch),
            _instant(epoch.processing_time).partition(" ")[2],
            took,
            *(f"{count:,}" for count in counts),
            _instant(epoch.watermark),
        )
    return table


def _instant(milliseconds: int | None) -> str:
    """Return an instant in whole seconds, since a terminal is narrow."""
    return format_ms(milliseconds).partition(".")[0].replace("T", " ")


def _lag(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else short_duration(milliseconds)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=True, justify="left" if number == 0 else "right")
    return table
