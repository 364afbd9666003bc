"""A driver's work besides its epochs: heartbeat, status, history, retention, sweeping."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from tidemark.clock import Clock
from tidemark.errors import CorruptStoreError, FencedError, StoreError, TidemarkError
from tidemark.graph.job.job import Job
from tidemark.savepoints.core.protected_versions import ProtectedVersions, ProtectedVersionsSearch, lost_error
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.savepoints.model.source_kinds import source_status
from tidemark.savepoints.model.stored_graph import graph_of
from tidemark.savepoints.restore.restore_history_retention import expire_restore_history
from tidemark.savepoints.restore.shared_files import release_unused
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.sink_sweep import sweep_outputs
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.state.gc.retention import retire
from tidemark.state.gc.sweep import kept_epochs, sweep
from tidemark.state.log.joblog import DEFAULT_LEASE_MS, Driver
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord
from tidemark.state.log.totals import empty_totals
from tidemark.state.status.deferred_work import DeferredWork
from tidemark.state.status.driver_load import EpochSample, Load, LoadGauge
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.job_graph import write_job_graph
from tidemark.state.status.resources import Resources, StoreUse
from tidemark.state.status.status import JobStatus, OutputStatus, State, read_status, write_status
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

BEAT_SECONDS = DEFAULT_LEASE_MS / 1000 / 5

SWEEP_INTERVAL_MS: Final = 5 * 60 * 1000
SWEEP_EPOCHS: Final = 100
"""A sweep reads all retained records, so it runs after so much time or so many epochs, whichever is first."""

RESOURCES_INTERVAL_MS: Final = 30 * 1000
"""How old the resources in the status may become during a long epoch, or a long pause; every epoch writes them, too."""

RETENTION_SLACK: Final = 10
"""Old records accumulate up to so many, and to a tenth of those retained, before they are deleted together."""


class Housekeeping:
    """Maintains a job's status, history and retained files. Nothing depends on them: all can be rebuilt from the job's log.

    Args:
        store: root of the job store.
        job: the job.
        term: of the driver.
        sinks: of the job's outputs, by name.
        clock: for the times in the files.

    Attributes:
        gauge: of the driver's load, where it runs continuously.
        parallelism: of the current epoch.
    """

    def __init__(self, store: JobStore, job: Job, term: Driver, *, sinks: Mapping[str, BoundSink], clock: Clock) -> None:
        self._store = store
        self._job = job
        self._term = term
        self._sinks = sinks
        self._lineage = ""
        self._clock = clock
        self._swept_at = 0
        self._epochs_since_sweep = 0
        self._started = clock.now_ms()
        self._history = HistoryWriter(store, job.name)
        self._record = term.head.epoch
        self._finished: frozenset[tuple[str, int]] = frozenset()
        self._outputs: dict[str, OutputStatus] = {}
        self._sources = {name: source_status(node) for name, node in job.sources.items()}
        self._status: JobStatus | None = None
        self._deferred = DeferredWork(clock)
        self._protected = ProtectedVersionsSearch(SavepointStore(store, job.name, clock))
        self._resources: Resources | None = None
        self._store_use: StoreUse | None = None
        self._stage_ms = Counter[str]()
        self._writing = threading.Lock()
        self.gauge: LoadGauge | None = None
        self.parallelism = 0

    def begin(self, head: EpochRecord | None, lineage: str, finished: Collection[tuple[str, int]] = ()) -> None:
        """Write the history that a crash left unwritten and the job's graph, set the status to running, and sweep what the crash left.

        Args:
            head: the epoch that the driver resumes from.
            lineage: of the epochs to come.
            finished: lineage and number of epochs whose publication this start has finished.

        Raises:
            FencedError: a newer driver has begun; nothing was written.
        """
        log = self._term.log
        self._record, self._lineage = head, lineage
        self._term.confirm()
        self._history.backfill(log.epochs(), finished)
        known = self._known_status()
        if known is not None:
            self._deferred = DeferredWork(self._clock, known.put_off)
            self._outputs.update(known.outputs)
            if self._record is not None:
                self._remember(self._record)
        else:
            for record in reversed(list(log.epochs())):
                self._remember(record)
        self._finished = frozenset(finished)
        write_job_graph(self._store, graph_of(self._job))
        self._write("running")
        self._sweep()

    def after_epoch(self, record: EpochRecord, progress: EpochProgress) -> None:
        """Write history and status after an epoch was published; retire old epochs, and sweep when due.

        Raises:
            FencedError: a newer driver has begun; history and status belong to it.
        """
        self._record = record
        self._remember(record)
        with self._writing:
            self._stage_ms.update(progress.stages)
        self._term.confirm()
        self._history.append(progress)
        self._write("running", progress, load=self._load(progress))
        kept = self._job.retained_epochs
        with self._deferred.deferring_failures("retention"):
            retire(self._term, retained_epochs=kept, slack=min(RETENTION_SLACK, max(1, kept // RETENTION_SLACK)))
        self._epochs_since_sweep += 1
        if self._clock.now_ms() - self._swept_at >= SWEEP_INTERVAL_MS or self._epochs_since_sweep >= SWEEP_EPOCHS:
            self._sweep()

    def write_status(self, state: State, error: TidemarkError | None = None) -> None:
        """Write the job's status; a fenced driver leaves it to the newer one."""
        try:
            self._term.confirm()
        except FencedError as fenced:
            logger.info("the status %r is not written: %s", state, fenced)
            return
        self._write(state, error=error)

    def report_backlog(self) -> None:
        """Write the status again where the backlog has changed; called between epochs, since the next may be long in coming.

        Raises:
            FencedError: a newer driver has begun; the status belongs to it.
        """
        if self.gauge is None or self._status is None or self._status.load is None:
            return
        load = replace(self._status.load, waiting=self.gauge.waiting, catch_up_ms=self.gauge.catch_up_ms, work=self.gauge.work)
        if load == self._status.load:
            return
        self._term.confirm()
        self._change(lambda status: replace(status, load=load))

    def report_resources(self, found: Resources) -> None:
        """Take a measurement of the driver's resources; write it where that in the status is old. Called in any thread."""
        with self._writing:
            self._resources = replace(found, store=self._store_use, stage_ms=dict(self._stage_ms))
            status = self._status
        if status is None or status.state != "running":
            return
        if status.resources is not None and 0 <= found.at - status.resources.at < RESOURCES_INTERVAL_MS:
            return
        # While the other thread commits an epoch, its own record looks like a newer driver's.
        with suppress(FencedError, StoreError):
            self._term.confirm()
            self._change(lambda status: replace(status, resources=self._resources))

    def _load(self, progress: EpochProgress) -> Load | None:
        if self.gauge is None:
            return None
        ended = round(self._clock.monotonic() * 1000)
        read = {name: source.rows_read for name, source in progress.sources.items()}
        sample = EpochSample(ended - progress.duration_ms, ended, progress.rows_in, progress.rows_out, read)
        return self.gauge.add(sample, parallelism=self.parallelism)

    def _write(
        self, state: State, progress: EpochProgress | None = None, *, error: TidemarkError | None = None, load: Load | None = None
    ) -> None:
        record = self._record
        status = JobStatus(
            job=self._job.name,
            lineage=record.lineage if record else "",
            state=state,
            heartbeat_at=self._clock.now_ms(),
            started_at=self._started,
            code_version=record.code_version if record else "",
            last=progress or self._newest(),
            totals=record.totals if record else empty_totals(),
            outputs=self._outputs,
            owner=self._term.owner,
            load=load,
            put_off=self._deferred.all,
            sources=self._sources,
            resources=self._resources,
        )
        with self._writing:
            self._status = status.with_error(error)
            write_status(self._store, self._status)

    def _change(self, change: Callable[[JobStatus], JobStatus]) -> None:
        """Change the status and write it; nothing is written before the first."""
        with self._writing:
            if self._status is not None:
                self._status = change(self._status)
                write_status(self._store, self._status)

    def _newest(self) -> EpochProgress | None:
        """Return the newest epoch's progress, marked if this start has finished its publication."""
        if self._record is None:
            return None
        finished = (self._record.lineage, self._record.epoch) in self._finished
        return replace(self._record.progress, finished_at_start=True) if finished else self._record.progress

    def _sweep(self) -> None:
        self._swept_at, self._epochs_since_sweep = self._clock.now_ms(), 0
        known = self._deferred.all
        with self._deferred.deferring_failures("the sweep"):
            self._expire_savepoints()
            kept = kept_epochs(self._term.log)
            release_unused(self._term, kept)
            expire_restore_history(self._term, kept)
            swept = sweep(self._term, kept=kept)
            self._store_use = StoreUse(swept.files, swept.bytes, self._clock.now_ms())
            sweep_outputs(self._term, self._sinks, self._lineage, kept=kept)
        if self._status is not None and self._deferred.all != known:
            # The next epoch may be long in coming.
            self._change(lambda status: replace(status, put_off=self._deferred.all))

    def _expire_savepoints(self) -> None:
        """Retire savepoints that retention expires, and protect the table versions that the others need."""
        savepoints = SavepointStore(self._store, self._job.name, self._clock)
        savepoints.retire()
        left = savepoints.all_protected()
        with self._deferred.deferring_failures("keeping all that savepoints need of tables"):
            self._protect_versions(left)

    def _protect_versions(self, savepoints: Sequence[Savepoint]) -> None:
        """Tell each table which versions savepoints protect, then raise for versions already lost. Until then nothing old is deleted."""
        tables = [bound.sink for bound in self._sinks.values() if isinstance(bound.sink, DeltaSink)]
        for sink in tables:
            sink.protect_versions(None)
        lost: list[str] = []
        for sink in tables:
            protected = self._protected.of(sink.location, savepoints, self._record) if self._record else ProtectedVersions(frozenset())
            sink.protect_versions(protected.versions)
            lost += protected.lost
        if lost:
            raise lost_error(self._job.name, lost)

    def _known_status(self) -> JobStatus | None:
        try:
            return read_status(self._store, self._job.name)
        except CorruptStoreError as error:
            logger.warning("the status is rebuilt: %s", error)
            return None

    def _remember(self, record: EpochRecord) -> None:
        for name, output in record.outputs.items():
            known = self._outputs.get(name)
            schema = output.schema or (known.schema if known else None)
            self._outputs[name] = OutputStatus(output.sink, output.location, schema, output.repairs)


@contextmanager
def beating(term: Driver) -> Iterator[threading.Event]:
    """Write the heartbeat while the block runs; the event is set when a newer driver takes the job over."""
    ended, fenced = threading.Event(), threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            try:
                term.beat()
            except FencedError:
                fenced.set()
                return
            except StoreError as error:
                logger.warning("heartbeat failed, retrying: %s", error)

    thread = threading.Thread(target=beat, name="tidemark-heartbeat", daemon=True)
    thread.start()
    try:
        yield fenced
    finally:
        ended.set()
        thread.join()
