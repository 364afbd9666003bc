"""The first page of ``tidemark top``: all jobs as a table, as many columns and rows of it as the terminal has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rich.console import Group
from rich.markup import escape
from rich.text import Text

from tidemark.cli.show.view_text import COLUMNS, row_of
from tidemark.cli.top.frame import STYLES, head, lines_of_problem, plain_table
from tidemark.cli.top.sparkline import sparkline
from tidemark.control.model.view import JobView
from tidemark.control.view.epoch_series import JobHistory, JobSeries

_BARS: Final = 12
"""Epochs that a line of bars in the table shows."""

_ORDER: Final = (
    "job", "state", "health", "alerts", "epoch", "rows/s", "rows over time", "lag", "lag over time", "late", "late over time",
    "busy", "heartbeat", "restarts", "gen", "attempt",
)  # fmt: skip
"""The columns, from left to right."""

_FIRST: Final = (
    "job", "state", "health", "lag", "rows/s", "late", "alerts", "lag over time", "rows over time", "late over time",
    "epoch", "busy", "heartbeat", "restarts", "gen", "attempt",
)  # fmt: skip
"""The same, the most important first: a narrow terminal has only those that fit."""

_GAP: Final = 2
"""Blanks between two columns."""

_REST: Final = 4
"""Lines besides the jobs and an error: the first, those of the columns' names, of the number of jobs without room, and of the footer."""


class _Row(NamedTuple):
    """A job with the cells of all its columns."""

    view: JobView
    cells: Mapping[str, str]


def jobs_page(
    views: Sequence[JobView],
    histories: Mapping[str, JobHistory],
    *,
    title: str,
    problem: str = "",
    selected: str = "",
    width: int = 80,
    height: int | None = None,
    ascii_only: bool = False,
) -> Group:
    """Return all jobs as a table, with notes on the unhealthy ones below it.

    Args:
        views: the jobs.
        histories: of the jobs, by name, as far as they are known.
        title: the first line.
        problem: an error to show below it; empty for none.
        selected: the job whose row is marked, which is always visible; empty for none.
        width: of the terminal, in characters.
        height: of the terminal, in lines; None shows all rows.
        ascii_only: for terminals without block elements.
    """
    rows = [_Row(view, _cells(view, histories.get(view.job, JobHistory()).series, ascii_only=ascii_only)) for view in views]
    columns = fitting_columns([row.cells for row in rows], width)
    table = plain_table(*columns)
    room = None if height is None else height - _REST - lines_of_problem(problem, width)
    shown = visible_rows([view.job for view in views], selected, room)
    for row in rows[shown]:
        marked = " reverse" if row.view.job == selected else ""
        table.add_row(*(escape(row.cells[column]) for column in columns), style=STYLES[row.view.health] + marked)
    hidden = len(rows) - len(rows[shown])
    more = [Text(f"{hidden} more jobs", style="dim")] if hidden else []
    return Group(head(title, problem), table, *more, *(Text(f"{view.job}: {note}") for view in views for note in notes(view)))


def fitting_columns(rows: Sequence[Mapping[str, str]], width: int) -> tuple[str, ...]:
    """Return the columns that fit into a width, from left to right; the job's name is always among them.

    Args:
        rows: cells by column.
        width: in characters.
    """
    left, chosen = width, set[str]()
    for column in _FIRST:
        needs = max((len(row[column]) for row in rows), default=0)
        needs = max(needs, len(column)) + _GAP
        if chosen and needs > left + _GAP:
            continue
        chosen.add(column)
        left -= needs
    return tuple(column for column in _ORDER if column in chosen)


def visible_rows(names: Sequence[str], selected: str, most: int | None) -> slice:
    """Return which rows are shown: all, or as many as there is room for, the selected one among them.

    >>> visible_rows(["a", "b", "c", "d"], "c", 2)
    slice(1, 3, None)
    """
    if most is None or len(names) <= most:
        return slice(0, len(names))
    room = max(most, 1)
    position = names.index(selected) if selected in names else 0
    first = min(max(0, position - room + 1), len(names) - room)
    return slice(first, first + room)


def notes(view: JobView) -> list[str]:
    """Return the notes on an unhealthy job below the table: the reason, its error, and what to do."""
    if view.health in {"ok", "stopped"}:
        return []
    error = view.error.message if view.error is not None and view.error.message not in view.reason else ""
    return [note for note in (view.reason, error, view.advice) if note]


def _cells(view: JobView, series: JobSeries, *, ascii_only: bool) -> Mapping[str, str]:
    lines = {"rows over time": series.rows_per_second, "lag over time": series.lag_ms, "late over time": series.late}
    bars = {name: sparkline(values, width=_BARS, ascii_only=ascii_only) for name, values in lines.items()}
    return {**dict(zip(COLUMNS, row_of(view), strict=True)), "late": f"{view.rows.late:,}", **bars}
