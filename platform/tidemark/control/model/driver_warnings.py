"""What drivers have to do without: not worth the end of a job that runs, and shown with it as long as it is so."""

from __future__ import annotations

from typing import Final

from tidemark.control.model.paths import WARNINGS, numbered
from tidemark.control.model.records import DriverWarning
from tidemark.state.store.documents import read_intact_document, write_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "driver-warning"


def write_warning(store: JobStore, job: str, warning: DriverWarning) -> None:
    """Say what an attempt's driver has to do without, over what it said before. ``store`` is the root store."""
    write_document(store.at(job_folder(job)), numbered(WARNINGS, warning.attempt), kind=KIND, value=warning)


def delete_warning(store: JobStore, job: str, attempt: int) -> None:
    """Say that an attempt's driver has all again; does nothing where nothing was said."""
    store.at(job_folder(job)).delete([numbered(WARNINGS, attempt)])


def read_warning(store: JobStore, job: str, attempt: int) -> DriverWarning | None:
    """Return what an attempt's driver has to do without; None where there is nothing, or it is damaged, since nothing depends on it.

    Raises:
        FormatError: a newer release wrote it.
    """
    return read_intact_document(store.at(job_folder(job)), numbered(WARNINGS, attempt), kind=KIND, form=DriverWarning)
