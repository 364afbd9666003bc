"""The process of a driver: ``python -m tidemark.control.driver.driver --store URI --job NAME --attempt N``, or by ``spark-submit``.

It claims its attempt, runs the job with the spec of the attempt's generation, and ends when the newest generation says so. Exit codes:
0 when it was asked to end, 64 for a permanent error, 70 when another driver has the job, 75 for a transient error.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.attempts import claim_attempt
from tidemark.control.desired.spec_store import read_generation
from tidemark.control.driver.driver_signals import stop_on_signals
from tidemark.control.driver.missing_epochs import missing_epochs_action
from tidemark.control.driver.spark_start import SparkStart
from tidemark.control.driver.spec_watch import SpecWatch, polling
from tidemark.control.launch.logs import OUT, JobLogFormatter, limit_size, log_format, log_to
from tidemark.control.launch.run_folder import EXIT_FILE as DRIVER_ENDED
from tidemark.control.launch.run_folder import write_exit_status
from tidemark.control.launch.spark_submit import NAME
from tidemark.control.launch.standby import StandbyKeeper, wait_for_attempt
from tidemark.control.model.driver_starts import SPARK, StartReport
from tidemark.control.model.records import ATTEMPT_RUN, Attempt, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.standby_files import EXIT_FILE as STANDBY_ENDED
from tidemark.control.model.standby_files import LOG as STANDBY_LOG
from tidemark.control.model.standby_files import OUT as STANDBY_OUT
from tidemark.control.model.standby_files import Standby, assigned_attempt
from tidemark.errors import DefinitionError, EngineError, FencedError, JobRunningError, StateMismatchError, StoreError, TidemarkError
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.log.process_identity import current_owner, process_start_token
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.status import read_status, write_failure
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.graph.job.job import Job

logger = logging.getLogger("tidemark")

FINISHED: Final = 0
TERMINAL: Final = 64
FENCED: Final = 70
TEMPORARY: Final = 75
INTERRUPTED: Final = 130


@dataclass(frozen=True)
class PreparedDriver:
    """The job and the session that a driver runs it in."""

    job: Job
    session: SparkSession


_END_SECONDS: Final = 60.0
"""How long a process may take to exit after its work has ended, before it is killed."""


def drive(
    store: JobStore,
    name: str,
    number: int,
    *,
    process: ProcessHandle,
    lines: JobLogFormatter,
    prepared: PreparedDriver | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Run an attempt to its end and return the exit code; a failure is also written to the job's status.

    Args:
        store: the root store.
        name: the job's name.
        number: number of the attempt.
        process: this process.
        lines: formatter of the log, which adds the job's epoch.
        prepared: job and session that a standby has prepared.
        clock: processing time.
    """
    watch = SpecWatch(store, name, number, exit_now=lambda: _exit_now(process))
    try:
        attempt = claim_attempt(store, name, number, process=process, at=clock.now_ms())
        generation = _generation(store, name, attempt.generation)
        _run_attempt(store, attempt, generation, watch, process=process, lines=lines, prepared=prepared, clock=clock)
    except TidemarkError as error:
        return _record_failure(store, name, number, error, clock)
    except Exception as error:  # noqa: BLE001 - every error has to reach the status
        text = redacted(f"{type(error).__name__}: {error}")
        unknown = EngineError(f"the driver failed: {text}", fix="see the log for the traceback; nothing was committed", job=name)
        unknown.__cause__ = without_secrets(error)
        return _record_failure(store, name, number, unknown, clock)
    if watch.replaced is not None:
        return _record_failure(store, name, number, watch.replaced, clock)
    return FINISHED


def main(arguments: Sequence[str]) -> int:
    """Run the attempt that the arguments name; returns the exit code."""
    given = _parse_arguments(arguments)
    log = Path(given.log) if given.log else None
    lines = JobLogFormatter(given.job, log_format())
    if given.standby is None:
        log_to(log, lines)
    process = _this_process(given.launcher, log)
    code = TERMINAL
    try:
        store = JobStore.open(given.store)
        if given.standby is not None and log is not None:
            code = run_standby(store, given.job, given.standby, log=log, process=process, lines=lines)
        else:
            code = drive(store, given.job, given.attempt, process=process, lines=lines)
    except TidemarkError as error:
        logger.exception("the job store cannot be opened")
        code = TEMPORARY if error.transient else TERMINAL
    except KeyboardInterrupt:
        logger.warning("interrupted again: ending at once")
        code = INTERRUPTED
    finally:
        logger.info("ends with exit code %d", code)
        _record_exit(process, code, standby=given.standby)
    return code


def run_standby(store: JobStore, name: str, number: int, *, log: Path, process: ProcessHandle, lines: JobLogFormatter) -> int:
    """Load the job and start Spark, then wait for an attempt and drive it; returns the exit code.

    Args:
        store: the root store.
        name: the job's name.
        number: the generation of the spec to prepare for.
        log: the driver's log; until then this process has its own.
        process: this process.
        lines: formatter of the log.
    """
    handler = log_to(log.with_name(STANDBY_LOG), lines)
    try:
        generation = _generation(store, name, number)
        spark = SparkStart(generation.spec, lambda _: contextlib.nullcontext(), log=log.with_name(STANDBY_OUT))
        from tidemark.spark.loop.class_archive_training import rehearse

        job = _load(generation.spec)
        prepared = PreparedDriver(job, spark.session())
        with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
            rehearse(prepared.session, folder)
        attempt = wait_for_attempt(store, generation, log.parent)
    except TidemarkError:
        # The job did not fail: its driver continues, and will start another standby later.
        logger.exception("cannot stand by")
        return TERMINAL
    if attempt is None:
        prepared.session.stop()
        return FINISHED
    logging.getLogger().removeHandler(handler)
    log_to(log, lines)
    return drive(store, name, attempt, process=process, lines=lines, prepared=prepared)


def _run_attempt(
    store: JobStore,
    attempt: Attempt,
    generation: SpecGeneration,
    watch: SpecWatch,
    *,
    process: ProcessHandle,
    lines: JobLogFormatter,
    prepared: PreparedDriver | None,
    clock: Clock,
) -> None:
    spec = generation.spec
    logger.info("attempt %d of job %s, generation %d: %s", attempt.number, spec.job, attempt.generation, attempt.why)
    watch.poll()
    if watch.stopping.is_set() and watch.stop_mode != "drain":
        return
    start = StartReport(store, spec.job, attempt, clock=clock)

    def after_epoch(progress: EpochProgress) -> None:
        start.close()
        lines.after_epoch(progress)

    tasks = (*_output_limits(process), *_standby_tasks(store, attempt, generation, process, needed=lambda: start.closed))
    with contextlib.ExitStack() as stack:
        stack.enter_context(stop_on_signals(watch))
        stack.enter_context(contextlib.closing(start))
        ready = _begin(prepared, spec, start, _output_file(process))
        # Loaded while Spark starts.
        from tidemark.control.driver.driver_metrics import driver_metrics
        from tidemark.spark.loop.run import run
        from tidemark.spark.loop.start.engine_start import load_engine

        load_engine()
        metrics = stack.enter_context(driver_metrics(store, spec.job, attempt.number))
        prepared = ready()
        job, session = prepared.job, prepared.session
        try:
            # Again, since Spark has installed its own handler for SIGINT.
            with stop_on_signals(watch), polling(watch, *tasks, *metrics):
                missing = missing_epochs_action(store, spec, attempt)
                if watch.stop_mode is None and not watch.stopping.is_set():
                    run(
                        job,
                        store=store.uri,
                        trigger=f"{spec.trigger_ms} milliseconds",
                        spark=session,
                        on_epoch=after_epoch,
                        on_stage=start.enter,
                        stop=watch.stopping,
                        takeover=attempt.takeover,
                        run_id=attempt.run_id,
                        handle_signals=False,
                        adaptive_intake=spec.adaptive_intake,
                        restore=spec.restore,
                        parallelism=watch.next_parallelism,
                        intake=lambda: watch.intake,
                        missing_epochs=missing,
                        clock=clock,
                    )
                    # The request applies to this start only.
                    missing = None
                if watch.stop_mode == "drain":
                    run(
                        job,
                        store=store.uri,
                        end_of_input=True,
                        spark=session,
                        on_epoch=after_epoch,
                        on_stage=start.enter,
                        stop=watch.drain_event(),
                        takeover=attempt.takeover,
                        run_id=attempt.run_id,
                        handle_signals=False,
                        restore=spec.restore,
                        parallelism=watch.next_parallelism,
                        missing_epochs=missing,
                        clock=clock,
                    )
        finally:
            with _exit_deadline(process):
                session.stop()


def _begin(prepared: PreparedDriver | None, spec: JobSpec, start: StartReport, log: Path | None) -> Callable[[], PreparedDriver]:
    """Begin to start Spark, unless a standby has prepared all; returns what loads the job and waits for the session."""
    if prepared is not None:
        return lambda: prepared
    spark = SparkStart(spec, start.in_parallel, log=log)

    def ready() -> PreparedDriver:
        from tidemark.graph.job.environment import require_environment

        job = _load(spec)
        require_environment(job)
        start.enter(SPARK)
        return PreparedDriver(job, spark.session())

    return ready


def _standby_tasks(
    store: JobStore, attempt: Attempt, generation: SpecGeneration, process: ProcessHandle, *, needed: Callable[[], bool]
) -> tuple[Callable[[], None], ...]:
    if not generation.spec.standby or process.log is None:
        return ()
    return (StandbyKeeper(store, generation, attempt.number, Path(process.log), needed).ensure_standby,)


def _generation(store: JobStore, name: str, number: int) -> SpecGeneration:
    found = read_generation(store, name, number)
    if found is None:
        raise StateMismatchError(
            f"the driver is for generation {number} of the spec, which does not exist",
            fix="submit the job again",
            job=name,
        )
    return found


def _load(spec: JobSpec) -> Job:
    from tidemark.control.desired.job_import import load_job
    from tidemark.savepoints.model.isolation import redirect_outputs

    job = load_job(spec.code, spec.definition)
    if spec.outputs_root is not None:
        return redirect_outputs(job, name=spec.job, root=spec.outputs_root)
    if job.name != spec.job:
        raise DefinitionError(
            f"{spec.code} is job {job.name!r}, and was submitted as {spec.job!r}",
            fix=f"submit it as {job.name!r}; a job's name is part of its state's path",
            job=spec.job,
        )
    return job


def _record_failure(store: JobStore, name: str, number: int, error: TidemarkError, clock: Clock) -> int:
    """Write the error that ended the attempt to the status, unless the run has done so; returns the exit code."""
    logger.error("%s", error, exc_info=error)
    if isinstance(error, FencedError):
        return FENCED
    # If another driver has the job, the status is that driver's.
    if not isinstance(error, JobRunningError):
        with contextlib.suppress(TidemarkError):
            owner = current_owner(f"{ATTEMPT_RUN}{number}")
            known = _written_state(store, name)
            if known != (owner.run_id, "failed"):
                write_failure(store, name, error.with_job(name), owner=owner, at=clock.now_ms())
    return TEMPORARY if error.transient else TERMINAL


def _written_state(store: JobStore, name: str) -> tuple[str, str] | None:
    try:
        status = read_status(store, name)
    except StoreError:
        raise
    except TidemarkError:
        return None
    return (status.owner.run_id, status.state) if status is not None and status.owner is not None else None


def _this_process(launcher: str, log: Path | None) -> ProcessHandle:
    """Return this driver's process handle: if ``spark-submit`` started Python, that of the JVM that leads their session."""
    pid, leader = os.getpid(), os.getsid(0)
    known = leader if launcher == NAME and leader == os.getppid() else pid
    return ProcessHandle(
        launcher, socket.gethostname(), known, started=process_start_token(known) or "", log=str(log) if log is not None else None
    )


def _output_limits(process: ProcessHandle) -> tuple[Callable[[], None], ...]:
    out = _output_file(process)
    return () if out is None else (lambda: limit_size(out), lambda: limit_size(out.with_name(STANDBY_OUT)))


def _output_file(process: ProcessHandle) -> Path | None:
    """Return the file of the process's and its JVM's output, None if it is unknown."""
    return Path(process.log).with_name(OUT) if process.log is not None else None


@contextlib.contextmanager
def _exit_deadline(process: ProcessHandle) -> Iterator[None]:
    """End the process if the block takes too long, such as disconnecting from a cluster that no longer responds."""
    code = FINISHED if sys.exc_info()[0] is None else TEMPORARY
    timer = threading.Timer(_END_SECONDS, lambda: _exit_now(process, code=code))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _exit_now(process: ProcessHandle, *, code: int = FINISHED) -> NoReturn:
    """End this process at once; its JVM notices and ends, too."""
    _record_exit(process, code)
    logging.shutdown()
    os._exit(code)


def _record_exit(process: ProcessHandle, code: int, *, standby: int | None = None) -> None:
    """Write this process's exit status; ``standby`` is its generation if it was started as a standby."""
    if process.log is not None and process.pid is not None:
        log, name = Path(process.log), DRIVER_ENDED
        # A standby without an attempt ends beside a driver that is alive, or whose own exit status is still to be read.
        if standby is not None and assigned_attempt(log.parent, Standby(process.pid, process.started, standby)) is None:
            name = STANDBY_ENDED
        with contextlib.suppress(OSError):
            write_exit_status(log, pid=process.pid, started=process.started, code=code, name=name)


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tidemark.control.driver.driver", description="Run one attempt of a job.")
    parser.add_argument("--store", required=True, help="root of the job store")
    parser.add_argument("--job", required=True, help="the job's name")
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--attempt", type=int, help="number of the attempt, which its launcher created")
    task.add_argument("--standby", type=int, help="generation of the spec to prepare for, until an attempt is assigned")
    parser.add_argument("--launcher", default="local", help="name of the launcher")
    parser.add_argument("--log", default="", help="file for the log; standard error by default")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # For a script Python puts its folder first on the path, and a job's module may have the name of a file here.
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    sys.exit(main(sys.argv[1:]))
