"""The driver of a job: takes the job over, rebuilds Spark's checkpoint, runs epochs, commits and publishes them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tidemark.clock import Clock
from tidemark.crashpoints import crash_point
from tidemark.errors import FencedError, StoreError, TidemarkError
from tidemark.graph.job.code_version import code_version
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.operators.registry import encode
from tidemark.savepoints.model.restore import Restore
from tidemark.semantics.watermarks.event_time import epoch_processing_time
from tidemark.semantics.watermarks.watermarks import SourceState, read_to_end
from tidemark.spark.env.session import spark_jobs
from tidemark.spark.epoch.epoch import EpochRun
from tidemark.spark.epoch.epoch_plan import Checkpoint, EpochPlan
from tidemark.spark.epoch.progress_builder import build_progress
from tidemark.spark.epoch.runtime_context import RuntimeContext
from tidemark.spark.epoch.topology import build_topology
from tidemark.spark.loop.compatibility import ensure_compatible, last_start_was_rejected
from tidemark.spark.loop.deadlines import next_deadline
from tidemark.spark.loop.empty_tables import make_tables
from tidemark.spark.loop.error_translation import translate
from tidemark.spark.loop.housekeeping import Housekeeping
from tidemark.spark.loop.missing_epochs import with_positions, with_repairs
from tidemark.spark.loop.recovery import Recovery
from tidemark.spark.operators.registry.runtimes import runtimes_of
from tidemark.spark.sinks.publication import publish
from tidemark.spark.sinks.sinks import bind_sinks, require_not_ahead
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sources.backlog import FilesRead
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.epoch_input import EpochInput, committed_batch, input_of_batch
from tidemark.spark.sources.intake_limits import limited
from tidemark.spark.sources.planning.epoch_planner import EpochPlanner, needs_no_query
from tidemark.spark.sources.planning.query_topics import QueryTopics
from tidemark.spark.sources.planning.source_planner import PlannedJob
from tidemark.spark.sources.record_texts import RecordTexts
from tidemark.spark.sources.requested_intake import IntakeShare, RequestedIntake
from tidemark.spark.sources.source_ends import filled, maybe_backlogged, with_malformed_rows
from tidemark.spark.sources.sources import check_sources, open_sources, rows_of_epoch
from tidemark.spark.state_api.schema_probe import port_types, prepare_session
from tidemark.state.log.epoch_intent import EpochIntent, read_intent, write_intent
from tidemark.state.log.joblog import Driver
from tidemark.state.log.offset_log import positions
from tidemark.state.log.progress import EpochProgress, MissingEpochs, OutputRepair
from tidemark.state.log.records import EpochRecord
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.status.driver_load import LoadGauge
from tidemark.state.status.status import State
from tidemark.state.store.layout import STATE
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tidemark")


class JobDriver:
    """Runs a job's epochs in one process, under one term of the job's log.

    Args:
        job: what to run.
        spark: session to run in.
        store: root of the job store.
        term: right to append to the job's log.
        clock: processing time.
        on_epoch: called after each epoch that was published.
        restore: the savepoint to resume from.
        parallelism: called before each epoch; None uses the job's own.
        missing_epochs: how to treat epochs that an output's place no longer holds; None raises.
        on_stage: called with the name of each stage of the start as it begins.
    """

    def __init__(
        self,
        job: Job,
        *,
        spark: SparkSession,
        store: JobStore,
        term: Driver,
        clock: Clock,
        on_epoch: Callable[[EpochProgress], None],
        restore: Restore | None = None,
        parallelism: Callable[[], int | None] | None = None,
        missing_epochs: MissingEpochs | None = None,
        on_stage: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.job = job
        self.head = term.head.epoch
        self.activity, self.session = term.activity, spark
        self._root = store
        self._store = store.at(job.name)
        self._elements = self._store.at("elements")
        self._term = term
        self._clock = clock
        self._on_epoch = on_epoch
        self._restore = restore
        self._parallelism = parallelism
        self._missing_epochs = missing_epochs
        self._repairs: Mapping[str, OutputRepair] = {}
        self._on_stage = on_stage
        self._topology = build_topology(job.outputs)
        self._owner = SinkOwner.of(term)
        self._context = RuntimeContext(
            store=self._store,
            topology=self._topology,
            runtimes=runtimes_of(self._topology.operators, job=job.name),
            definitions={self._topology.name(node): encode(node) for node in self._topology.operators},
            sinks=bind_sinks(job.outputs, self._owner),
            clock=clock,
            port_types=cache(lambda: port_types(self.session, job, self._elements)),
        )
        self._version = code_version(job)
        self.checkpoint = SparkCheckpoint(self._store, term.term)
        self._shift = 0
        self._planned: EpochIntent | None = None
        self._may_have_unread: Mapping[str, SourceState] = {}
        self._sources = tuple(map(limited, self._topology.sources))
        self._query_topics = QueryTopics(spark, self._sources)
        self._intake: IntakeShare = RequestedIntake()
        self.files: Mapping[str, Sequence[str]] = {}
        self.files_read = FilesRead()
        self._housekeeping = Housekeeping(store, job, term, sinks=self._context.sinks, clock=clock)
        self.report_resources = self._housekeeping.report_resources
        self.lock = threading.RLock()

    def prepare(self) -> None:
        """Find the epoch to resume from, publish it if a crash prevented that (``Recovery.resume_point``), and fill Spark's checkpoint.

        Repairs of epochs that an output's place had lost are recorded by an epoch without input.

        Raises:
            CorruptStoreError: an output has epochs that the log does not know.
            MissingEpochsError: an output's place no longer holds what was published to it.
        """
        rejected = last_start_was_rejected(self._root, self.job.name)
        recovery = Recovery(
            root=self._root,
            term=self._term,
            sinks=self._context.sinks,
            sources=frozenset(source.name for source in self._topology.sources),
            uids=frozenset(self._context.definitions),
            migrate=lambda record, columns: ensure_compatible(self.session, self._store, record, self.job, columns=columns, force=rejected),
            missing_epochs=self._missing_epochs,
        )
        self.head = recovery.resume_point(self._restore)
        require_not_ahead(self._context.sinks, self.lineage, self.next_epoch - 1)
        self._planned = read_intent(self._store)
        self._on_stage("checkpoint")
        prepare_session(self.session, self.job, self._elements, self._context.runtimes)
        make_tables(self.session, self.job, self._elements, self._context.sinks, head=self.head, version=self._version)
        self._seed()
        self._housekeeping.begin(self.head, self.lineage, recovery.finished)
        self._on_stage("first epoch")
        self._repairs = recovery.repairs
        if self.head is not None and self._repairs:
            # At the head's time, so that no source becomes idle and no other deadline becomes due.
            self.run_without_input(at=self.head.processing_time, end_of_input=self.ended)

    def run_on(self, gauge: LoadGauge, intake: IntakeShare | None) -> Callable[[], None]:
        """Prepare for a continuous run: the status shows the load, the intake may change; returns what to call when the backlog changes."""
        self._housekeeping.gauge, self._intake = gauge, intake or self._intake
        self.files_read = FilesRead(self._topology.sources, self.checkpoint.files_read)
        return self._housekeeping.report_backlog

    def prepare_again(self) -> None:
        """Fill a new Spark checkpoint from the newest epoch, for another query of the same run; called after the earlier one has ended."""
        self.checkpoint.close()
        self.checkpoint = SparkCheckpoint(self._store, self._term.term)
        self._seed()

    def _seed(self) -> None:
        self._shift = (self.head.epoch + 1 if self.head else 0) - self.checkpoint.seed(self.head)
        crash_point("checkpoint-seeded")

    def streaming(self) -> DataFrame:
        """Return all sources as one streaming DataFrame, with the current bounds of an epoch's intake."""
        return open_sources(self.session, self._limit_intake(), self._elements, ordered=self._ordered, offsets=self._offsets)

    def _limit_intake(self) -> tuple[SourceNode, ...]:
        self._sources = tuple(limited(source, self._intake.share) for source in self._topology.sources)
        return self._sources

    @property
    def _offsets(self) -> str:
        return self.head.offsets if self.head else ""

    @property
    def _ordered(self) -> frozenset[str]:
        return frozenset(source.name for source in self._topology.sources if id(source) in self._topology.ordered)

    @property
    def lineage(self) -> str:
        """The lineage of the epochs to come."""
        return self.head.lineage if self.head else self._term.log.origin()

    @property
    def next_epoch(self) -> int:
        """The number of the next epoch."""
        return self.head.epoch + 1 if self.head else 0

    def run_batch(self, batch: DataFrame, number: int, *, polled_at: int | None = None) -> None:
        """Run the epoch of a Spark batch, in the query's thread; one that was committed already is only published again.

        Args:
            batch: its rows.
            number: Spark's.
            polled_at: the processing time at which Spark polled the sources, None for just now.

        Raises:
            OffsetMismatchError: the batch was committed with other offsets.
        """
        with self.lock, self.activity.epoch(self.now()):
            offsets = self.checkpoint.offsets(number)
            epoch = number + self._shift
            if self.head is not None and epoch <= self.head.epoch:
                publish(committed_batch(self.head, epoch, offsets, job=self.job.name), self._context.sinks, owner=self._owner)
                return
            taken = input_of_batch(self.checkpoint, self._topology.sources, offsets=offsets, before=self._offsets, polled_at=polled_at)
            self._run(batch.sparkSession, self._query_topics.noted(taken, self.head), batch, at=self.now())

    @property
    def plans_epochs(self) -> bool:
        """Whether this run's epochs can be planned without a query: of files that no query of Spark's writes, and of Kafka."""
        return needs_no_query(self.session, self._topology.sources)

    def planner(self) -> EpochPlanner:
        """Return what plans this run's epochs, if it ``plans_epochs``; raises as ``streaming`` does."""
        check_sources(self.session, self._limit_intake(), self._elements, ordered=self._ordered, offsets=self._offsets)
        job = PlannedJob.of(self.job.name, self._store, self.lineage, self.next_epoch, self._planned)
        return EpochPlanner(self.session, self._topology.sources, job, checkpoint=self.checkpoint, head=self.head)

    def run_planned(self, planner: EpochPlanner, *, polled_at: int) -> None:
        """Run the next epoch that a planner plans, with the current bounds of an epoch's intake."""
        with self.lock, self.activity.epoch(self.now()):
            taken = planner.plan(self._offsets, self._limit_intake(), polled_at=polled_at)
            self._run(self.session, taken, at=self.now())
            planner.committed(self._offsets)

    def run_without_input(self, *, at: int, end_of_input: bool = False) -> None:
        """Run an epoch that reads nothing: a deadline is due, or the input has ended for good.

        Args:
            at: a processing time at which certainly no input was waiting; the epoch's, unless the one before was later.
            end_of_input: whether the input has ended for good.
        """
        with self.lock, self.activity.epoch(self.now()):
            self._shift += 1
            taken = EpochInput(self._offsets, now=positions(self._offsets), polled_at=at)
            self._run(self.session, taken, at=at, end_of_input=end_of_input)

    @property
    def parallelism(self) -> int:
        """Number of shuffle partitions of the next epoch."""
        wanted = self._parallelism() if self._parallelism is not None else None
        return wanted or self.job.parallelism or self.session.sparkContext.defaultParallelism

    def now(self) -> int:
        """Return the clock's time, milliseconds."""
        return self._clock.now_ms()

    def elapsed(self) -> int:
        """Return monotonic milliseconds, for measuring durations."""
        return round(self._clock.monotonic() * 1000)

    def next_deadline(self) -> int | None:
        """Return the processing time at which an epoch is due even without input, None for never."""
        return next_deadline(self._topology, self._context.runtimes, self.head) if self.head is not None else None

    @property
    def ended(self) -> bool:
        """Whether the newest epoch has ended the input for good."""
        return self.head is not None and self.head.end_of_input

    @property
    def may_have_unread_input(self) -> bool:
        """Whether the newest epoch may have left input unread, as when it took as much of a source as it may."""
        return bool(self._may_have_unread)

    def read_to_end(self) -> bool:
        """Note that the newest epoch read all available input; returns whether that changes a source's state. Called under the lock."""
        if self.head is None or not self._may_have_unread:
            return False
        known = {name: read_to_end(before, self.head.sources[name]) for name, before in self._may_have_unread.items()}
        self._may_have_unread = {}
        differs = any(state != self.head.sources[name] for name, state in known.items())
        self.head = replace(self.head, sources={**self.head.sources, **known})
        return differs

    def translate_error(self, error: Exception) -> TidemarkError:
        """Return the error to raise for one that ended the current epoch."""
        state = self._store.location.joined(STATE).path
        return translate(error, job=self.job.name, epoch=self.next_epoch, state=state, nodes=self._topology.nodes)

    def write_status(self, state: State, error: BaseException | None = None) -> None:
        """Write the job's status; a fenced driver leaves it to the one that fenced it."""
        if isinstance(error, FencedError):
            return
        with contextlib.suppress(StoreError):
            self._housekeeping.write_status(state, error=error if isinstance(error, TidemarkError) else None)

    def close(self) -> None:
        """Stop the threads and remove the local checkpoint."""
        self._context.close()
        self._query_topics.close()
        self.checkpoint.close()

    def _plan(self, session: SparkSession, taken: EpochInput, batch: DataFrame | None, at: int, *, end_of_input: bool) -> EpochPlan:
        """Return the epoch's plan; an epoch that a crash ended runs again with the processing time that it had."""
        before, sources = self.head, self._topology.sources
        time = epoch_processing_time(before.processing_time if before else None, at)
        outline = EpochPlan(
            self.next_epoch, self.lineage, time, Checkpoint.after(before, sources), batches={}, ends={}, end_of_input=end_of_input
        )
        intent = EpochIntent(self.lineage, outline.epoch, taken.digest(end_of_input=end_of_input), time)
        if not intent.replays(self._planned):
            self._planned = replace(intent, tables=self._context.plan_tables(session, outline), inputs=taken.copied)
            write_intent(self._store, self._planned)
        intent = self._planned or intent
        return replace(
            outline,
            processing_time=intent.processing_time,
            tables=intent.tables,
            batches=rows_of_epoch(session, sources, taken, ordered=self._ordered, few_tasks=self._context.native, batch=batch),
            ends={source.name: taken.end(session, source, anyway=self._intake.adapts) for source in self._sources},
            strict=with_malformed_rows(before),
            texts={source.name: RecordTexts(session, source, taken.files.get(source.name, ())) for source in self._sources},
        )

    def _run(
        self, session: SparkSession, taken: EpochInput, batch: DataFrame | None = None, *, at: int, end_of_input: bool = False
    ) -> None:
        begun, before = self._clock.monotonic(), self.head
        self._housekeeping.parallelism = self.parallelism
        session.conf.set("spark.sql.shuffle.partitions", str(self._housekeeping.parallelism))
        jobs_before = spark_jobs(session)
        plan = self._plan(session, taken, batch, at=at, end_of_input=end_of_input)
        crash_point("epoch-planned")
        run = EpochRun(self._context, session, plan)
        run.execute()
        logs = self.checkpoint.save_source_logs() or (before.source_logs if before else {})
        crash_point("source-log-saved")
        took, jobs = round((self._clock.monotonic() - begun) * 1000), spark_jobs(session) - jobs_before
        progress = with_repairs(build_progress(run, self.job.name, duration_ms=took, spark_jobs=jobs), self._repairs)
        record = EpochRecord(
            job=self.job.name,
            lineage=self.lineage,
            parent=before.parent if before else None,
            term=self._term.term,
            epoch=plan.epoch,
            processing_time=plan.processing_time,
            offsets=taken.offsets,
            progress=progress,
            source_logs=logs,
            sources=run.sources,
            operators={run.topology.name(node): run.operators[id(node)].snapshot() for node in run.topology.operators},
            outputs=with_positions(run.outputs, self._context.sinks, before, self._repairs),
            totals=add_epoch(before.totals if before else empty_totals(), progress),
            code_version=self._version,
            end_of_input=end_of_input,
            restored=before.restored if before else None,
            topics=taken.topics_after(before),
        )
        self._commit(record, begun)
        self._repairs, self.files = {}, {**self.files, **taken.files}
        self.files_read.add(taken.files)
        if self._intake.adapts and taken.batch:
            took = round((self._clock.monotonic() - begun) * 1000)
            self._intake.observe(took_ms=took, filled=filled(plan.ends.values()))
        self._may_have_unread = maybe_backlogged(self._topology.sources, plan.ends, before.sources) if before else {}

    def _commit(self, record: EpochRecord, begun: float) -> None:
        crash_point("before-commit")
        self._term.append(record)
        self.head = record
        crash_point("after-commit")
        published = self._clock.monotonic()
        publish(record, self._context.sinks, owner=self._owner)
        crash_point("outputs-published")
        now = self._clock.monotonic()
        progress = replace(
            record.progress,
            duration_ms=round((now - begun) * 1000),
            stages={**record.progress.stages, "publish": round((now - published) * 1000)},
        )
        self._housekeeping.after_epoch(record, progress)
        crash_point("epoch-done")
        self._on_epoch(progress)
