"""The input of checks: a run's report, the job's small files, and the tables it wrote."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.assets.report.output_table import OutputTable, TableState
from tidemark.assets.report.run_report import RunReport
from tidemark.assets.streams.job_streams import StreamData
from tidemark.errors import CorruptStoreError
from tidemark.state import JobStatus, JobStore, read_history, read_status

if TYPE_CHECKING:
    from tidemark.graph import Job
    from tidemark.state import EpochProgress

logger = logging.getLogger("tidemark")

HISTORY_LIMIT = 200
"""Epochs of history in a report: as many as the chart shows without much aggregation."""


@dataclass(frozen=True)
class CheckContext:
    """The input of a job's checks.

    Args:
        report: the run; or, for checks without a run, the epochs of the job's history.
        status: the job's status; None if it never ran.
        before: the state of an output's table before the run, by output, for checks on the run's rows only.
        store: location of the job stores.
    """

    report: RunReport
    status: JobStatus | None
    before: Mapping[str, TableState] = field(default_factory=dict)
    store: str = ""

    @property
    def job(self) -> Job:
        """The job."""
        return self.report.job

    def table(self, stream: StreamData) -> OutputTable:
        """Return the table of an output.

        Raises:
            SinkError: its sink keeps no rows that can be read.
        """
        return table_of(stream, self.status)


def table_of(stream: StreamData, status: JobStatus | None) -> OutputTable:
    """Return the table of an output, at its location by the status, else as declared."""
    if stream.output is None:
        raise TypeError(f"{stream.name} is a source and has no table")
    known = status.outputs.get(stream.name) if status is not None else None
    return OutputTable.of(stream.output, location=known.location if known is not None else None, job=stream.job.name)


def report_of_run(job: Job, store: str, epochs: Sequence[EpochProgress], *, lineage: str, head: EpochProgress | None) -> RunReport:
    """Return the report of a run, completed from the job's small files."""
    root = JobStore.open(store)
    status = read_status(root, job.name)
    try:
        history = tuple(read_history(root, job.name, HISTORY_LIMIT))
    except CorruptStoreError as error:
        # The run is done and its epochs are known: only the chart shows less.
        logger.warning("%s: the history is left out of the report: %s", job.name, error)
        history = tuple(epochs)
    report = RunReport(job=job, lineage=lineage, epochs=tuple(epochs), head=head, history=history)
    return report if status is None else RunReport(job, lineage, tuple(epochs), head, history, status.totals)


def stored_context(job: Job, store: str) -> CheckContext:
    """Return a check context from the job's small files, for checks without a run.

    The report's epochs are those of the newest lineage in the history.
    """
    root = JobStore.open(store)
    status = read_status(root, job.name)
    history = tuple(read_history(root, job.name, HISTORY_LIMIT))
    head = history[-1] if history else None
    lineage = status.lineage if status is not None else ""
    epochs = tuple(epoch for epoch in history if epoch.lineage == lineage)
    report = RunReport(job=job, lineage=lineage, epochs=epochs, head=head, history=history)
    return CheckContext(report if status is None else RunReport(job, lineage, epochs, head, history, status.totals), status, store=store)
