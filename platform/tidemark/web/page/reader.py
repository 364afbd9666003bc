"""Reads what the page of a job shows: a bounded number of small files, however long the job has run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from threading import Lock
from typing import Any, Final, TypeVar

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.alerts.engine.alert_store import read_alerts
from tidemark.control.alerts.model.alert_state import JobAlerts
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation, Observer
from tidemark.control.view.change_log import changes_of
from tidemark.control.view.epoch_series import HistoryReader, JobHistory
from tidemark.control.view.view_builder import damaged_view, view_of
from tidemark.errors import CorruptStoreError, FormatError, UnknownJobError
from tidemark.names import validate_name
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.rewind_journal import read_rewind
from tidemark.savepoints.model.savepoint import SavepointInfo
from tidemark.state.encoding.codec import from_jsonable
from tidemark.state.status.job_graph import read_job_graph
from tidemark.state.store.layout import LOG, job_folder, pin_path
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
        store: the root store's URI if the commands on the page need it, else None.
        clock: processing time.
    """

    def __init__(self, root: JobStore, launchers: Mapping[str, Launcher], *, store: str | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root, self._launchers, self._named, self._clock = root, launchers, store, clock
        self._jobs: dict[str, _JobReader] = {}

    def page(self, job: str) -> dict[str, object]:
        """Return the document of a job's page, as plain JSON (``document.job_page``). What cannot be read is one of its problems.

        Raises:
            InvalidNameError: the name is not a job's.
            UnknownJobError: there is no such job.
            StoreError: the store cannot be reached.
        """
        name = validate_name("job", job)
        reader = self._jobs.get(name) or _JobReader(self._root, name, self._launchers)
        facts = reader.read(self._clock.now_ms(), self._named)
        # Only of jobs that exist, so that requests for others leave nothing behind.
        self._jobs[name] = reader
        return job_page(facts)


class _JobReader:
    """Reads one job."""

    def __init__(self, root: JobStore, job: str, launchers: Mapping[str, Launcher]) -> None:
        self._root, self._job, self._folder = root, job, root.at(job_folder(job))
        self._observer, self._histories = Observer(root, launchers), HistoryReader(root)
        self._savepoints = SavepointStore(root, job)
        self._lines: dict[tuple[str, int], SavepointLine | None] = {}
        self._known: dict[str, tuple[Hashable, Any]] = {}
        self._problems: list[str] = []
        self._lock = Lock()

    def read(self, now: int, store: str | None) -> JobFacts:
        with self._lock:
            self._problems = []
            seen, view = self._observe(now, store)
            history = self._part("history", lambda: self._histories.refresh([view])[self._job], JobHistory())
            if history.problem:
                self._problems.append(f"history: {history.problem}")
            graph_key = (view.attempt, view.started_at, view.lineage)
            changes_key = (view.generation, view.attempt, tuple(failure.at for failure in view.failures))
            lines, count = self._part("savepoints", self._list_savepoints, _NO_SAVEPOINTS)
            return JobFacts(
                observation=seen,
                view=view,
                graph=self._part("graph", lambda: self._once("graph", graph_key, lambda: read_job_graph(self._root, self._job)), None),
                epochs=history.epochs,
                alerts=self._part("alerts", lambda: read_alerts(self._root, self._job).alerts, JobAlerts(self._job)),
                savepoints=lines,
                savepoints_in_all=count,
                changes=self._part(
                    "changes", lambda: self._once("changes", changes_key, lambda: changes_of(self._root, self._job, CHANGES)), ()
                ),
                problems=tuple(self._problems),
                store=store,
            )

    def _observe(self, now: int, store: str | None) -> tuple[Observation, JobView]:
        try:
            seen = self._observer.observe(self._job)
        except (CorruptStoreError, FormatError) as error:
            return Observation(self._job), damaged_view(self._job, error.with_job(self._job), now)
        if seen.generation is None and seen.driver is None and seen.damage is None and LOG not in self._folder.folders():
            raise UnknownJobError(
                f"there is no job {self._job!r} in {self._root.uri}", fix="choose one of the jobs that the store has", job=self._job
            )
        return seen, view_of(seen, now, store=store)

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
        files, rewind = self._savepoints.pins.files(), read_rewind(self._folder)
        written = [(name, at) for name, at in files.items() if rewind is None or name != rewind.pin]
        newest = sorted(written, key=lambda item: (item[1], item[0]), reverse=True)[:SAVEPOINTS]
        self._lines = {key: self._lines[key] if key in self._lines else self._line(key[0]) for key in newest}
        found = sorted((line for line in self._lines.values() if line is not None), key=lambda line: line.outline.pinned_at, reverse=True)
        return tuple(found), len(written)

    def _line(self, name: str) -> SavepointLine | None:
        outline = self._savepoints.pins.outline(name)
        if outline is None:
            return None
        info = SavepointInfo() if outline.about is None else from_jsonable(SavepointInfo, outline.about, path=pin_path(name))
        return SavepointLine(outline, info)
