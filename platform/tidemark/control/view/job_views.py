"""Reads jobs of a store as views: for commands, and for the REST API."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.alerts.engine.firing_alerts import read_firing_alerts
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation, Observer, job_names
from tidemark.control.view.view_builder import damaged_view, view_of
from tidemark.errors import CorruptStoreError, FormatError, UnknownJobError
from tidemark.names import validate_name
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.store.layout import LOG, job_folder
from tidemark.state.store.root_store import is_default
from tidemark.state.store.store import JobStore


def job_views(
    root: JobStore, names: Iterable[str], observer: Observer | None = None, *, clock: Clock = SYSTEM_CLOCK
) -> list[tuple[Observation, JobView]]:
    """Return observation and view of each name that is a job; a job with an unreadable file is ``damaged`` and hides no other.

    Args:
        root: the root store.
        names: names of folders of the store.
        observer: observes them; a new one by default.
        clock: processing time.
    """
    look = observer or Observer(root, launchers_here())
    named = None if is_default(root) else root.uri
    found: list[tuple[Observation, JobView]] = []
    for name in names:
        try:
            seen = look.observe(name)
        except (CorruptStoreError, FormatError) as error:
            found.append((Observation(name), damaged_view(name, error.with_job(name), clock.now_ms())))
            continue
        if seen.generation is not None or seen.driver is not None or seen.damage is not None or _has_log(root, name):
            found.append((seen, _with_alerts(root, view_of(seen, clock.now_ms(), store=named))))
    return found


def _with_alerts(root: JobStore, view: JobView) -> JobView:
    try:
        return replace(view, alerts=read_firing_alerts(root, view))
    except FormatError as error:
        # A newer release wrote them, which hides neither the job nor another one.
        return replace(view, warning="; ".join(filter(None, (view.warning, f"its alerts cannot be read: {error}"))))


def views(root: JobStore, job: str | None = None, observer: Observer | None = None) -> list[tuple[Observation, JobView]]:
    """Return observation and view of a job, or of all jobs of the store, as ``job_views`` does.

    Raises:
        UnknownJobError: there is no such job.
    """
    found = job_views(root, (validate_name("job", job),) if job else job_names(root), observer)
    if job and not found:
        raise unknown_job(job, root)
    return found


def require_known(root: JobStore, job: str) -> None:
    """Raise unless the store has a job of that name.

    Raises:
        UnknownJobError: there is no such job.
    """
    views(root, job)


def unknown_job(name: str, root: JobStore) -> UnknownJobError:
    """Return the error for an unknown job; it names the known ones."""
    known = ", ".join(view.job for _, view in views(root)) or "none"
    return UnknownJobError(f"there is no job {name!r} in {root.uri}", fix=f"name an existing job ({known}), or pass --store", job=name)


def status_document(seen: Observation, view: JobView) -> dict[str, object]:
    """Return a job's view as plain JSON, with the driver's own last status: what ``tidemark status JOB --json`` prints."""
    return {**to_jsonable(view), "driver": to_jsonable(seen.driver)}


def _has_log(root: JobStore, job: str) -> bool:
    return LOG in root.at(job_folder(job)).folders()
