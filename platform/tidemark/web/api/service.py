"""What the handlers of all routes share: the store, the launchers, the observed jobs, and the operations under way."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation, Observer, job_names
from tidemark.control.upgrade.code_check import Judge, judge_code
from tidemark.control.view.job_views import job_views
from tidemark.errors import UnknownJobError
from tidemark.names import validate_name
from tidemark.state.store.store import JobStore
from tidemark.web.access.caller import Caller
from tidemark.web.api.operations import Operations
from tidemark.web.page.reader import PageReader


@dataclass
class Service:
    """A store's jobs, as the API shows and changes them; used by many threads.

    Args:
        store: the root store.
        launchers: launchers of drivers, by name.
        clock: processing time.
        judge: checks new code against stored state; in a separate process by default.
    """

    store: JobStore
    launchers: Mapping[str, Launcher] = field(default_factory=launchers_here)
    clock: Clock = SYSTEM_CLOCK
    judge: Judge = judge_code

    def __post_init__(self) -> None:
        """Create the list of operations, the reader of pages, and the observer, which caches records and serves one thread at a time."""
        self.operations = Operations(self.clock)
        self._observer = Observer(self.store, self.launchers)
        self._lock = threading.Lock()
        self.pages = PageReader(self.store, self.launchers, clock=self.clock)

    def visible(self, caller: Caller) -> list[tuple[Observation, JobView]]:
        """Return observation and view of each job that a caller may see, sorted by name."""
        return self._views(name for name in job_names(self.store) if caller.covers(name))

    def require(self, job: str) -> tuple[Observation, JobView]:
        """Return observation and view of a job.

        Raises:
            InvalidNameError: it cannot be the name of a job.
            UnknownJobError: there is no such job. The error names no other job, since a caller may not see all of them.
        """
        found = self._views((validate_name("job", job),))
        if not found:
            raise UnknownJobError(f"the store has no job {job!r}", fix="GET /api/v1/jobs lists the jobs", job=job)
        return found[0]

    def _views(self, names: Iterable[str]) -> list[tuple[Observation, JobView]]:
        with self._lock:
            return job_views(self.store, names, self._observer, clock=self.clock)
