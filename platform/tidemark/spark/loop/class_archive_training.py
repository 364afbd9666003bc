"""Runs jobs that load the classes that drivers load, and has Java write them to a file as it exits: ``python -m … FILE``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.graph.aggregates import builtin_aggregates as aggregates
from tidemark.graph.api.sinks import delta, parquet
from tidemark.graph.api.sources import files, source
from tidemark.graph.api.watermark_strategies import bounded_out_of_orderness
from tidemark.graph.api.windows.assigners import session, sliding, tumbling
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import OutputTag
from tidemark.semantics.windows.windows import WindowAssigner
from tidemark.spark.compiled_java import java_source, keep_classes
from tidemark.spark.env.local_files import FILE_SYSTEM, FILE_SYSTEM_SOURCE
from tidemark.spark.env.session import build_session
from tidemark.spark.env.start.session_settings import LOCAL
from tidemark.spark.env.start_errors import JAVA_OPTIONS
from tidemark.spark.loop.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES = 2
_WINDOWS: Mapping[str, WindowAssigner] = {
    "tumbling": tumbling("1 hour"),
    "sliding": sliding("2 hours", "30 minutes"),
    "sessions": session(gap="5 minutes"),
}
_CLASSES = (
    ("tidemark.spark", "FileRelation"),
    ("tidemark.spark", "FrameSteps"),
    ("tidemark.spark.prepared", "PreparedPlan"),
    ("tidemark.spark.resources", "ResourceMeter"),
    ("tidemark.spark.sources.files", "FileTypes"),
)
_EXIT_SECONDS = 300


def main(arguments: list[str]) -> int:
    """Run the jobs twice, so that recovery's classes are loaded, too, and wait for Java to write the file."""
    (archive,) = arguments
    options = f'{LOCAL[JAVA_OPTIONS]} -XX:ArchiveClassesAtExit="{archive}"'
    with tempfile.TemporaryDirectory(prefix="tidemark-classes-") as folder:
        spark = build_session("local[2]", app_name="tidemark class archive", conf={JAVA_OPTIONS: options})
        rehearse(spark, folder)
        keep_classes(spark.sparkContext._jvm, _sources(), Path(archive).with_suffix(".jar"))  # noqa: SLF001
        _exit_java(spark)
    return 0


def rehearse(spark: SparkSession, folder: str) -> None:
    """Run small jobs in a session, twice, so that everything that drivers use is loaded in this process and in its JVM.

    Args:
        spark: the session.
        folder: an empty one, for their input, state and tables.
    """
    for number in range(_FILES):
        _land(Path(folder), number)
        for job in _jobs(folder):
            run(job, spark=spark, handle_signals=False, end_of_input=number + 1 == _FILES)


def _land(folder: Path, number: int) -> None:
    """Write an input file with rows of one hour, of which one is late, one is malformed and one is rejected."""
    begin = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
    times = [*(begin + timedelta(minutes=minute) for minute in range(50)), begin - timedelta(days=1), None, begin]
    count = len(times)
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "zone": pa.array([f"zone {row % 5}" for row in range(count)]),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "fare": pa.array([-1.0 if row == count - 1 else float(row) for row in range(count)]),
        }
    )
    (folder / "landing").mkdir(exist_ok=True)
    pq.write_table(table, folder / "landing" / f"{number}.parquet")


def _jobs(folder: str) -> tuple[Job, ...]:
    malformed, rejected, late = OutputTag("malformed"), OutputTag("rejected"), OutputTag("late")
    spec = files(f"{folder}/landing", format="parquet", schema="id BIGINT, zone STRING, ts TIMESTAMP, fare DOUBLE")
    found = []
    for name, window in _WINDOWS.items():
        trips = source("trips", spec, watermarks=bounded_out_of_orderness("5 minutes", timestamp="ts"), malformed_to=malformed)
        paid = trips.filter("fare >= 0", rejects_to=rejected).uid("paid").with_columns(cents="CAST(100 * fare AS BIGINT)")
        windows = paid.key_by("zone").window(window).late_to(late)
        sums = windows.aggregate(
            total=aggregates.sum("cents"), n=aggregates.count(), mean=aggregates.avg("fare"), most=aggregates.max("fare")
        ).uid("sums")
        sides = {"late": sums.side_output(late), "rejected": paid.side_output(rejected), "malformed": trips.side_output(malformed)}
        place = f"{folder}/{name}"
        outputs = {output: parquet(stream, f"{place}/{output}") for output, stream in sides.items()}
        outputs["sums"] = delta(sums, f"{place}/sums", mode="upsert" if name == "tumbling" else "append")
        found.append(Job(name, outputs=outputs, store=f"{folder}/store"))
    return tuple(found)


def _sources() -> dict[str, str]:
    """Return the sources of the classes that are kept, by their names."""
    return {FILE_SYSTEM: FILE_SYSTEM_SOURCE, **{name: java_source(package, name) for package, name in _CLASSES}}


def _exit_java(spark: SparkSession) -> None:
    """Have Java exit as it does when its Python process ends, and wait for it, since it writes the archive then."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way to wait for its JVM
    if gateway is None:
        raise ValueError("the session has ended")
    process = gateway.proc
    spark.stop()
    gateway.shutdown()
    process.stdin.close()
    process.wait(_EXIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
