"""What ``tidemark top`` shows: the jobs of a store as they were when it was read, and the page of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rich.console import Console, ConsoleRenderable

from tidemark.cli.top.job_page import job_page
from tidemark.cli.top.jobs_page import jobs_page
from tidemark.cli.top.selection import Selection
from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observer
from tidemark.control.view.epoch_series import MOST_READS, HistoryReader, JobHistory
from tidemark.control.view.job_views import views
from tidemark.errors import StoreError
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class TopState:
    """Jobs at one moment.

    Args:
        store: address of the store.
        jobs: the jobs, in the order of the table.
        histories: of the jobs, by name, as far as they were read.
        problem: why the store cannot be read now, so that the jobs are those of an earlier time; empty for nothing.
        read_at: when it was read, in milliseconds.
    """

    store: str
    jobs: tuple[JobView, ...] = ()
    histories: Mapping[str, JobHistory] = field(default_factory=dict)
    problem: str = ""
    read_at: int = 0

    @property
    def names(self) -> list[str]:
        """The jobs' names, in the order of the table."""
        return [view.job for view in self.jobs]

    def page(self, selection: Selection, console: Console, *, height: int | None = None) -> ConsoleRenderable:
        """Return the table of all jobs, or the page of the selected one, for a terminal.

        Args:
            selection: the job, and whether its page is open.
            console: the terminal.
            height: its lines; None is without an end.
        """
        ascii_only = not console.encoding.startswith("utf")
        title = f"{self.store}  {format_ms(self.read_at)}"
        shown = next((view for view in self.jobs if selection.is_open and view.job == selection.job), None)
        if shown is None:
            return jobs_page(
                self.jobs,
                self.histories,
                title=title,
                problem=self.problem,
                selected=selection.job,
                width=console.width,
                height=height,
                ascii_only=ascii_only,
            )
        history = self.histories.get(shown.job, JobHistory())
        problem = self.problem or history.problem
        return job_page(shown, history.epochs, title=title, problem=problem, width=console.width, ascii_only=ascii_only)


class TopFeed:
    """Reads jobs from the store, again and again; one thread at a time.

    Args:
        root: the root store.
        job: the only job to read; None reads all.
    """

    def __init__(self, root: JobStore, job: str | None = None) -> None:
        self._root, self._job = root, job
        self._observer, self._histories = Observer(root, launchers_here()), HistoryReader(root)
        self._state = TopState(root.uri)

    def read(self, first: str = "", *, most: int | None = MOST_READS) -> TopState:
        """Return the jobs as they are; while the store cannot be reached, as they were, with the error.

        Args:
            first: the job whose history is read before those of the others.
            most: read at most this many histories of jobs that have had an epoch since; None reads all.

        Raises:
            StoreError: the store cannot be reached, and nothing was read before.
        """
        try:
            jobs = tuple(view for _, view in views(self._root, self._job, self._observer))
            histories = self._histories.refresh(jobs, first=first, most=most)
            self._state = TopState(self._root.uri, jobs, histories, read_at=SYSTEM_CLOCK.now_ms())
        except StoreError as error:
            if not self._state.jobs:
                raise
            self._state = replace(self._state, problem=str(error))
        return self._state
