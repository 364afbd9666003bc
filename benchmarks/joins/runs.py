"""The same joins and running results on Tidemark and on stock Spark or Flink SQL, drained from files.

``python -m benchmarks.joins.runs REQUEST.json ANSWER.json`` measures one of them in its process.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
import pyarrow.dataset as ds

import tidemark as tm
from benchmarks.harness.engines import parse_engine, start_session
from benchmarks.joins.changelogs import RESULTS, join_changelogs, newest_sums
from benchmarks.joins.flink import STATES, join_in_flink
from benchmarks.joins.inputs import BOUND, SCHEMA, WITHIN_MS, Sums
from tidemark.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WITHIN: Final = f"{WITHIN_MS // 1000} seconds"


@dataclass(frozen=True)
class Request:
    """What a process measures: the workload's kind, the engine, folders of the warm-up and of the input, and an empty one for outputs."""

    kind: str
    engine: str
    warm: str
    files: str
    folder: str
    files_per_epoch: int


@dataclass(frozen=True)
class Answer:
    """What it measured, and what the results come to."""

    seconds: float
    sums: Sums


def run_tidemark(spark: SparkSession, kind: str, files: Path, folder: Path, files_per_epoch: int) -> None:
    """Drain the input."""
    if kind == "changelog":
        join_changelogs(spark, files, folder, files_per_epoch)
        return

    def source(name: str) -> tm.Stream:
        read = tm.files(str(files / name), format="parquet", schema=SCHEMA, max_files_per_epoch=files_per_epoch)
        return tm.source(name, read, watermarks=tm.bounded_out_of_orderness(BOUND, timestamp="t"))

    if kind == "running":
        results = source("left").key_by("k").aggregate(n=tm.count(), total=tm.sum("v")).uid("running")
    else:
        left, right = source("left").select("id", "k"), source("right").select("k", other_id="id")
        how = "left" if kind == "outer" else "inner"
        results = left.join(right, on="k", how=how, within=(f"-{_WITHIN}", _WITHIN)).uid("joined")  # type: ignore[arg-type]
    job = tm.Job(kind, {"results": tm.parquet(results, str(folder / RESULTS))}, store=str(folder / "store"))
    tm.run(job, spark=spark, end_of_input=kind == "outer")


def run_stock(spark: SparkSession, kind: str, files: Path, folder: Path, files_per_epoch: int) -> None:
    """Drain the input; what an outer join still waits for at its end does not come."""
    from pyspark.sql import functions as F

    def source(name: str) -> DataFrame:
        # The name is what a session of Tidemark's asks of every source.
        reader = spark.readStream.name(name).schema(SCHEMA).option("maxFilesPerTrigger", files_per_epoch).option("maxFileAge", "36500d")
        return reader.parquet(str(files / name)).withWatermark("t", BOUND)

    if kind == "running":
        groups = source("left").groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))

        def write(rows: DataFrame, batch: int) -> None:
            rows.withColumn("epoch", F.lit(batch)).write.mode("append").parquet(str(folder / RESULTS))

        writer = groups.writeStream.outputMode("update").foreachBatch(write)
    else:
        left, right = source("left").alias("l"), source("right").alias("r")
        near = F.expr(f"l.k = r.k AND r.t >= l.t - INTERVAL {_WITHIN} AND r.t <= l.t + INTERVAL {_WITHIN}")
        pairs = left.join(right, near, "leftOuter" if kind == "outer" else "inner")
        found = pairs.select(F.col("l.id").alias("id"), F.col("l.k").alias("k"), F.col("r.id").alias("other_id"))
        writer = found.writeStream.format("parquet").outputMode("append").option("path", str(folder / RESULTS))
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def sums_of(kind: str, folder: Path) -> Sums:
    """Return what the results come to; of running ones the newest row of each key counts."""
    if kind == "changelog":
        return newest_sums(folder)
    table = ds.dataset(folder / RESULTS, exclude_invalid_files=False).to_table()
    if kind == "running":
        newest = table.sort_by([("epoch", "descending")]).group_by("k", use_threads=False).aggregate([("n", "first"), ("total", "first")])
        return Sums(newest.num_rows, pc.sum(newest["n_first"]).as_py(), pc.sum(newest["total_first"]).as_py())
    return Sums(table.num_rows, pc.sum(table["id"]).as_py(), pc.sum(table["other_id"]).as_py() or 0)


def measure(request: Request) -> Answer:
    """Start the engine, drain the warm-up, and drain the input."""
    folder, warm, files = Path(request.folder), Path(request.warm), Path(request.files)
    if request.engine in STATES:
        return Answer(*join_in_flink(request.engine, warm, files, folder / "flink", scratch=folder.parent))
    spark = start_session(parse_engine(request.engine), folder)
    run = run_tidemark if request.engine == "tidemark" else run_stock
    try:
        run(spark, request.kind, warm, folder / "warm-up", 1)
        began = SYSTEM_CLOCK.monotonic()
        run(spark, request.kind, files, folder / "measured", request.files_per_epoch)
        seconds = SYSTEM_CLOCK.monotonic() - began
    finally:
        spark.stop()
    return Answer(seconds, sums_of(request.kind, folder / "measured"))


if __name__ == "__main__":
    asked = Request(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(asdict(measure(asked))), encoding="utf-8")
