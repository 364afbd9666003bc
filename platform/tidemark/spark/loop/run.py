"""Runs a job: until its sources are drained, or continuously until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError, StoreError, TidemarkError
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.job.environment import require_environment
from tidemark.graph.job.job import Job, require_job
from tidemark.graph.model.call_site import call_site, importing_module, with_call_site
from tidemark.graph.model.nodes import SourceNode
from tidemark.savepoints.model.restore import Restore
from tidemark.semantics.watermarks.likely_seconds import seconds_warning
from tidemark.spark.env.file_systems import require_file_systems
from tidemark.spark.env.interrupts import run_interruptibly
from tidemark.spark.env.jvm import new_log
from tidemark.spark.env.session import engine_settings
from tidemark.spark.env.uncaught import in_one_line
from tidemark.spark.loop.start.before_start import check_before_start, store_of_run
from tidemark.spark.loop.start.engine_start import session_and_engine
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress, MissingEpochs, format_progress
from tidemark.state.status.status import write_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.spark.loop.driver import JobDriver
    from tidemark.spark.loop.planned_run import PlannedRun
    from tidemark.spark.loop.query.query_run import QueryRun

logger = logging.getLogger("tidemark")

EPOCHS_KEPT: Final = 1_000
"""A run keeps the progress of so many epochs, of a few kilobytes each, in memory; the job's history on disk has that of more."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    ``epochs`` are those that it committed, oldest first: the newest ``EPOCHS_KEPT`` of them. ``head`` is the job's newest epoch, also when
    this run had none. ``epochs_run`` and ``rows_in`` are the numbers of all epochs, and of all rows read, of this run.
    """

    job: str
    lineage: str
    epochs: tuple[EpochProgress, ...]
    head: EpochProgress | None
    epochs_run: int
    rows_in: int


def run(
    job: Job,
    *,
    store: str | None = None,
    trigger: Duration | None = None,
    end_of_input: bool = False,
    spark: SparkSession | None = None,
    on_epoch: Callable[[EpochProgress], None] | None = None,
    stop: threading.Event | None = None,
    max_epochs: int | None = None,
    takeover: bool = False,
    run_id: str = "",
    handle_signals: bool = True,
    adaptive_intake: bool = False,
    restore: Restore | None = None,
    parallelism: Callable[[], int | None] | None = None,
    intake: Callable[[], float | None] | None = None,
    missing_epochs: MissingEpochs | None = None,
    on_stage: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RunResult:
    """Run a job and return when it is done.

    Without ``trigger`` it drains: reads the available input, in epochs of bounded size, and stops; windows stay open, since more may
    come. With ``trigger`` it runs continuously, an epoch at most that often, until SIGINT, SIGTERM or ``stop``; the current epoch is
    finished first. Whatever ends a run, the next one resumes after the last committed epoch.

    When called in the main thread, another thread does the work and calls ``on_epoch``. An exception that a signal handler raises,
    such as KeyboardInterrupt, ends the run after the current epoch and is then raised again; a second one is raised at once.

    Args:
        job: what to run.
        store: root of the job store; else the job's own, ``$TIDEMARK_STORE``, or ``.tidemark/jobs``.
        trigger: interval between epochs, such as ``"10 seconds"`` or a timedelta.
        end_of_input: the input has ended for good: close all windows after the drain. Not with ``trigger``.
        spark: session to run in; else the active one, or one on this machine.
        on_epoch: called with the progress of each epoch after it was published.
        stop: set it from another thread to stop after the current epoch.
        max_epochs: stop after so many epochs, 1 or more; None is no limit.
        takeover: take the job over from a driver that is still alive, which is fenced and stops.
        run_id: name of this run, for messages of other drivers.
        handle_signals: stop on SIGINT and SIGTERM; only in the main thread.
        adaptive_intake: adapt the intake of an epoch to the time that the last ones took, so that an epoch of a backlog takes about
            as long as ``trigger``; bounds that the job's sources declare are never exceeded. Only with ``trigger``.
        restore: resume from a savepoint instead of after the last epoch, under a new lineage.
        parallelism: returns the number of shuffle partitions, called before each epoch; None leaves it to the job.
        intake: returns the share of its usual bounds that an epoch may read of each source, from a 64th to 16; None is all of them.
            Called between epochs; bounds that a source declares are never exceeded. Only with ``trigger``, and without
            ``adaptive_intake``.
        missing_epochs: how to treat, at the start, epochs that an output's place no longer holds, since it was restored to an older
            version, emptied, replaced or deleted: ``"republish"`` publishes them again from their records, ``"accept"`` continues without
            them. An epoch without input records it in the job's log. By default such a place raises.
        on_stage: called as the stages of a start begin: "recovery" (reads the job's log, publishes a committed epoch), "checkpoint",
            and "first epoch", which ends with the first call of ``on_epoch``.
        clock: processing time.

    Raises:
        DefinitionError: not a job, or invalid arguments; or a module calls it while it is imported; nothing is started.
        MissingEpochsError: an output's place no longer holds what was published to it.
        JobRunningError: another driver of this job is alive.
        TidemarkError: of the class that fits what went wrong; nothing of the failed epoch was committed.
    """
    place = call_site()
    require_job(job, "tm.run", place)
    _require_no_import(job, place)
    _check_epochs(max_epochs, missing_epochs, place)
    _check_given(
        place, {"on_epoch": on_epoch, "on_stage": on_stage, "intake": intake}, spark=spark, stop=stop, restore=restore, clock=clock
    )
    if parallelism is not None and not callable(parallelism):
        raise DefinitionError(
            f"parallelism={parallelism!r} is not a function, which tm.run calls before each epoch",
            fix="give the number to the job: tm.Job(..., parallelism=4), or a function that returns 1 or more",
            place=place,
        )
    interval = _interval(trigger, end_of_input=end_of_input, adaptive_intake=adaptive_intake, place=place)
    with with_call_site(place):
        require_no_secret(job.name, run_id=run_id)
        root = store_of_run(job, store, place)
    require_environment(job)
    if spark is None:
        check_before_start(job, root, restore)
    session = _session(job, spark)
    stage = on_stage or (lambda _: None)
    stage("recovery")
    term = JobLog(root.at(job.name), job.name, clock).acquire(current_owner(run_id), takeover=takeover)
    stopping = stop or threading.Event()
    epochs = _Epochs(job, on_epoch)

    def enough() -> bool:
        return max_epochs is not None and epochs.number >= max_epochs

    def work() -> RunResult:
        from tidemark.spark.loop.driver import JobDriver
        from tidemark.spark.loop.housekeeping import beating

        with engine_settings(session), beating(term) as fenced:
            try:
                require_file_systems(session, job, root.location)
                driver = JobDriver(
                    job,
                    spark=session,
                    store=root,
                    term=term,
                    clock=clock,
                    on_epoch=epochs.add,
                    restore=restore,
                    parallelism=parallelism,
                    missing_epochs=missing_epochs,
                    on_stage=stage,
                )
                kind = _kind_of_run(driver)
            except TidemarkError as error:
                with contextlib.suppress(StoreError):
                    write_failure(root, job.name, error, owner=term.owner, at=clock.now_ms())
                raise
            kind(driver, stopping=stopping, fenced=fenced, done=enough).run(
                interval, end_of_input=end_of_input, adaptive_intake=adaptive_intake, intake=intake
            )
            return epochs.result(driver)

    try:
        return run_interruptibly(work, stopping, handle_signals=handle_signals)
    finally:
        with contextlib.suppress(TidemarkError):
            term.release()


class _Epochs:
    """The epochs of a run, of which another function is called, too."""

    def __init__(self, job: Job, on_epoch: Callable[[EpochProgress], None] | None) -> None:
        self.number = 0
        self._not_warned_of = {node.name: node.malformed_to for node in job.nodes if isinstance(node, SourceNode)}
        self._warned_of_seconds: set[str] = set()
        self._on_epoch = on_epoch
        self._rows_in = 0
        self._newest: deque[EpochProgress] = deque(maxlen=EPOCHS_KEPT)

    def add(self, progress: EpochProgress) -> None:
        """Add an epoch that was published."""
        self.number += 1
        self._rows_in += progress.rows_in
        self._newest.append(progress)
        logger.info("%s", format_progress(progress))
        self._warn_of_malformed(progress)
        self._warn_of_seconds(progress)
        if self._on_epoch is not None:
            self._on_epoch(progress)

    def _warn_of_malformed(self, progress: EpochProgress) -> None:
        """Log, once for each source, that all rows of an epoch were malformed: most likely its schema is not that of the data."""
        for name, source in progress.sources.items():
            if not source.rows_read or source.rows_passed or name not in self._not_warned_of:
                continue
            tag = self._not_warned_of.pop(name)
            why = (
                "to see each with its reason, write malformed_to=tm.OutputTag('malformed') and bind .side_output(...) to an output"
                if tag is None
                else f"the side output {tag.name!r} has each with its reason"
            )
            logger.warning(
                "source %r: all %s rows of epoch %d are malformed, and none was passed on; compare its schema and timestamp with the data: "
                "%s",
                name,
                f"{source.rows_read:,}",
                progress.epoch,
                why,
            )

    def _warn_of_seconds(self, progress: EpochProgress) -> None:
        """Log, once for each source, that its event times are probably seconds; behind the end of input its watermark does not tell."""
        for name in [name for name in progress.sources if name not in self._warned_of_seconds]:
            warning = seconds_warning(name, progress.sources[name].watermark, progress.processing_time)
            if warning:
                self._warned_of_seconds.add(name)
                logger.warning("%s", warning)

    def result(self, driver: JobDriver) -> RunResult:
        """Return the result of a run that has ended."""
        newest = self._newest[-1] if self._newest else (driver.head.progress if driver.head else None)
        return RunResult(driver.job.name, driver.lineage, tuple(self._newest), newest, self.number, self._rows_in)


def _kind_of_run(driver: JobDriver) -> type[PlannedRun | QueryRun]:
    """Return how a driver's epochs are planned; where that cannot be, the driver is closed."""
    from tidemark.spark.loop.planned_run import PlannedRun
    from tidemark.spark.loop.query.query_run import QueryRun

    try:
        return PlannedRun if driver.plans_epochs else QueryRun
    except BaseException:
        driver.close()
        raise


def _session(job: Job, spark: SparkSession | None) -> SparkSession:
    if spark is None:
        return session_and_engine(job.name)
    in_one_line(new_log)
    return spark


def _check_given(place: str, functions: Mapping[str, object], *, spark: object, stop: object, restore: object, clock: object) -> None:
    from pyspark.sql import SparkSession

    if spark is not None and not isinstance(spark, SparkSession):
        raise DefinitionError(
            f"spark={shortened(repr(spark))} is a {type(spark).__name__}, not a SparkSession",
            fix="leave it out for a session on this machine, or build one: SparkSession.builder.master('local[2]').getOrCreate()",
            place=place,
        )
    if stop is not None and not callable(getattr(stop, "is_set", None)):
        raise DefinitionError(
            f"stop={shortened(repr(stop))} is not an event", fix="give a threading.Event(), and set it from another thread", place=place
        )
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise DefinitionError(f"{name}={shortened(repr(value))} is not a function", fix="give a function, or leave it out", place=place)
    if restore is not None and not isinstance(restore, Restore):
        named = repr(restore) if isinstance(restore, str) else "'before-friday'"
        raise DefinitionError(
            f"restore={shortened(repr(restore))} is a {type(restore).__name__}, not a restore",
            fix=f"write restore=tm.Restore({named})",
            place=place,
        )
    if not callable(getattr(clock, "now_ms", None)):
        raise DefinitionError(f"clock={shortened(repr(clock))} is not a clock", fix="leave it out for the machine's clock", place=place)


def _check_epochs(max_epochs: object, missing_epochs: object, place: str) -> None:
    if missing_epochs not in {None, "republish", "accept"}:
        raise DefinitionError(
            f"missing_epochs={missing_epochs!r} is not a valid choice", fix="give 'republish' or 'accept', or leave it out", place=place
        )
    if max_epochs is not None and (type(max_epochs) is not int or max_epochs < 1):
        raise DefinitionError(
            f"max_epochs={max_epochs!r} is not a whole number of 1 or more",
            fix="give 1 or more, or leave it out for no limit",
            place=place,
        )


def _require_no_import(job: Job, place: str) -> None:
    """Refuse a run that a module begins while it is imported: tasks import it too, and a thread of the run would wait for the import."""
    module = importing_module()
    if module:
        raise DefinitionError(
            f"tm.run is called while the module {module!r} is imported, so that each process that imports it runs the job",
            fix="put the call under `if __name__ == '__main__':`",
            job=job.name,
            place=place,
        )


def _interval(trigger: Duration | None, *, end_of_input: bool, adaptive_intake: bool, place: str) -> int | None:
    if trigger is None:
        if adaptive_intake:
            raise DefinitionError(
                "adaptive_intake=True follows the interval between epochs, and a drain has none",
                fix="give trigger='10 seconds', or leave adaptive_intake out: a drain's epochs have the sources' own bounds",
                place=place,
            )
        return None
    if end_of_input:
        raise DefinitionError(
            "end_of_input=True closes all windows after a drain, but trigger= runs continuously",
            fix="leave trigger= out to drain, or leave end_of_input out",
            place=place,
        )
    return to_ms(trigger, what="trigger", minimum=0, place=place)
