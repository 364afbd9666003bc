"""Where a job's alerts are remembered: numbered records in the job's folder, each created once, the newest counts.

A record holds all: what people were told, and the messages that some receiver has not taken yet. So a message and the knowledge
that it is to be sent are stored at once, before it is sent, and it is gone only after its receivers took it: it may be sent twice,
and is never lost. Of two processes that continue after the same record one finds the next one taken, reads it, and decides again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from tidemark.control.alerts.model.alert_state import JobAlerts, LateWindow
from tidemark.control.model.paths import number_in, numbered
from tidemark.errors import CorruptStoreError
from tidemark.state.store.documents import create_document, read_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

ALERTS: Final = "control/alerts"
KIND: Final = "alerts"
_KEPT: Final = 3
_LOG = logging.getLogger("tidemark.alerts")


@dataclass(frozen=True)
class AlertRecord:
    """A job's alerts as they are stored: the number of the record, 0 for none, and what it says."""

    number: int
    alerts: JobAlerts


def read_alerts(root: JobStore, job: str) -> AlertRecord:
    """Return what is remembered of a job; nothing where there is nothing, or where it is damaged: it is then evaluated again.

    Raises:
        FormatError: a newer release wrote it.
        StoreError: the store cannot be reached.
    """
    folder = root.at(job_folder(job))
    numbers = _numbers(folder)
    if not numbers:
        return AlertRecord(0, JobAlerts(job))
    try:
        found = read_document(folder, numbered(ALERTS, numbers[-1]), kind=KIND, form=JobAlerts)
    except CorruptStoreError as error:
        _LOG.warning("%s: the state of its alerts is evaluated again: %s", job, error)
        found = None
    return AlertRecord(numbers[-1], found or JobAlerts(job))


def write_alerts(root: JobStore, record: AlertRecord, alerts: JobAlerts) -> AlertRecord | None:
    """Store what comes after a page and return it as the new page; None where another process was faster.

    Raises:
        StoreError: the store cannot be reached; it may be stored or not, so read it again.
    """
    folder = root.at(job_folder(alerts.job))
    number = record.number + 1
    if not create_document(folder, numbered(ALERTS, number), kind=KIND, value=alerts):
        return None
    numbers = _numbers(folder)
    if numbers and numbers[-1] > number:
        # It was suspended while others continued, and deleted the record that it has just written again.
        folder.delete([numbered(ALERTS, number)])
        return None
    folder.delete(numbered(ALERTS, old) for old in numbers[:-_KEPT])
    return AlertRecord(number, alerts)


def worth_storing(before: JobAlerts, after: JobAlerts) -> bool:
    """Say whether a difference matters to who comes next: where late rows are counted from does only once there are some."""
    if replace(before, late=None) != replace(after, late=None):
        return True
    return _late_rows(before.late) != _late_rows(after.late)


def _late_rows(window: LateWindow | None) -> tuple[str, int, int] | None:
    if window is None or not window.newer.late:
        return None
    return window.lineage, window.older.late, window.newer.late


def _numbers(folder: JobStore) -> tuple[int, ...]:
    return tuple(sorted(number for file in folder.list(ALERTS) if (number := number_in(ALERTS, file.path)) is not None))
