"""What alert rules need from the store besides a job's view."""

from __future__ import annotations

from tidemark.control.model.view import JobView
from tidemark.state.store.layout import PINS, job_folder
from tidemark.state.store.store import JobStore


def savepoint_at(root: JobStore, view: JobView) -> int | None:
    """Return when a job's newest savepoint was taken, milliseconds; None if it has none, or no rule asks for their age.

    Raises:
        StoreError: the store cannot be reached.
    """
    if view.spec is None or view.spec.alerts.savepoint_age_ms is None:
        return None
    files = root.at(job_folder(view.job)).list(PINS)
    return max((file.last_modified_ms for file in files), default=None)
