"""The same job on each engine: hourly sum and count of fares by driver, drained from files into a folder of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import tidemark as tm
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import DefinitionError
from tidemark.spark.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Engine = Literal["tidemark", "spark-rocksdb", "spark-heap"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)

SCHEMA = "driver BIGINT, ts TIMESTAMP, fare DOUBLE"
BOUND = "5 minutes"
WINDOW = "1 hour"
RESULTS = "results"
LATE = "late"
DRIVER_MEMORY = "6g"

_STORES = "org.apache.spark.sql.execution.streaming.state."
_STATE_STORE: Mapping[Engine, str] = {
    "spark-rocksdb": f"{_STORES}RocksDBStateStoreProvider",
    "spark-heap": f"{_STORES}HDFSBackedStateStoreProvider",
}


@dataclass(frozen=True)
class Drained:
    """A drained job: how long it took, and when each of its epochs began, in milliseconds since 1970-01-01 UTC."""

    seconds: float
    epoch_starts_ms: tuple[int, ...]


def parse_engine(name: str) -> Engine:
    """Return the engine of a name.

    Raises:
        DefinitionError: there is no such engine.
    """
    for engine in ENGINES:
        if engine == name:
            return engine
    raise DefinitionError(f"there is no engine {name!r}", fix=f"use one of {', '.join(ENGINES)}")


def cores() -> int:
    """Return the number of cores, which is also that of shuffle partitions."""
    return os.cpu_count() or 1


def start_session(engine: Engine, scratch: Path, *, memory: str = DRIVER_MEMORY) -> SparkSession:
    """Start Spark with the same settings for every engine, but for the state store, which Tidemark has none of.

    Raises:
        SetupError: there is no Java.
    """
    conf = {
        "spark.sql.shuffle.partitions": str(cores()),
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if engine in _STATE_STORE:
        conf["spark.sql.streaming.stateStore.providerClass"] = _STATE_STORE[engine]
    return build_session(f"local[{cores()}]", app_name=f"benchmark {engine}", conf=conf)


def drain(engine: Engine, spark: SparkSession, files: Path, folder: Path, *, files_per_epoch: int) -> Drained:
    """Run the job over all files, and write ``results`` (and ``late``, where the engine can) below a folder.

    The clock runs from the call that starts the job until it returns with everything published.

    Raises:
        TidemarkError: Tidemark failed.
        StreamingQueryException: stock Spark failed.
    """
    run = _drain_tidemark if engine == "tidemark" else _drain_stock
    return run(spark, files, folder, files_per_epoch)


def _drain_tidemark(spark: SparkSession, files: Path, folder: Path, files_per_epoch: int) -> Drained:
    late = tm.OutputTag("late_fares")
    fares = tm.source(
        "fares",
        tm.files(str(files), format="parquet", schema=SCHEMA, max_files_per_epoch=files_per_epoch),
        watermarks=tm.bounded_out_of_orderness(BOUND, timestamp="ts"),
    )
    hourly = (
        fares.key_by("driver")
        .window(tm.tumbling(WINDOW))
        .late_to(late)
        .aggregate(total=tm.sum("fare"), n=tm.count())
        .uid("hourly-fares")
    )  # fmt: skip
    outputs = {
        "results": tm.parquet(hourly, str(folder / RESULTS)),
        "late": tm.parquet(hourly.side_output(late), str(folder / LATE)),
    }
    job = tm.Job("fares", outputs, store=str(folder / "store"))
    queries: dict[str, StreamingQuery] = {}

    def note_query(_: object) -> None:
        if not queries:
            queries.update({str(query.id): query for query in spark.streams.active})

    seconds = _timed(lambda: tm.run(job, spark=spark, on_epoch=note_query))
    return Drained(seconds, tuple(start for query in queries.values() for start in _epoch_starts(query)))


def _drain_stock(spark: SparkSession, files: Path, folder: Path, files_per_epoch: int) -> Drained:
    from pyspark.sql import functions as F

    # The name is what a session of Tidemark's asks of every source; it changes the format of the offset log, no more.
    reader = spark.readStream.name("fares").schema(SCHEMA).option("maxFilesPerTrigger", files_per_epoch)
    # As old as the first row may be: else files that are not recent are passed over.
    fares = reader.option("maxFileAge", "36500d").parquet(str(files))
    hourly = (
        fares.withWatermark("ts", BOUND)
        .groupBy("driver", F.window("ts", WINDOW))
        .agg(F.sum("fare").alias("total"), F.count("*").alias("n"))
        .select("driver", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "total", "n")
    )
    writer = (
        hourly.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / RESULTS))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    queries: list[StreamingQuery] = []

    def go() -> None:
        queries.append(writer.start())
        queries[0].awaitTermination()

    seconds = _timed(go)
    return Drained(seconds, _epoch_starts(queries[0]))


def _timed(work: Callable[[], object]) -> float:
    began = SYSTEM_CLOCK.monotonic()
    work()
    return SYSTEM_CLOCK.monotonic() - began


def _epoch_starts(query: StreamingQuery) -> tuple[int, ...]:
    """Return when each micro-batch of an ended query began, as Spark itself reports it: the same measure for every engine."""
    starts: dict[int, int] = {}
    for progress in query.recentProgress:
        starts.setdefault(progress["batchId"], _to_ms(progress["timestamp"]))
    return tuple(starts[batch] for batch in sorted(starts))


def _to_ms(stamp: str) -> int:
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)
