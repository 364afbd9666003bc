"""``tidemark top``: a live view of jobs in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import click
from rich.console import Console, ConsoleRenderable
from rich.live import Live

from tidemark.cli.program.options import DURATION, existing_store, store_option, views
from tidemark.cli.show.top_display import job_page, jobs_page
from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observer
from tidemark.errors import CorruptStoreError, StoreError
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history import read_history
from tidemark.state.store.store import JobStore

_EPOCHS = 12


@click.command()
@click.argument("job", required=False)
@store_option
@click.option("--every", type=DURATION, default="1 second", show_default=True, help="Refresh interval.")
@click.option("--frames", type=click.IntRange(min=1), default=None, help="End after this many refreshes; 1 prints a snapshot.")
def top(job: str | None, store: str | None, every: int, frames: int | None) -> None:
    """Watch a job, or all jobs of the store, until Ctrl-C. JOB is a job's name."""
    root = existing_store(store)
    console = Console()
    pages = _pages(root, job)
    if frames == 1:
        console.print(next(pages))
        return
    with Live(next(pages), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        shown = 1
        with suppress(KeyboardInterrupt):
            while frames is None or shown < frames:
                SYSTEM_CLOCK.sleep(every / 1000)
                live.update(next(pages), refresh=True)
                shown += 1


def _pages(root: JobStore, job: str | None) -> Iterator[ConsoleRenderable]:
    """Yield pages forever; while the store cannot be reached, the last known page with the error."""
    observer = Observer(root, launchers_here())
    known: list[JobView] = []
    epochs: list[EpochProgress] = []
    while True:
        problem = ""
        try:
            known = [view for _, view in views(root, job, observer)]
            epochs, problem = _epochs(root, job) if job else ([], "")
        except StoreError as error:
            if not known:
                raise
            problem = str(error)
        title = f"{root.uri}  {format_ms(SYSTEM_CLOCK.now_ms())}"
        yield job_page(known[0], epochs, title=title, problem=problem) if job else jobs_page(known, title=title, problem=problem)


def _epochs(root: JobStore, job: str) -> tuple[list[EpochProgress], str]:
    """Return a job's newest epochs and no error; if its history is damaged, none and the error: the rest of the page is still shown."""
    try:
        return read_history(root, job, _EPOCHS), ""
    except CorruptStoreError as error:
        return [], str(error)
