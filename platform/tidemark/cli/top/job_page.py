"""The page of one job in ``tidemark top``: its state, figures over time, sources, operators, executors and epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tidemark.cli.show.resource_text import EXECUTOR_COLUMNS, executor_rows
from tidemark.cli.show.view_text import view_text
from tidemark.cli.top.frame import STYLES, head, plain_table
from tidemark.cli.top.sparkline import sparkline
from tidemark.clock import format_ms
from tidemark.control.model.view import JobView
from tidemark.control.view.epoch_series import JobSeries, series_of
from tidemark.durations import short_duration
from tidemark.state.log.progress import EpochProgress, OperatorProgress
from tidemark.state.status.driver_load import Backlog

_STATE: Final = ("state rows", "bytes", "files")
_EPOCHS_SHOWN: Final = 12


def job_page(
    view: JobView, epochs: Sequence[EpochProgress], *, title: str, problem: str = "", width: int = 80, ascii_only: bool = False
) -> Group:
    """Return one job: its state, its figures over time, its sources, its operators, its newest epochs, newest first.

    Args:
        view: the job.
        epochs: its newest epochs, oldest first.
        title: the first line.
        problem: an error to show below it; empty for none.
        width: of the terminal, in characters.
        ascii_only: for terminals without block elements.
    """
    return Group(
        head(title, problem),
        Text(view_text(view), style=STYLES[view.health]),
        *_progress_of_drain(view),
        *_trends(series_of(epochs), width=width, ascii_only=ascii_only),
        _sources(view),
        *_operators(epochs),
        *_executors(view),
        _epochs(epochs[-_EPOCHS_SHOWN:]),
    )


def _trends(series: JobSeries, *, width: int, ascii_only: bool) -> list[Text]:
    """Return a line each for lag, rows and late rows: bars of the newest epochs, the newest value, the greatest."""
    lags, rates = [lag for lag in series.lag_ms if lag is not None], [rate for rate in series.rows_per_second if rate is not None]
    figures: list[tuple[str, Sequence[float | None], str]] = []
    if lags:
        figures.append(("lag", series.lag_ms, f"{short_duration(lags[-1])}, at most {short_duration(max(lags))}"))
    if rates:
        figures.append(("rows/s", series.rows_per_second, f"{rates[-1]:,.0f}, at most {max(rates):,.0f}"))
    if series.late:
        figures.append(("late", series.late, f"{series.late[-1]:,} rows, at most {max(series.late):,}"))
    longest = max((len(text) for _, _, text in figures), default=0)
    bars = max(1, min(len(series.late), width - longest - 9))
    return [
        Text(f"{name:6} ", style="bold") + Text(sparkline(values, width=bars, ascii_only=ascii_only), style="cyan") + Text(f" {text}")
        for name, values, text in figures
    ]


def _progress_of_drain(view: JobView) -> list[Text]:
    if view.driver_lifecycle != "draining":
        return []
    pressure = view.pressure
    counts = (("files", pressure.waiting_files), ("rows", pressure.waiting_rows), ("bytes", pressure.waiting_bytes))
    known = ", ".join(f"{count:,} {what}" for what, count in counts if count is not None)
    return [Text(f"draining: {known or 'an unknown backlog'} to go, epoch {view.epoch}", style="cyan")]


def _sources(view: JobView) -> Table:
    table = plain_table("source", "split", "watermark", "lag", "rows", "malformed", "waiting")
    for name, source in view.sources.items():
        waiting = view.pressure.waiting.get(name, Backlog())
        waits = _waits(waiting)
        row = (_instant(source.watermark), _lag(source.lag_ms), f"{source.rows_read:,}", f"{source.rows_malformed:,}", waits)
        table.add_row(escape(name), "", *row)
        for split, at in source.splits.items():
            if split:
                held = "idle" if at.idle else "holds it" if split == source.held_by else ""
                behind = f"{waiting.splits[split]:,} rows" if split in waiting.splits else ""
                shown = ", ".join(part for part in (behind, held) if part)
                table.add_row("", escape(split), _instant(at.watermark), _lag(at.lag_ms), "", "", shown)
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
        tables.append(plain_table("window", "accepted", "late", "panes", "oldest open", *_STATE))
    for uid, item in windows.items():
        panes = item.panes_early + item.panes_on_time + item.panes_late
        counts = (f"{item.rows_accepted:,}", f"{item.late:,}", f"{panes:,}", _instant(item.oldest_open_window))
        tables[-1].add_row(escape(uid), *counts, *_state(item))
    if functions:
        tables.append(plain_table("process function", "accepted", "failed", "keys", "timers", "fired", "expired", *_STATE))
    for uid, item in functions.items():
        rows = (item.rows_accepted, item.rows_in - item.rows_accepted)
        numbers = (*rows, item.keys, item.timers, item.timers_fired, item.state_expired)
        tables[-1].add_row(escape(uid), *(f"{number:,}" for number in numbers), *_state(item))
    return tables


def _executors(view: JobView) -> list[Table]:
    """Return the executors as a table; none before the driver has measured them."""
    if view.resources is None or not view.resources.executors:
        return []
    table = plain_table(*EXECUTOR_COLUMNS)
    for name, *cells in executor_rows(view.resources):
        table.add_row(escape(name), *cells)
    return [table]


def _state(item: OperatorProgress) -> tuple[str, str, str]:
    return f"{item.state_rows:,}", f"{item.state_bytes:,}", f"{item.state_files:,}"


def _epochs(epochs: Sequence[EpochProgress]) -> Table:
    table = plain_table("epoch", "at", "took", "in", "out", "late", "malformed", "watermark")
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
