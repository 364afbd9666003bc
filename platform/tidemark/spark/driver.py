"""The driver of a job: takes the job over, rebuilds Spark's checkpoint, runs epochs, commits and publishes them."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.clock import Clock
from tidemark.crashpoints import crash_point
from tidemark.errors import FencedError, OffsetMismatchError, StateMismatchError, StoreError, TidemarkError
from tidemark.graph.code_version import code_version
from tidemark.graph.definition import compatible, operator_definition
from tidemark.graph.job import Job
from tidemark.graph.nodes import ElementsSpec, FilesSpec, FormatSpec
from tidemark.semantics.event_time import epoch_processing_time
from tidemark.semantics.watermarks import next_idle_deadline, processing_time_reaching
from tidemark.spark.checkpoint import SparkCheckpoint
from tidemark.spark.epoch import Checkpoint, EpochPlan, EpochRun, Machinery
from tidemark.spark.failures import translate
from tidemark.spark.figures import describe_epoch
from tidemark.spark.housekeeping import Housekeeping
from tidemark.spark.sinks import bind_sinks, require_not_ahead, sink_of_record
from tidemark.spark.sources import open_source, pack, read_files_of_epoch, reads_files, unpack
from tidemark.spark.topology import build_topology
from tidemark.spark.windows import WindowStep
from tidemark.state.joblog import Driver
from tidemark.state.layout import STATE
from tidemark.state.progress import EpochProgress
from tidemark.state.records import EpochRecord
from tidemark.state.status import State
from tidemark.state.store import JobStore
from tidemark.state.totals import add_epoch, empty_totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tidemark")

_NO_OFFSET = "-"
_OFFSET_HEADER_LINES = 2
"""Spark's offset log: a version, a line of JSON, then one line per source."""


class JobDriver:
    """Runs a job's epochs in one process, under one term of the job's log.

    Args:
        job: what to run.
        spark: session to run in.
        store: root of the job store.
        term: right to append to the job's log.
        clock: processing time.
        on_epoch: called after each epoch that was published.
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
    ) -> None:
        self.job = job
        self.head = term.head.epoch
        self.lineage = self.head.lineage if self.head else term.log.origin()
        self._spark = spark
        self._store = store.at(job.name)
        self._term = term
        self._clock = clock
        self._on_epoch = on_epoch
        self._topology = build_topology(job.outputs)
        self._machinery = Machinery(
            store=self._store,
            topology=self._topology,
            steps={id(node): WindowStep(node) for node in self._topology.windows},
            definitions={self._topology.name(node): operator_definition(node) for node in self._topology.windows},
            sinks=bind_sinks(job.outputs, self._store),
            clock=clock,
        )
        self._version = code_version(job)
        self._checkpoint = SparkCheckpoint(self._store, term.term)
        self._first_batch = 0
        self._shift = 0
        self._keeping = Housekeeping(store, job, term, sinks=self._machinery.sinks, lineage=self.lineage, clock=clock)
        self.lock = threading.RLock()

    def prepare(self) -> None:
        """Finish what a crash left unpublished, check the stored state against the job, fill Spark's checkpoint.

        Raises:
            StateMismatchError: stored state is not that of the job's operators.
            PublishError: the newest committed epoch cannot be published.
            CorruptStoreError: an output has epochs that the log does not know.
        """
        if self.head is not None:
            self._publish(self.head)
            self._require_compatible(self.head)
        require_not_ahead(self._machinery.sinks, self.lineage, self.next_epoch - 1)
        self._register_functions()
        self._first_batch = self._checkpoint.seed(self.head)
        self._shift = (self.head.epoch + 1 if self.head else 0) - self._first_batch
        crash_point("checkpoint-seeded")
        self._keeping.begin()

    def streaming(self) -> DataFrame:
        """Return all sources as one streaming DataFrame."""
        frames = {}
        before = _positions(self.head.offsets) if self.head else {}
        for source in self._topology.sources:
            frames[source.name] = open_source(
                self._spark,
                source,
                self._store.at("elements"),
                ordered=id(source) in self._topology.ordered,
                read=_log_offset(before.get(source.name)) + 1,
            )
        return pack(frames)

    @property
    def checkpoint_path(self) -> str:
        """Where Spark keeps its own logs for this run."""
        return self._checkpoint.path

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that comes next."""
        return self.head.epoch + 1 if self.head else 0

    def run_batch(self, batch: DataFrame, number: int) -> None:
        """Run the epoch of a Spark batch; called by Spark, in the thread of the query.

        A batch that was committed already is only published again.

        Raises:
            OffsetMismatchError: the batch was committed with other offsets.
        """
        with self.lock:
            offsets = self._checkpoint.offsets(number)
            epoch = number + self._shift
            if self.head is not None and epoch <= self.head.epoch:
                self._finish_again(epoch, offsets)
                return
            batch.sparkSession.conf.set("spark.sql.shuffle.partitions", str(self.parallelism))
            self._run(batch.sparkSession, self._batches(batch, offsets), offsets, end_of_input=False)

    def run_without_input(self, *, end_of_input: bool = False) -> None:
        """Run an epoch that reads nothing: a deadline is due, or the input has ended for good."""
        with self.lock:
            self._shift += 1
            offsets = self.head.offsets if self.head else ""
            self._run(self._spark, {}, offsets, end_of_input=end_of_input)

    @property
    def parallelism(self) -> int:
        """Number of shuffle partitions of the next epoch."""
        return self.job.parallelism or self._spark.sparkContext.defaultParallelism

    def now(self) -> int:
        """Return the clock's time, milliseconds."""
        return self._clock.now_ms()

    def next_deadline(self) -> int | None:
        """Return the processing time at which an epoch is due even without input, None for never."""
        if self.head is None:
            return None
        deadlines: list[int] = []
        for source in self._topology.sources:
            state = self.head.sources.get(source.name)
            if state is None:
                continue
            idle = next_idle_deadline(source.watermarks, state)
            wanted = self._next_firing()
            reached = processing_time_reaching(source.watermarks, state, wanted) if wanted and wanted > state.watermark else None
            deadlines += [deadline for deadline in (idle, reached) if deadline is not None]
        return min(deadlines, default=None)

    def explain(self, error: Exception) -> TidemarkError:
        """Return the error to raise for one that ended the epoch at hand."""
        state = self._store.location.joined(STATE).path
        return translate(error, job=self.job.name, epoch=self.next_epoch, state=state)

    def say(self, state: State, error: BaseException | None = None) -> None:
        """Write the job's status; a driver that was fenced leaves it to the one that has the job now."""
        if isinstance(error, FencedError):
            return
        with contextlib.suppress(StoreError):
            self._keeping.say(state, error=error if isinstance(error, TidemarkError) else None)

    def close(self) -> None:
        """Let the threads go and remove the local cache."""
        self._machinery.pool.shutdown()
        self._checkpoint.close()

    def _next_firing(self) -> int | None:
        """Return the least watermark that some open window waits for, None where no window is open."""
        if self.head is None:
            return None
        ends = []
        for node in self._topology.windows:
            state = self.head.operators.get(self._topology.name(node))
            step = self._machinery.steps[id(node)]
            if state is not None:
                due = step.last_due(state.watermark)
                first_open = node.assigner.assign(due + step.size)[0].start
                ends += [
                    (first_open if file.min_time is None or file.min_time <= due else file.min_time) + step.size - 1
                    for file in state.files
                    if file.max_time is None or file.max_time > due
                ]
        return min(ends, default=None)

    def _batches(self, batch: DataFrame, offsets: str) -> dict[str, DataFrame]:
        """Return the rows of the sources that have some in this epoch, each read the cheapest way."""
        now = _positions(offsets)
        before = _positions(self.head.offsets) if self.head else {}
        frames = unpack(batch, [source.name for source in self._topology.sources])
        for source in self._topology.sources:
            if source.name not in now or now[source.name] == before.get(source.name):
                del frames[source.name]
            elif reads_files(source):
                paths = self._checkpoint.files(source.name, _log_offset(before.get(source.name)), _log_offset(now[source.name]))
                ordered = id(source) in self._topology.ordered
                frames[source.name] = read_files_of_epoch(batch.sparkSession, source, paths, ordered=ordered)
        return frames

    def _run(self, session: SparkSession, batches: Mapping[str, DataFrame], offsets: str, *, end_of_input: bool) -> None:
        begun = self._clock.monotonic()
        before = self.head
        plan = EpochPlan(
            epoch=self.next_epoch,
            lineage=self.lineage,
            processing_time=epoch_processing_time(before.processing_time if before else None, self._clock.now_ms()),
            before=Checkpoint(before.sources, before.operators) if before else Checkpoint(),
            batches=batches,
            caught_up=self._caught_up(offsets) if batches else {},
            strict=self._far_ahead(),
            end_of_input=end_of_input,
        )
        crash_point("epoch-planned")
        jobs_before = self._spark_jobs(session)
        run = EpochRun(self._machinery, session, plan)
        run.execute()
        logs = self._checkpoint.save_source_logs() or (before.source_logs if before else {})
        crash_point("source-log-saved")
        progress = describe_epoch(
            run,
            self.job.name,
            duration_ms=round((self._clock.monotonic() - begun) * 1000),
            spark_jobs=len(self._spark_jobs(session) - jobs_before),
        )
        record = EpochRecord(
            job=self.job.name,
            lineage=self.lineage,
            parent=before.parent if before else None,
            term=self._term.term,
            epoch=plan.epoch,
            processing_time=plan.processing_time,
            offsets=offsets,
            progress=progress,
            source_logs=logs,
            sources=run.sources,
            operators={run.topology.name(node): run.operators[id(node)].after() for node in run.topology.windows},
            outputs=run.outputs,
            totals=add_epoch(before.totals if before else empty_totals(), progress),
            code_version=self._version,
            end_of_input=end_of_input,
        )
        self._commit(record, begun)

    def _commit(self, record: EpochRecord, begun: float) -> None:
        crash_point("before-commit")
        self._term.append(record)
        self.head = record
        crash_point("after-commit")
        published = self._clock.monotonic()
        self._publish(record)
        crash_point("outputs-published")
        now = self._clock.monotonic()
        progress = replace(
            record.progress,
            duration_ms=round((now - begun) * 1000),
            stages={**record.progress.stages, "publish": round((now - published) * 1000)},
        )
        self._keeping.after_epoch(record, progress)
        crash_point("epoch-done")
        self._on_epoch(progress)

    def _publish(self, record: EpochRecord) -> None:
        for name, output in record.outputs.items():
            sink = self._machinery.sinks.get(name)
            if sink is None or not sink.takes(output):
                sink = sink_of_record(name, output)
            if sink is not None:
                sink.publish(output, record.lineage, record.epoch)
                crash_point("output-published")

    def _finish_again(self, epoch: int, offsets: str) -> None:
        record = self.head
        if record is None or record.epoch != epoch or _positions(record.offsets) != _positions(offsets):
            raise OffsetMismatchError(
                "the epoch is committed with other source offsets than it comes with now",
                fix="start the job anew; it goes on from its own log, not from Spark's checkpoint",
                job=self.job.name,
                epoch=epoch,
            )
        self._publish(record)

    def _caught_up(self, offsets: str) -> dict[str, bool]:
        """Say of each source whether it was read to its end: its intake is unbounded, or its offset did not move."""
        now = _positions(offsets)
        before = _positions(self.head.offsets) if self.head else {}
        return {
            source.name: not _bounded(source.spec) or (source.name in before and now.get(source.name) == before[source.name])
            for source in self._topology.sources
        }

    def _far_ahead(self) -> frozenset[str]:
        """Return the sources that had malformed rows in the epoch before, and so may have rows too far ahead again."""
        progress = self.head.progress.sources if self.head else {}
        return frozenset(name for name, source in progress.items() if source.rows_malformed)

    def _require_compatible(self, record: EpochRecord) -> None:
        unclaimed = sorted(set(_positions(record.offsets)) - {source.name for source in self._topology.sources})
        if unclaimed:
            raise StateMismatchError(
                f"the stored positions are of sources that the job does not have: {', '.join(unclaimed)}",
                fix="give the sources their old names back; under a new name all of their input would be read again",
                job=self.job.name,
                epoch=record.epoch,
            )
        lost = sorted(set(record.operators) - set(self._machinery.definitions))
        if lost:
            raise StateMismatchError(
                f"the stored state has operators that the job does not: {', '.join(lost)}",
                fix="give the operators their old uids back, or start the changed job under another name",
                job=self.job.name,
                epoch=record.epoch,
            )
        for uid, state in record.operators.items():
            stored = {key: value for key, value in state.definition.items() if key != "schema"}
            findings = compatible(stored, self._machinery.definitions[uid])
            if findings:
                raise StateMismatchError(
                    f"the stored state of {uid!r} does not fit the job: {'; '.join(findings)}",
                    fix="undo the change, or give the changed operator a new uid and the job a new name",
                    job=self.job.name,
                    uid=uid,
                    epoch=record.epoch,
                )

    def _register_functions(self) -> None:
        for node in self._topology.windows:
            for _, aggregate in node.aggregates:
                for function in aggregate.functions:
                    self._spark.udf.register(function.name, function.function, function.returns)

    @staticmethod
    def _spark_jobs(session: SparkSession) -> set[int]:
        context = session.sparkContext
        group = context.getLocalProperty("spark.jobGroup.id")
        return set(context.statusTracker().getJobIdsForGroup(group))


def _positions(offsets: str) -> Mapping[str, object]:
    """Return the offset of each source in the text of Spark's offset log; of equal offsets the text may differ."""
    found: dict[str, object] = {}
    for line in offsets.splitlines()[_OFFSET_HEADER_LINES:]:
        name, _, position = line.partition(":")
        if position == _NO_OFFSET:
            continue
        try:
            found[name] = json.loads(position)
        except ValueError:
            found[name] = position
    return found


def _log_offset(position: object) -> int:
    """Return the number in a file source's offset, -1 before the first."""
    return int(position["logOffset"]) if isinstance(position, Mapping) else -1


def _bounded(spec: object) -> bool:
    if isinstance(spec, FilesSpec | ElementsSpec):
        return True
    return isinstance(spec, FormatSpec) and any("max" in option.lower() for option in spec.options)
