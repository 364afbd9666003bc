"""``tidemark top``: a live view of jobs in the terminal."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from threading import Thread
from typing import Final

import click
from rich.console import Console
from rich.live import Live

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import DURATION, existing_store, store_option
from tidemark.cli.top.feed import TopFeed, TopState
from tidemark.cli.top.frame import full_screen
from tidemark.cli.top.keyboard import Keyboard
from tidemark.cli.top.selection import Selection
from tidemark.cli.top.termination import raising_on_termination
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.view.job_views import require_known

_POLL_SECONDS: Final = 0.1
"""How often a read of the store that is under way is asked whether it has ended; keys are answered at once."""


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
    console, selection = Console(), Selection(job or "", is_open=job is not None)
    is_screen = console.is_terminal and not console.is_dumb_terminal
    if is_screen and frames is None and sys.stdin.isatty():
        TopScreen(console, TopFeed(root), selection, every_ms=every).run()
    else:
        _print(console, TopFeed(root, job), selection, every_ms=every, frames=frames or (None if is_screen else 1))


def _print(console: Console, feed: TopFeed, selection: Selection, *, every_ms: int, frames: int | None) -> None:
    """Print so many pages, without keys; None prints until Ctrl-C."""
    page = feed.read(most=None).page(selection, console)
    if frames == 1:
        console.print(page)
        return
    screen = Live(page, console=console, auto_refresh=False, screen=console.is_terminal)
    with raising_on_termination(), screen as live, suppress(KeyboardInterrupt):
        shown = 1
        while frames is None or shown < frames:
            SYSTEM_CLOCK.sleep(every_ms / 1000)
            live.update(feed.read(most=None).page(selection, console), refresh=True)
            shown += 1


class TopScreen:
    """Shows pages on the whole terminal, and acts on keys.

    The store is read in a thread that the process does not wait for, so that a slow one delays neither a key nor the end.

    Args:
        console: the terminal.
        feed: reads the store.
        selection: what is selected at first.
        every_ms: pause between two reads.
    """

    def __init__(self, console: Console, feed: TopFeed, selection: Selection, *, every_ms: int) -> None:
        self._console, self._feed, self._every = console, feed, every_ms / 1000
        self._selection = selection
        self._state = TopState("")
        self._reading: Future[TopState] | None = None
        self._due = 0.0

    def run(self) -> None:
        """Show pages until a key, or Ctrl-C, ends it.

        Raises:
            StoreError: the store cannot be reached at first.
        """
        self._take(self._feed.read(self._selection.job))
        with suppress(KeyboardInterrupt), ExitStack() as opened:
            opened.enter_context(raising_on_termination())
            keyboard = opened.enter_context(Keyboard(sys.stdin.fileno()))
            live = opened.enter_context(Live(console=self._console, auto_refresh=False, screen=True))
            while True:
                page = self._state.page(self._selection, self._console, height=self._console.height)
                live.update(full_screen(page, self._selection.keys), refresh=True)
                key = keyboard.read(self._pause())
                after = self._selection if key is None else self._selection.press(key, self._state.names)
                if after is None:
                    return
                self._selection = after
                self._read()

    def _pause(self) -> float:
        """Return how long to wait for a key, in seconds."""
        return _POLL_SECONDS if self._reading is not None else max(0.0, self._due - SYSTEM_CLOCK.monotonic())

    def _read(self) -> None:
        """Take what a read has found, or begin the next one when it is due."""
        if self._reading is not None and self._reading.done():
            self._take(self._reading.result())
        elif self._reading is None and SYSTEM_CLOCK.monotonic() >= self._due:
            self._reading = _in_thread(self._feed, self._selection.job)

    def _take(self, state: TopState) -> None:
        self._state, self._reading = state, None
        self._selection = self._selection.among(state.names)
        self._due = SYSTEM_CLOCK.monotonic() + self._every


def _in_thread(feed: TopFeed, job: str) -> Future[TopState]:
    """Return what a thread is reading; the interpreter does not wait for it when the program ends."""
    reading: Future[TopState] = Future()

    def read() -> None:
        try:
            reading.set_result(feed.read(job))
        except Exception as error:  # noqa: BLE001 - raised where the result is taken
            reading.set_exception(error)

    Thread(target=read, name="tidemark-top", daemon=True).start()
    return reading
