"""Warnings of drivers: a missing feature that does not end a running job, shown with the job while it lasts."""

from __future__ import annotations

from typing import Final

from tidemark.control.model.paths import WARNINGS, numbered
from tidemark.control.model.records import DriverWarning
from tidemark.state.store.documents import read_intact_document, write_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "driver-warning"


def write_warning(store: JobStore, job: str, warning: DriverWarning) -> None:
    """Write the warning of an attempt's driver, replacing the previous one. ``store`` is the root store."""
    write_document(store.at(job_folder(job)), numbered(WARNINGS, warning.attempt), kind=KIND, value=warning)


def delete_warning(store: JobStore, job: str, attempt: int) -> None:
    """Delete the warning of an attempt's driver, if there is one."""
    store.at(job_folder(job)).delete([numbered(WARNINGS, attempt)])


def read_warning(store: JobStore, job: str, attempt: int) -> DriverWarning | None:
    """Return the warning of an attempt's driver; None if there is none or it is damaged, since nothing depends on it.

    Raises:
        FormatError: a newer release wrote it.
    """
    return read_intact_document(store.at(job_folder(job)), numbered(WARNINGS, attempt), kind=KIND, form=DriverWarning)
