"""What a driver does beside its epochs: heartbeat, status, history, retention, sweeping."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.clock import Clock
from tidemark.crashpoints import crash_point
from tidemark.errors import FencedError, StoreError, TidemarkError
from tidemark.graph.job import Job
from tidemark.state.history import HistoryWriter
from tidemark.state.joblog import DEFAULT_LEASE_MS, Driver, JobLog
from tidemark.state.progress import EpochProgress
from tidemark.state.records import EpochRecord
from tidemark.state.status import JobStatus, OutputStatus, State, write_status
from tidemark.state.store import JobStore
from tidemark.state.totals import empty_totals

logger = logging.getLogger("tidemark")

BEAT_SECONDS = DEFAULT_LEASE_MS / 1000 / 5


class Housekeeping:
    """Keeps a job's small files. Nothing here decides anything: all of it can be made anew from the job's log.

    Args:
        store: root of the job store.
        job: the job.
        term: of the driver.
        clock: for the times in the files.
    """

    def __init__(self, store: JobStore, job: Job, term: Driver, clock: Clock) -> None:
        self._store = store
        self._job = job
        self._term = term
        self._clock = clock
        self._started = clock.now_ms()
        self._history = HistoryWriter(store, job.name)
        self._record = term.head.epoch
        self._outputs: dict[str, OutputStatus] = {}

    def begin(self) -> None:
        """Write what a crash kept from being written, and say that the job runs."""
        log = JobLog(self._store.at(self._job.name), self._job.name, self._clock)
        self._history.backfill(log.epochs())
        for record in reversed(list(log.epochs())):
            self._remember(record)
        self.say("running")

    def after_epoch(self, record: EpochRecord, progress: EpochProgress) -> None:
        """Write history and status after an epoch was published."""
        self._record = record
        self._remember(record)
        self._history.append(progress)
        crash_point("history-written")
        self.say("running", progress)

    def say(self, state: State, progress: EpochProgress | None = None, error: TidemarkError | None = None) -> None:
        """Write the job's status."""
        record = self._record
        write_status(
            self._store,
            JobStatus(
                job=self._job.name,
                lineage=record.lineage if record else "",
                state=state,
                heartbeat_at=self._clock.now_ms(),
                started_at=self._started,
                code_version=record.code_version if record else "",
                last=progress or (record.progress if record else None),
                totals=record.totals if record else empty_totals(),
                outputs=self._outputs,
                error=str(error) if error else None,
                owner=self._term.owner,
            ),
        )

    def _remember(self, record: EpochRecord) -> None:
        for name, output in record.outputs.items():
            known = self._outputs.get(name)
            schema = output.schema or (known.schema if known else None)
            self._outputs[name] = OutputStatus(output.sink, output.location, schema)


@contextmanager
def beating(term: Driver) -> Iterator[threading.Event]:
    """Write the heartbeat while the block runs; the event is set when a newer driver took the job over."""
    ended, fenced = threading.Event(), threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            try:
                term.beat()
            except FencedError:
                fenced.set()
                return
            except StoreError as error:
                logger.warning("heartbeat failed, trying again: %s", error)

    thread = threading.Thread(target=beat, name="tidemark-heartbeat", daemon=True)
    thread.start()
    try:
        yield fenced
    finally:
        ended.set()
        thread.join()
