"""What checks are made on: a run's report, the job's small files, and the tables it wrote."""

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
"""Epochs of history that a report keeps: as many as the picture shows without rolling up much."""


@dataclass(frozen=True)
class CheckContext:
    """What is known of a job when its checks are made.

    Args:
        report: the run just made; or, for checks on their own, the epochs of the job's history.
        status: the job's status; none where it never ran.
        before: how far an output's table had come before the run, by output, for checks that look at the run's rows only.
        store: where the job stores are.
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
            SinkError: its sink keeps no rows that could be read back.
        """
        return table_of(stream, self.status)


def table_of(stream: StreamData, status: JobStatus | None) -> OutputTable:
    """Return the table of an output, where the status says it is or else as declared."""
    if stream.output is None:
        raise TypeError(f"{stream.name} is a source and has no table")
    known = status.outputs.get(stream.name) if status is not None else None
    return OutputTable.of(stream.output, location=known.location if known is not None else None, job=stream.job.name)


def report_of_run(job: Job, store: str, epochs: Sequence[EpochProgress], *, lineage: str, head: EpochProgress | None) -> RunReport:
    """Return the report of a run just made, completed from the job's small files."""
    root = JobStore.open(store)
    status = read_status(root, job.name)
    try:
        history = tuple(read_history(root, job.name, HISTORY_LIMIT))
    except CorruptStoreError as error:
        # The run is done, and what it did is known without: only the picture has less to show.
        logger.warning("%s: the history is left out of the report: %s", job.name, error)
        history = tuple(epochs)
    report = RunReport(job=job, lineage=lineage, epochs=tuple(epochs), head=head, history=history)
    return report if status is None else RunReport(job, lineage, tuple(epochs), head, history, status.totals)


def stored_context(job: Job, store: str) -> CheckContext:
    """Return what the job's small files say, for checks that are made on their own.

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
