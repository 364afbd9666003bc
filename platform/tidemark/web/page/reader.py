"""Reads what the page of a job shows: a bounded number of small files, however long the job has run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from threading import Lock
from typing import Any, Final, TypeVar

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.paths import ATTEMPTS, AUTOSCALER, CONTROL, REQUESTS, SPECS, UPGRADES
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation, Observer
from tidemark.control.view.change_log import Change, changes_of
from tidemark.control.view.epoch_series import HistoryReader, JobHistory
from tidemark.control.view.job_views import job_views
from tidemark.errors import CorruptStoreError, FormatError, UnknownJobError
from tidemark.names import validate_name
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.savepoint import SavepointInfo
from tidemark.state.encoding.codec import from_jsonable
from tidemark.state.status.job_graph import read_job_graph
from tidemark.state.store.layout import job_folder, pin_path
from tidemark.state.store.root_store import is_default
from tidemark.state.store.store import JobStore
from tidemark.web.page.document import job_page
from tidemark.web.page.facts import JobFacts, SavepointLine

CHANGES: Final = 20
"""How many of the newest changes of a spec, starts and failures a page shows."""

SAVEPOINTS: Final = 10
"""How many of the newest savepoints a page shows."""

_NO_SAVEPOINTS: Final[tuple[tuple[SavepointLine, ...], int]] = ((), 0)

T = TypeVar("T")


class PageReader:
    """Reads the pages of a store's jobs, again and again, and what does not change only once. Threads may share it.

    Args:
        root: the root store.
        launchers: by name, to probe processes.
        clock: processing time.
    """

    def __init__(self, root: JobStore, launchers: Mapping[str, Launcher], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root, self._launchers, self._clock = root, launchers, clock
        self._jobs: dict[str, _JobReader] = {}

    def page(self, job: str) -> dict[str, object]:
        """Return the document of a job's page, as plain JSON (``document.job_page``). What cannot be read is one of its problems.

        Raises:
            InvalidNameError: the name is not a job's.
            UnknownJobError: there is no such job.
            StoreError: the store cannot be reached.
        """
        name = validate_name("job", job)
        reader = self._jobs.get(name) or _JobReader(self._root, name, self._launchers, self._clock)
        facts = reader.read()
        # Only of jobs that exist, so that requests for others leave nothing behind.
        self._jobs[name] = reader
        return job_page(facts)


class _JobReader:
    """Reads one job."""

    def __init__(self, root: JobStore, job: str, launchers: Mapping[str, Launcher], clock: Clock) -> None:
        self._root, self._job, self._clock, self._folder = root, job, clock, root.at(job_folder(job))
        self._observer, self._histories = Observer(root, launchers), HistoryReader(root)
        self._savepoints = SavepointStore(root, job)
        self._lines: dict[tuple[str, int], SavepointLine | None] = {}
        self._known: dict[str, tuple[Hashable, Any]] = {}
        self._problems: list[str] = []
        self._lock = Lock()

    def read(self) -> JobFacts:
        with self._lock:
            self._problems = []
            seen, view = self._observe()
            history = self._part("history", lambda: self._histories.refresh([view])[self._job], JobHistory())
            if history.problem:
                self._problems.append(f"history: {history.problem}")
            started = (view.attempt, view.started_at, view.lineage)
            lines, count = self._part("savepoints", self._list_savepoints, _NO_SAVEPOINTS)
            return JobFacts(
                observation=seen,
                view=view,
                graph=self._part("graph", lambda: self._once("graph", started, lambda: read_job_graph(self._root, self._job)), None),
                epochs=history.epochs,
                savepoints=lines,
                savepoints_in_all=count,
                changes=self._part("changes", lambda: self._changes(view), ()),
                problems=tuple(self._problems),
                store=None if is_default(self._root) else self._root.uri,
            )

    def _observe(self) -> tuple[Observation, JobView]:
        found = job_views(self._root, (self._job,), self._observer, clock=self._clock)
        if not found:
            raise UnknownJobError(f"the store has no job {self._job!r}", fix="choose one of the jobs that it has", job=self._job)
        return found[0]

    def _changes(self, view: JobView) -> tuple[Change, ...]:
        """Return the newest changes; they are read again only if one of the numbered records that they are made of is new."""
        kinds = (f"{folder}/" for folder in (SPECS, ATTEMPTS, UPGRADES, REQUESTS, AUTOSCALER))
        listed = self._folder.list(CONTROL)
        # With its time: of a fork that was discarded and made again the records have the same numbers.
        newest = tuple(max((file for file in listed if file.path.startswith(kind)), default=None) for kind in kinds)
        key = (newest, tuple(failure.at for failure in view.failures))
        return self._once("changes", key, lambda: changes_of(self._root, self._job, CHANGES))

    def _part(self, name: str, read: Callable[[], T], otherwise: T) -> T:
        """Return a part of the page; if its file is damaged, or of a newer release, note that and return the other value."""
        try:
            return read()
        except (CorruptStoreError, FormatError) as error:
            self._problems.append(f"{name}: {error.with_job(self._job)}")
            return otherwise

    def _once(self, name: str, key: Hashable, read: Callable[[], T]) -> T:
        """Return what was read for the same key before."""
        known = self._known.get(name)
        if known is None or known[0] != key:
            known = self._known[name] = (key, read())
        found: T = known[1]
        return found

    def _list_savepoints(self) -> tuple[tuple[SavepointLine, ...], int]:
        """Return the newest savepoints, newest first, and how many there are; without the pin of a rewind that is under way."""
        newest, in_all = self._savepoints.newest_files(SAVEPOINTS)
        self._lines = {key: self._lines[key] if key in self._lines else self._line(key[0]) for key in newest}
        found = sorted((line for line in self._lines.values() if line is not None), key=lambda line: line.outline.pinned_at, reverse=True)
        return tuple(found), in_all

    def _line(self, name: str) -> SavepointLine | None:
        outline = self._savepoints.pins.outline(name)
        if outline is None:
            return None
        info = SavepointInfo() if outline.about is None else from_jsonable(SavepointInfo, outline.about, path=pin_path(name))
        return SavepointLine(outline, info)
