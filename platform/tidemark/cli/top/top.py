"""``tidemark top``: a live view of jobs in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import click
from rich.console import Console, ConsoleRenderable
from rich.live import Live

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import DURATION, existing_store, require_known, store_option, views
from tidemark.cli.top.frame import full_screen
from tidemark.cli.top.job_page import job_page
from tidemark.cli.top.jobs_page import jobs_page
from tidemark.cli.top.keyboard import Keyboard
from tidemark.cli.top.selection import Selection
from tidemark.cli.top.series import MOST_READS, HistoryReader, JobHistory
from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observer
from tidemark.errors import StoreError
from tidemark.state.store.store import JobStore


@click.command(cls=DocumentedCommand, examples=("tidemark top", "tidemark top rides --every '5 seconds'"))
@click.argument("job", required=False)
@store_option
@click.option("--every", type=DURATION, default="1 second", show_default=True, help="Refresh interval.")
@click.option("--frames", type=click.IntRange(min=1), default=None, help="End after this many refreshes; 1 prints a snapshot.")
def top(job: str | None, store: str | None, every: int, frames: int | None) -> None:
    """Watch the jobs of a store: their state, and lag, rows per second and late rows over their newest epochs.

    Arrow keys select a job, Enter opens its page, Esc returns, q quits. With JOB, a job's name, its page is open at first. Without a
    terminal one snapshot is printed.
    """
    root = existing_store(store)
    if job is not None:
        require_known(root, job)
    console = Console()
    interactive = console.is_terminal and not console.is_dumb_terminal
    if interactive and frames is None and sys.stdin.isatty():
        _watch(console, TopFeed(root), Selection(job or "", is_open=job is not None), every_ms=every)
    else:
        _print(console, TopFeed(root, job), every_ms=every, frames=frames or (None if interactive else 1))


@dataclass
class TopFeed:
    """What is known of the jobs, refreshed from the store; while the store cannot be reached, the last state with the error.

    Args:
        root: the root store.
        job: the only job to observe; None observes all.
    """

    root: JobStore
    job: str | None = None
    known: list[JobView] = field(default_factory=list)
    histories: Mapping[str, JobHistory] = field(default_factory=dict)
    problem: str = ""
    read_at: int = 0

    def __post_init__(self) -> None:
        self._observer, self._reader = Observer(self.root, launchers_here()), HistoryReader(self.root)

    @property
    def names(self) -> list[str]:
        """The jobs' names, in the order of the table."""
        return [view.job for view in self.known]

    def refresh(self, first: str = "", *, most: int | None = MOST_READS) -> None:
        """Read the jobs, and the histories of those that have had an epoch: of the first before the others, of at most so many.

        Raises:
            StoreError: the store cannot be reached, and nothing was read before.
        """
        self.problem = ""
        try:
            self.known = [view for _, view in views(self.root, self.job, self._observer)]
            self.histories = self._reader.refresh(self.known, first=first, most=most)
        except StoreError as error:
            if not self.known:
                raise
            self.problem = str(error)
        self.read_at = SYSTEM_CLOCK.now_ms()

    def page(self, selection: Selection, console: Console, *, height: int | None = None) -> ConsoleRenderable:
        """Return the table of all jobs, or the page of the selected one."""
        ascii_only = not console.encoding.startswith("utf")
        title, problem = f"{self.root.uri}  {format_ms(self.read_at)}", self.problem
        open_view = next((view for view in self.known if selection.is_open and view.job == selection.job), None)
        if open_view is None:
            return jobs_page(
                self.known,
                self.histories,
                title=title,
                problem=problem,
                selected=selection.job,
                width=console.width,
                height=height,
                ascii_only=ascii_only,
            )
        history = self.histories.get(open_view.job, JobHistory())
        problem = problem or history.problem
        return job_page(open_view, history.epochs, title=title, problem=problem, width=console.width, ascii_only=ascii_only)


def _print(console: Console, feed: TopFeed, *, every_ms: int, frames: int | None) -> None:
    """Print so many pages, without keys; None prints until Ctrl-C."""
    selection = Selection(feed.job or "", is_open=feed.job is not None)
    feed.refresh(most=None)
    if frames == 1:
        console.print(feed.page(selection, console))
        return
    with Live(feed.page(selection, console), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        shown = 1
        with suppress(KeyboardInterrupt):
            while frames is None or shown < frames:
                SYSTEM_CLOCK.sleep(every_ms / 1000)
                feed.refresh(most=None)
                live.update(feed.page(selection, console), refresh=True)
                shown += 1


def _watch(console: Console, feed: TopFeed, selection: Selection, *, every_ms: int) -> None:
    """Show pages on the whole terminal, and act on keys, until one of them, or Ctrl-C, ends it."""

    def page() -> ConsoleRenderable:
        return full_screen(feed.page(selection, console, height=console.height), selection.keys)

    feed.refresh(selection.job)
    selection = selection.among(feed.names)
    with (
        suppress(KeyboardInterrupt),
        Keyboard(sys.stdin.fileno()) as keyboard,
        Live(page(), console=console, auto_refresh=False, screen=True) as live,
    ):
        due = SYSTEM_CLOCK.monotonic() + every_ms / 1000
        while True:
            live.refresh()
            key = keyboard.read(max(0.0, due - SYSTEM_CLOCK.monotonic()))
            after = selection if key is None else selection.press(key, feed.names)
            if after is None:
                return
            # Also while a key is held down.
            if SYSTEM_CLOCK.monotonic() >= due:
                feed.refresh(after.job)
                due = SYSTEM_CLOCK.monotonic() + every_ms / 1000
            selection = after.among(feed.names)
            live.update(page())
