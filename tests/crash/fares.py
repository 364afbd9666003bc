"""The job that is killed: small files one by one, all kinds of side outputs, and settings that reach every crash point.

Four epochs of input and one that ends it. Many files per write, so that lists outgrow a record and state is compacted; one
retained epoch, so that old ones retire; a clock that lets more than a lease pass per epoch, so that sweeps delete.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from unittest import mock

import tidemark as tm
from tests.few_rows import FEW_ROWS
from tidemark.spark.env.session import build_session
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000
BEGIN = 1_735_689_600_000  # 2025-01-01
FAR_FUTURE = 4_000_000_000_000
"""Where the clock stands at first: long after the disk's, so that every file counts as old."""

FILES = 4
EPOCH_LENGTH = 160_000
SETTINGS = {
    "spark.sql.files.maxRecordsPerFile": "2",
    "spark.sql.shuffle.partitions": "1",
}
JVM_SETTINGS = {**SETTINGS, **FEW_ROWS}
SCHEMA = "id BIGINT, zone STRING, at BIGINT, fare BIGINT"
LATE, REJECTED, MALFORMED = tm.OutputTag("late_fares"), tm.OutputTag("rejected_fares"), tm.OutputTag("malformed_fares")
DELTA_OUTPUTS = ("hourly", "fares", "late")
PARQUET_OUTPUTS = ("rejected", "malformed")


def make_job(folder: Path) -> tm.Job:
    """Return the job on the files below a folder; it writes there too."""
    fares = tm.source(
        "fares",
        tm.files(str(folder / "landing"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.bounded_out_of_orderness("10 minutes", timestamp="at"),
        malformed_to=MALFORMED,
    )
    good = fares.filter("fare >= 0", rejects_to=REJECTED)
    hourly = (
        good.key_by("zone")
        .window(tm.tumbling("1 hour"))
        .allowed_lateness("30 minutes")
        .late_to(LATE)
        .aggregate(fares=tm.count(), total=tm.sum("fare"), least=tm.min("fare"), greatest=tm.max("fare"))
        .uid("hourly")
    )
    # The dice fall anew whenever an epoch is run again. Texts make the figures that a record keeps of each file long.
    dice = good.with_columns(dice="rand()", **{f"text{number}": f"repeat('{number}', 30)" for number in range(8)})
    return tm.Job(
        "fares",
        outputs={
            "hourly": tm.delta(hourly, str(folder / "hourly")),
            "fares": tm.delta(dice, str(folder / "fares")),
            "late": tm.delta(hourly.side_output(LATE), str(folder / "late")),
            "rejected": tm.parquet(fares_of(good, REJECTED), str(folder / "rejected")),
            "malformed": tm.parquet(fares_of(fares, MALFORMED), str(folder / "malformed")),
        },
        store=str(folder / "store"),
        parallelism=1,
        retained_epochs=1,
    )


def fares_of(stream: tm.Stream, tag: tm.OutputTag) -> tm.Stream:
    """Return a side output."""
    return stream.side_output(tag)


def write_landing(folder: Path) -> int:
    """Write the input files; returns how many lines they have. The same rows every time."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    dice = Random(7)
    lines = 0
    for number in range(FILES):
        rows = list(_rows(number, dice))
        path = landing / f"{number}.json"
        path.write_text("".join(f"{row}\n" for row in rows))
        # Spark takes the oldest file first.
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        lines += len(rows)
    return lines


def _rows(number: int, dice: Random) -> list[str]:
    now = BEGIN + number * 40 * MINUTE
    many = 40 if number in {1, 3} else 16
    rows = []
    for row in range(many):
        delay = dice.choice([0, 5, 9, 50] if number else [0, 5])
        at: int | None = now + dice.randrange(40) * MINUTE - delay * MINUTE
        fare = dice.randrange(1, 100)
        if number >= 2 and row % 8 == 3:
            at = BEGIN + dice.randrange(30) * MINUTE  # too late for its window
        if row in {5, 6, 9}:
            fare = -1
        if row == 7 and number % 2:
            at = None
        rows.append(json.dumps({"id": number * 1000 + row, "zone": dice.choice("abcdefghijklmnopqrstuvwx"), "at": at, "fare": fare}))
    if number % 2 == 0:
        rows.append('{"id": 17, "zone": ')
    return rows


def drive(folder: str, attempt: str = "0") -> None:
    """Run the job to the end of its input in three runs; what a killed process was doing, and what its successor does."""
    job, clock = make_job(Path(folder)), clock_of(int(attempt))
    spark = open_session()
    run(job, spark, clock, max_epochs=2)
    head = run(job, spark, clock).head
    if head is None or not head.end_of_input:
        run(job, spark, clock, end_of_input=True)


def drive_until_the_jvm_dies(folder: str) -> None:
    """Run the job in a JVM of its own, which is killed in the second epoch; prints how the run ended."""
    spark = build_session("local[2]", app_name="tidemark crash tests", conf=JVM_SETTINGS)
    jvm = spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]  # noqa: SLF001
    reached: list[str] = []

    def kill_jvm(point: str) -> None:
        reached.append(point)
        if point == "state-staged" and reached.count(point) == 2:
            os.kill(jvm, signal.SIGKILL)

    with mock.patch("tidemark.spark.operators.aligned.pre_aggregation.crash_point", kill_jvm):
        try:
            run(make_job(Path(folder)), spark, clock_of(0))
        except tm.TidemarkError as error:
            print(f"{error.code}, again may help: {error.transient}")


def clock_of(attempt: int) -> ManualClock:
    """Return the clock of the n-th process that drives the job; each starts much later than the one before."""
    return ManualClock(FAR_FUTURE + attempt * 10_000_000)


def rescaled(job: tm.Job, parallelism: int) -> tm.Job:
    """Return a job with another parallelism, as new code has it."""
    return tm.Job(job.name, outputs=dict(job.outputs), store=job.store, parallelism=parallelism, retained_epochs=job.retained_epochs)


def run(job: tm.Job, spark: SparkSession, clock: ManualClock, *, max_epochs: int | None = None, end_of_input: bool = False) -> tm.RunResult:
    """Run the job; its clock goes on after each epoch."""
    return tm.run(
        job,
        spark=spark,
        clock=clock,
        max_epochs=max_epochs,
        end_of_input=end_of_input,
        on_epoch=lambda _: clock.advance(EPOCH_LENGTH),
    )


def open_session() -> SparkSession:
    """Return a session of the JVM that the environment names, else of a new one, with the settings of these tests."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from tests.crash.warm_jvm import attach

        return attach(SETTINGS)
    return build_session("local[2]", app_name="tidemark crash tests", conf=JVM_SETTINGS)
