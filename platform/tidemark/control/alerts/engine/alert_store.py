"""Stores a job's alerts: numbered records in the job's folder, each created once; the newest counts.

A record contains the notified conditions and the messages that a receiver has not accepted yet. So a message and its pending delivery
are stored together, before it is sent, and it is removed only after its receivers have accepted it: it may be sent twice, and is never
lost. If two processes continue from the same record, one finds the next one taken, reads it, and decides again.
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
    """A job's stored alerts, with the number of the record, 0 for none."""

    number: int
    alerts: JobAlerts


def read_alerts(root: JobStore, job: str) -> AlertRecord:
    """Return a job's stored alerts; empty ones if there are none, or the record is damaged: they are then evaluated again.

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
        _LOG.warning("%s: its stored alerts are damaged and evaluated again: %s", job, error)
        found = None
    return AlertRecord(numbers[-1], found or JobAlerts(job))


def write_alerts(root: JobStore, record: AlertRecord, alerts: JobAlerts) -> AlertRecord | None:
    """Store the alerts that follow a record and return the new record; None if another process was faster.

    Raises:
        StoreError: the store cannot be reached; the record may be stored or not, so read it again.
    """
    folder = root.at(job_folder(alerts.job))
    number = record.number + 1
    if not create_document(folder, numbered(ALERTS, number), kind=KIND, value=alerts):
        return None
    numbers = _numbers(folder)
    if numbers and numbers[-1] > number:
        # This process was suspended while others continued, and deleted the record that it has just written again.
        folder.delete([numbered(ALERTS, number)])
        return None
    folder.delete(numbered(ALERTS, old) for old in numbers[:-_KEPT])
    return AlertRecord(number, alerts)


def worth_storing(before: JobAlerts, after: JobAlerts) -> bool:
    """Return whether a difference has to be stored: the window of late rows only once it contains some."""
    if replace(before, late=None) != replace(after, late=None):
        return True
    return _late_rows(before.late) != _late_rows(after.late)


def _late_rows(window: LateWindow | None) -> tuple[str, int, int] | None:
    if window is None or not window.newer.late:
        return None
    return window.lineage, window.older.late, window.newer.late


def _numbers(folder: JobStore) -> tuple[int, ...]:
    return tuple(sorted(number for file in folder.list(ALERTS) if (number := number_in(ALERTS, file.path)) is not None))
