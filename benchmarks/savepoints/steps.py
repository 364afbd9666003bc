"""The steps of the savepoint benchmark, each a process: ``python -m benchmarks.savepoints.steps REQUEST.json ANSWER.json``."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tidemark as tm
from benchmarks.harness.engines import BOUND, SCHEMA, start_session
from benchmarks.harness.measurement import versions_of
from benchmarks.harness.processes import MeasurementError
from benchmarks.savepoints.savepoints import FROM, JOB, LOADS, SAVEPOINT, STORE, TO, Request
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.attempts import create_attempt
from tidemark.control.driver.spec_watch import SpecWatch, polling
from tidemark.control.model.records import Attempt
from tidemark.control.model.spec import JobSpec
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from tidemark.state.log.progress import EpochProgress

UID: Final = "fares-by-driver"
TRIGGER: Final = "1 second"
TAKES: Final = 10
_BETWEEN_SECONDS: Final = 0.35
_WAIT_SECONDS: Final = 60.0
_LOAD_SECONDS: Final = 1_800.0


@dataclass
class Live:
    """What is seen of a job that runs on: the partitions that each epoch had, and when it began; ``loaded`` once all keys are there."""

    watch: SpecWatch
    partitions: list[int | None] = field(default_factory=list)
    begun_ms: list[int] = field(default_factory=list)
    loaded: threading.Event = field(default_factory=threading.Event)
    rescaled: threading.Event = field(default_factory=threading.Event)

    def next_partitions(self) -> int | None:
        """Return what the epoch that comes is to run at; asked once for each."""
        self.begun_ms.append(SYSTEM_CLOCK.now_ms())
        self.partitions.append(self.watch.next_parallelism())
        return self.partitions[-1]

    def after_epoch(self, progress: EpochProgress) -> None:
        """Note how far the job is."""
        if progress.epoch >= LOADS - 1:
            self.loaded.set()
        if self.partitions[progress.epoch] == TO:
            self.rescaled.set()


def job_of(request: Request) -> tm.Job:
    """Return the job under the request's name: fares by driver, in windows that stay open."""
    spec = tm.files(request.files, format="parquet", schema=SCHEMA, max_files_per_epoch=1)
    fares = tm.source("fares", spec, watermarks=tm.bounded_out_of_orderness(BOUND, timestamp="ts"))
    windowed = fares.key_by("driver").window(tm.tumbling("30 days")).aggregate(total=tm.sum("fare"), n=tm.count()).uid(UID)
    folder = Path(request.folder)
    return tm.Job(request.name, {"results": tm.delta(windowed, str(folder / request.name))}, store=str(folder / STORE))


def live(request: Request) -> dict[str, object]:
    """Make the state and let the job run on; meanwhile take savepoints, and ask for another parallelism, as the commands do.

    Raises:
        MeasurementError: the job did not come so far, or did not do as was wished.
    """
    store = JobStore.open(str(Path(request.folder) / STORE))
    spec = JobSpec(JOB, "benchmarks:job", parallelism=FROM)
    wishes = JobClient(store, "bench")
    wishes.submit(spec)
    create_attempt(store, JOB, Attempt(1, 1, SYSTEM_CLOCK.now_ms(), "bench", "bench"))
    watch = SpecWatch(store, JOB, 1, exit_now=lambda: None)
    watch.poll()
    seen = Live(watch)

    def beside() -> tuple[list[float], int]:
        try:
            _wait(seen.loaded, _LOAD_SECONDS, "the state was not made")
            takes = _take(store)
            wished = SYSTEM_CLOCK.now_ms()
            wishes.submit(replace(spec, parallelism=TO))
            _wait(seen.rescaled, _WAIT_SECONDS, "the other parallelism was not taken up")
        finally:
            watch.stopping.set()
        return takes, wished

    spark = start_session("tidemark", Path(request.folder) / "session", memory=request.memory)
    try:
        with ThreadPoolExecutor(1) as pool, polling(watch):
            measured = pool.submit(beside)
            try:
                tm.run(
                    job_of(request),
                    spark=spark,
                    trigger=TRIGGER,
                    stop=watch.stopping,
                    on_epoch=seen.after_epoch,
                    parallelism=seen.next_partitions,
                    handle_signals=False,
                )
            finally:
                # Whoever waits for an epoch that will not come any more is told so by what ended the run.
                seen.loaded.set()
                seen.rescaled.set()
            takes, wished = measured.result()
        versions = versions_of(spark)
    finally:
        spark.stop()
    files = tm.savepoints_of(JOB, store=store).get(SAVEPOINT).record.operators[UID].files
    return {
        "take_ms": takes,
        "state_bytes": sum(file.bytes for file in files),
        "state_files": len(files),
        "versions": versions,
        **_rescale(seen, store, wished),
    }


def _take(store: JobStore) -> list[float]:
    """Take savepoints while epochs are run and committed; return how many milliseconds each took."""
    savepoints = tm.savepoints_of(JOB, store=store)
    found = []
    for number in range(TAKES):
        begun = SYSTEM_CLOCK.monotonic()
        savepoints.take(f"sp-{number}" if number else SAVEPOINT)
        found.append(1000 * (SYSTEM_CLOCK.monotonic() - begun))
        SYSTEM_CLOCK.sleep(_BETWEEN_SECONDS)
    return found


def _rescale(seen: Live, store: JobStore, wished: int) -> dict[str, float | int]:
    """Return how long it was until an epoch began at the new parallelism, and how many began at the old one meanwhile."""
    if TO not in seen.partitions:
        raise _not_so(f"epochs ran at {seen.partitions} partitions")
    first = seen.partitions.index(TO)
    for record in JobLog(store.at(JOB), JOB).epochs():
        wanted, had = seen.partitions[record.epoch], _files_of(record)
        # One file is what a merge leaves of several.
        if had not in (1, wanted):
            raise _not_so(f"epoch {record.epoch} was to have {wanted} partitions, and wrote {had} files of state")
    between = sum(wished <= begun for begun in seen.begun_ms[:first])
    return {"rescale_ms": max(0, seen.begun_ms[first] - wished), "rescale_epochs": between}


def _files_of(record: EpochRecord) -> int:
    return sum(file.epoch == record.epoch for file in record.operators[UID].files)


def restore(request: Request) -> dict[str, object]:
    """Start Spark, restore another job from the savepoint, and run its first epoch.

    Raises:
        MeasurementError: that was another epoch, or had less state.
    """
    # As a job's driver does: the engine and the job are loaded first, then Spark is started.
    import_module("tidemark.spark.loop.run")
    job = job_of(request)
    begun = SYSTEM_CLOCK.monotonic()
    spark = start_session("tidemark", Path(request.folder) / "session", memory=request.memory)
    started = SYSTEM_CLOCK.monotonic()
    published: list[float] = []
    try:
        result = tm.run(
            job,
            spark=spark,
            restore=tm.Restore(SAVEPOINT, job=JOB),
            on_epoch=lambda _: published.append(SYSTEM_CLOCK.monotonic()),
            max_epochs=1,
            handle_signals=False,
        )
    finally:
        spark.stop()
    taken = tm.savepoints_of(JOB, store=str(Path(request.folder) / STORE)).get(SAVEPOINT)
    (epoch,) = result.epochs
    if epoch.epoch != taken.record.epoch + 1 or epoch.operators[UID].state_rows < taken.info.state_rows:
        raise _not_so(f"epoch {epoch.epoch} with {epoch.operators[UID].state_rows:,} rows of state came after {taken}")
    return {"spark_ms": 1000 * (started - begun), "restore_ms": 1000 * (published[0] - started)}


STEPS: Mapping[str, Callable[[Request], dict[str, object]]] = {"live": live, "restore": restore}


def _wait(event: threading.Event, seconds: float, otherwise: str) -> None:
    if not event.wait(seconds):
        raise _not_so(otherwise)


def _not_so(what: str) -> MeasurementError:
    return MeasurementError(what, fix="see the process's log; fewer BENCH_KEYS take less time", uid=JOB)


def main(arguments: Sequence[str]) -> int:
    """Read the request, measure, write the answer."""
    request = Request(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    Path(arguments[1]).write_text(json.dumps(STEPS[request.step](request)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
