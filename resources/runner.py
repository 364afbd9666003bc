"""``TidemarkResource``: runs a job inside a Dagster run and reports its outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
from pydantic import Field

from tidemark.assets.checks.check import evaluate_checks, stream_of
from tidemark.assets.checks.check_context import CheckContext, report_of_run, stored_context, table_of
from tidemark.assets.definitions.bound_job import BoundJob, bound_job
from tidemark.assets.report.late_rows import late_row_metadata
from tidemark.assets.report.output_metadata import output_metadata
from tidemark.assets.report.output_table import OutputTable, TableState
from tidemark.assets.report.run_report import RunReport
from tidemark.assets.streams.job_code import with_code
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import DefinitionError, SinkError
from tidemark.graph import Job, require_environment
from tidemark.resources.epoch_reporter import EpochReporter
from tidemark.resources.run_events import StreamingEvent, TidemarkEvents
from tidemark.resources.spark import SparkResource, session_of
from tidemark.state import EpochProgress, JobStatus, JobStore, read_status

if TYPE_CHECKING:
    OnEpoch = Callable[[EpochProgress], None]


class JobRun(Protocol):
    """The result of a job's run; ``tidemark.run`` returns one."""

    @property
    def lineage(self) -> str:
        """The lineage it ran in."""
        ...

    @property
    def epochs(self) -> tuple[EpochProgress, ...]:
        """The epochs it committed, oldest first."""
        ...

    @property
    def head(self) -> EpochProgress | None:
        """The job's newest epoch."""
        ...


class TidemarkResource(dg.ConfigurableResource[Any]):
    """Runs streaming jobs.

    Args:
        store: folder or bucket of job stores, for jobs that do not name one themselves.
        spark: where the Spark session comes from: a ``SparkResource``, or one of dagster-pyspark's resources.
        end_of_input: treat the input as complete, and close all windows at the end of each run.
        takeover: take the job over from a driver that seems alive.
        max_epochs: stop after this many epochs; the next run resumes from there.
    """

    store: str | None = None
    # With a type argument, pydantic would copy a resource of another class and lose its fields.
    spark: dg.ConfigurableResource = Field(default_factory=SparkResource)  # type: ignore[type-arg]
    end_of_input: bool = False
    takeover: bool = False
    max_epochs: int | None = None

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - pydantic checks them
        # Dagster does not apply a field's default where the field is a resource itself.
        fields.setdefault("spark", SparkResource())
        super().__init__(**fields)

    def run(self, *, context: dg.AssetExecutionContext | dg.OpExecutionContext, skip_unchanged: bool = False) -> TidemarkEvents:
        """Run the job of the current assets until its sources are drained; yields materializations and check results.

        An epoch writes all outputs of a job, whatever is selected; the selection chooses what is reported and checked.

        Args:
            context: the context of a ``@streaming_assets`` body.
            skip_unchanged: do not report outputs that got no rows, so that no downstream asset is triggered.

        Raises:
            DefinitionError: the assets are not a job's, or no store is known.
        """
        bound = bound_job(context.assets_def.specs)
        bound = replace(bound, job=with_code(bound.job))
        store = self.store_of(bound.job)
        return TidemarkEvents(self._events(context, bound, store, skip_unchanged=skip_unchanged), _tables(bound, store))

    def run_job(self, job: Job, *, store: str, on_epoch: OnEpoch, run_id: str) -> JobRun:
        """Run a job to the end of its sources; override to run it elsewhere.

        Args:
            job: the job.
            store: where its state is.
            on_epoch: to be called once per committed epoch, in order.
            run_id: the Dagster run's id, which identifies this driver to other drivers of the job.
        """
        # Before Spark starts.
        require_environment(job)
        from tidemark.spark import run

        return run(
            job,
            store=store,
            spark=session_of(self.spark),
            end_of_input=self.end_of_input,
            on_epoch=on_epoch,
            takeover=self.takeover,
            max_epochs=self.max_epochs,
            run_id=run_id,
            # Dagster's own handler raises where the run waits; the current epoch is finished, and the run counts as cancelled.
            handle_signals=False,
        )

    def store_of(self, job: Job) -> str:
        """Return where a job's state is: in its own store if it names one, else in this resource's.

        Raises:
            DefinitionError: neither is set.
        """
        store = job.store or self.store
        if store is None:
            raise DefinitionError("no job store is known", fix="set TidemarkResource(store=...) or Job(store=...)", job=job.name)
        return store

    def status_of(self, job: Job) -> JobStatus | None:
        """Return a job's status, None if it never ran. Starts no JVM."""
        return read_status(JobStore.open(self.store_of(job)), job.name)

    def _events(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, bound: BoundJob, store: str, *, skip_unchanged: bool
    ) -> Iterator[StreamingEvent]:
        selected, checks = context.selected_asset_keys, context.selected_asset_check_keys
        if not selected:
            # "Execute checks" in Dagster's UI: the stored outputs are checked without running the job.
            yield from evaluate_checks(bound.checks, stored_context(bound.job, store), keys=bound.keys, selected=checks)
            return
        before = _states(bound, self.status_of(bound.job))
        reporter = EpochReporter(
            bound.job,
            log=context.log.info,
            observe=context.log_event,
            asset_key=next(key for key in bound.keys.values() if key in selected),
            clock=SYSTEM_CLOCK,
        )
        # The result keeps the newest epochs only, and the report is of all.
        epochs: list[EpochProgress] = []

        def on_epoch(progress: EpochProgress) -> None:
            epochs.append(progress)
            reporter(progress)

        result = self.run_job(bound.job, store=store, on_epoch=on_epoch, run_id=context.run.run_id)
        report = report_of_run(bound.job, store, epochs, lineage=result.lineage, head=result.head)
        context.log.info(_summary(report))
        unchanged = _unchanged(bound, report, context.instance) if skip_unchanged else frozenset[dg.AssetKey]()
        yield from materializations(bound, report, selected=set(selected) - unchanged)
        checked = CheckContext(report, self.status_of(bound.job), before, store)
        yield from evaluate_checks(bound.checks, checked, keys=bound.keys, selected=checks)


def materializations(bound: BoundJob, report: RunReport, *, selected: Collection[dg.AssetKey]) -> Iterator[dg.MaterializeResult[object]]:
    """Yield a materialization for each selected output of a run."""
    upstream = bound.upstream
    for stream in bound.streams:
        key = bound.keys.get(stream.name)
        if key is None or key not in selected:
            continue
        epoch = {"tidemark/epoch": str(report.head.epoch)} if report.head is not None else {}
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={**output_metadata(stream, report, upstream), **late_row_metadata(stream, report, bound.keys, bound.partitions)},
            data_version=dg.DataVersion(report.data_version),
            tags={"tidemark/lineage": report.lineage, **epoch},
        )


def _unchanged(bound: BoundJob, report: RunReport, instance: dg.DagsterInstance) -> frozenset[dg.AssetKey]:
    """Return the outputs without new rows since their last materialization; failed runs and runs that did not select them count, too."""
    return frozenset(
        key
        for name, key in bound.keys.items()
        if not report.changed_since(name, *_last_materialized(instance.get_latest_materialization_event(key)))
    )


def _last_materialized(event: dg.EventLogEntry | None) -> tuple[str, int]:
    """Return lineage and epoch of a materialization; without one the epoch before the first."""
    made = event.asset_materialization if event is not None else None
    tags = made.tags or {} if made is not None else {}
    return tags.get("tidemark/lineage", ""), int(tags.get("tidemark/epoch", -1))


def _tables(bound: BoundJob, store: str) -> dict[dg.AssetKey, OutputTable]:
    status = read_status(JobStore.open(store), bound.job.name)
    tables = {}
    for stream in bound.streams:
        try:
            tables[bound.keys[stream.name]] = table_of(stream, status)
        except SinkError:
            # Rows in a console or memory sink cannot be counted afterwards.
            continue
    return tables


def _states(bound: BoundJob, status: JobStatus | None) -> dict[str, TableState]:
    wanted = {stream_of(bound.job, check).name for check in bound.checks if check.compares_runs}
    return {stream.name: table_of(stream, status).state() for stream in bound.streams if stream.name in wanted}


def _summary(report: RunReport) -> str:
    if not report.epochs:
        return f"job {report.job.name!r}: nothing new to read"
    rate = f", {report.rows_per_second:.0f} rows/s" if report.rows_per_second is not None else ""
    return f"job {report.job.name!r}: {len(report.epochs)} epochs, {report.rows_read} rows in {report.seconds:.1f} s{rate}"
