"""What the pages of ``tidemark top`` have in common: the first lines, the footer with the keys, tables, colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Final

from rich.console import Console, ConsoleRenderable, Group
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from tidemark.control.model.view import Health

STYLES: Final[Mapping[Health, str]] = {
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
"""The colour of a job by its health."""


def head(title: str, problem: str) -> Group:
    """Return the first line of a page, with an error below it if there is one, as many lines as it needs."""
    return Group(Text(title, style="bold", no_wrap=True, overflow="ellipsis"), *_problem(problem))


def lines_of_problem(problem: str, width: int) -> int:
    """Return how many lines an error has below the first line of a page.

    Args:
        problem: the error; empty for none.
        width: of the terminal, in characters.
    """
    console = Console(width=width, file=StringIO())
    return sum(len(console.render_lines(text, pad=False)) for text in _problem(problem))


def _problem(problem: str) -> list[Text]:
    return [Text(problem, style="bold red", overflow="fold")] if problem else []


def footer(keys: Iterable[tuple[str, str]]) -> Text:
    """Return the last line: keys, each with what it does."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for key, what in keys:
        line.append(f" {key} ", style="reverse").append(f" {what}  ")
    return line


def full_screen(page: ConsoleRenderable, keys: Iterable[tuple[str, str]]) -> Layout:
    """Return a page that fills the terminal, with the footer in its last line; what has no room is cut at the bottom."""
    layout = Layout()
    layout.split_column(Layout(page), Layout(footer(keys), size=1))
    return layout


def plain_table(*columns: str) -> Table:
    """Return a table without lines: the first column to the left, numbers to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=True, justify="left" if number == 0 else "right")
    return table
