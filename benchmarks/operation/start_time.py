"""From the command to the first epoch: ``tidemark start`` of a submitted job, and a script that starts the same query on stock Spark.

``python -m benchmarks --workload start``. The first round starts a job that never ran, the others one that goes on where it was.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.data.fares import FaresPlan, ensure_fares
from benchmarks.harness.engines import DRIVER_MEMORY, SCHEMA, START_ENGINES, Engine, cores, session_conf
from benchmarks.harness.processes import MeasurementError
from benchmarks.harness.records import Record, spread_of
from benchmarks.operation.live_engines import BOUND, TABLE, WINDOW
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec
from tidemark.spark.env.start.session_settings import start_settings
from tidemark.state.status.log_folder import LOGS_VARIABLE
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

NAME: Final = "start"
ROUNDS: Final = 5
TRIGGER_MS: Final = 1_000
JOB: Final = "live"
NAMED_SOURCES: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""The query of all engines names its source."""

_ROWS: Final = 1_000
_SECONDS: Final = 180.0

CODE: Final = f"""
import os

import tidemark as tm

ROOT = os.environ["START_ROOT"]
files = tm.files(ROOT + "/in", format="parquet", schema={SCHEMA!r})
fares = tm.source("fares", files, watermarks=tm.bounded_out_of_orderness({BOUND!r}, timestamp="ts"))
windowed = fares.key_by("driver").window(tm.tumbling({WINDOW!r})).aggregate(total=tm.sum("fare"), n=tm.count()).uid("fares-by-driver")
job = tm.Job({JOB!r}, {{"results": tm.delta(windowed, ROOT + "/{TABLE}")}})
"""


def measure_start(engine: Engine, scratch: Path, *, rounds: int = ROUNDS) -> Record:
    """Start and stop the job so many times.

    Raises:
        MeasurementError: it did not start.
    """
    plan = FaresPlan(rounds * _ROWS, 100, files=rounds)
    files = sorted(ensure_fares(plan, scratch).iterdir())
    folder = Path(tempfile.mkdtemp(prefix="start-", dir=scratch))
    (folder / "in").mkdir()
    start = _submitted(folder) if engine == "tidemark" else _stock(engine, folder)
    try:
        found = []
        for path in files:
            shutil.copyfile(path, folder / "in" / path.name)
            begun = SYSTEM_CLOCK.now_ms()
            found.append(start() - begun)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Record(
        workload=NAME,
        engine=engine,
        title=f"A job of {_ROWS:,} fares an epoch, from the command that starts it until its first epoch is published",
        rows=plan.total_rows,
        runs=rounds,
        events_per_second=None,
        epoch_ms=None,
        peak_memory_bytes=0,
        late_kept=0,
        late_lost=0,
        cells_checked=0,
        cores=cores(),
        driver_memory=DRIVER_MEMORY,
        versions={"python": platform.python_version(), "pyspark": version("pyspark"), "tidemark": version("tidemark")},
        start_ms=spread_of(found),
    )


def _submitted(folder: Path) -> Callable[[], int]:
    """Return what starts the job by ``tidemark start``, waits for its next epoch, stops it, and returns when the epoch was published."""
    (folder / "start_job.py").write_text(CODE, encoding="utf-8")
    store = JobStore.open(str(folder / "store"))
    spec = JobSpec(
        JOB,
        "start_job:job",
        wanted="suspended",
        trigger_ms=TRIGGER_MS,
        master=f"local[{cores()}]",
        conf={"spark.driver.memory": DRIVER_MEMORY},
        code_paths=(str(folder),),
        variables={"START_ROOT": str(folder)},
    )
    JobClient(store, "bench").submit(spec)

    def command(name: str) -> None:
        program = str(Path(sys.executable).with_name("tidemark"))
        variables = {**os.environ, LOGS_VARIABLE: str(folder / "logs")}
        done = subprocess.run([program, name, JOB, "--store", store.uri], env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _failed("tidemark", done.stdout + done.stderr)

    def last() -> tuple[int, int] | None:
        status = read_status(store, JOB)
        epoch = status.last if status is not None else None
        return (epoch.epoch, epoch.processing_time + epoch.duration_ms) if epoch is not None else None

    def start() -> int:
        before = last()
        command("start")
        _wait(lambda: last() != before, "tidemark")
        command("stop")
        after = last()
        # Between its first epoch and its end come no others: no file landed.
        return after[1] if after is not None else 0

    return start


def _stock(engine: Engine, folder: Path) -> Callable[[], int]:
    """Return what starts a script that runs the query, and returns when its first batch was published.

    Its session has the settings of Tidemark's, so that it starts from Java's archive of Spark's classes, too; but not Spark as it is
    installed.
    """
    settings = folder / "settings.json"
    master, name, conf = f"local[{cores()}]", f"benchmark {engine}", session_conf(engine, folder / "session")
    own = {"spark.master": master, "spark.app.name": name, NAMED_SOURCES: "true", **conf}
    session = own if engine in START_ENGINES else start_settings(master, app_name=name, conf=conf)
    settings.write_text(json.dumps(session), encoding="utf-8")

    def start() -> int:
        command = [sys.executable, "-m", "benchmarks.operation.stock_start", engine, str(folder), str(settings), str(TRIGGER_MS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        if done.returncode:
            raise _failed(engine, done.stdout + done.stderr)
        return int(done.stdout.split()[-1])

    return start


def _wait(true: Callable[[], bool], engine: str) -> None:
    end = SYSTEM_CLOCK.monotonic() + _SECONDS
    while not true():
        if SYSTEM_CLOCK.monotonic() > end:
            raise _failed(engine, f"no epoch in {_SECONDS:g} s")
        SYSTEM_CLOCK.sleep(0.05)


def _failed(engine: str, said: str) -> MeasurementError:
    return MeasurementError(f"{engine} did not start: {said[-2_000:]}", fix="see what it says", uid=engine)
