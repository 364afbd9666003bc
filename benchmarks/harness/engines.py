"""The same job on each engine: sum and count of fares by driver and window, drained from files into a folder of Parquet files.

Engines of ``FUNCTION_ENGINES`` count in a process function in Python, with state and timers: see ``function_engines`` and ``flink``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import tidemark as tm
from benchmarks.harness.shapes import Shape
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidemark.semantics.windows.windows import WindowAssigner
    from tidemark.state.log.progress import EpochProgress

WindowEngine = Literal["tidemark", "spark-rocksdb", "spark-heap"]
FunctionEngine = Literal[
    "tidemark-process", "tidemark-process-batch", "spark-tws-rows", "spark-tws-pandas", "pyflink-thread", "pyflink-process"
]
StartEngine = Literal["spark-as-installed"]
Engine = WindowEngine | FunctionEngine | StartEngine
ENGINES: Final[tuple[Engine, ...]] = get_args(WindowEngine)
FUNCTION_ENGINES: Final[tuple[Engine, ...]] = get_args(FunctionEngine)
START_ENGINES: Final[tuple[Engine, ...]] = get_args(StartEngine)
"""Stock Spark without any setting of Tidemark's, which only the workload of starts has: its JVM starts without an archive of classes."""
KNOWN_ENGINES: Final = (*ENGINES, *FUNCTION_ENGINES, *START_ENGINES)

SCHEMA = "driver BIGINT, ts TIMESTAMP, fare DOUBLE"
BOUND = "5 minutes"
RESULTS = "results"
LATE = "late"
DRIVER_MEMORY = "6g"

_EPOCHS_REPORTED = 1_000_000
"""Spark forgets the progress of all but the last hundred batches otherwise."""

_STORES = "org.apache.spark.sql.execution.streaming.state."
_STATE_STORE: Mapping[Engine, str] = {
    "spark-rocksdb": f"{_STORES}RocksDBStateStoreProvider",
    "spark-heap": f"{_STORES}HDFSBackedStateStoreProvider",
    "spark-tws-rows": f"{_STORES}RocksDBStateStoreProvider",
    "spark-tws-pandas": f"{_STORES}RocksDBStateStoreProvider",
    "spark-as-installed": f"{_STORES}RocksDBStateStoreProvider",
}


@dataclass(frozen=True)
class Drained:
    """A drained job.

    Args:
        seconds: how long it took.
        epoch_starts_ms: when each of its epochs began, in milliseconds since 1970-01-01 UTC.
        state_rows: rows of state after each epoch, as the engine counts them.
        state_files: files of state that are live after each epoch; none for engines whose state is not files.
    """

    seconds: float
    epoch_starts_ms: tuple[int, ...]
    state_rows: tuple[int, ...]
    state_files: tuple[int, ...] = ()


def parse_engine(name: str) -> Engine:
    """Return the engine of a name.

    Raises:
        DefinitionError: there is no such engine.
    """
    for engine in KNOWN_ENGINES:
        if engine == name:
            return engine
    raise DefinitionError(f"there is no engine {name!r}", fix=f"use one of {', '.join(KNOWN_ENGINES)}")


def cores() -> int:
    """Return the number of cores, which is also that of shuffle partitions."""
    return os.cpu_count() or 1


def start_session(engine: Engine, scratch: Path, *, memory: str = DRIVER_MEMORY) -> SparkSession:
    """Start Spark with the same settings for every engine, but for the state store, which Tidemark has none of.

    Raises:
        SetupError: there is no Java.
    """
    from tidemark.spark.env.session import build_session

    return build_session(f"local[{cores()}]", app_name=f"benchmark {engine}", conf=session_conf(engine, scratch, memory=memory))


def session_conf(engine: Engine, scratch: Path, *, memory: str = DRIVER_MEMORY) -> dict[str, str]:
    """Return the settings of an engine's session, besides those that Tidemark gives to each that it starts."""
    conf = {
        "spark.sql.shuffle.partitions": str(cores()),
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": str(_EPOCHS_REPORTED),
    }
    if engine in _STATE_STORE:
        conf["spark.sql.streaming.stateStore.providerClass"] = _STATE_STORE[engine]
    return conf


def drain(engine: Engine, spark: SparkSession, files: Path, folder: Path, *, shape: Shape, files_per_epoch: int) -> Drained:
    """Run the job over all files, and write ``results`` (and ``late``, where the engine can) below a folder.

    The clock runs from the call that starts the job until it returns with everything published.

    Args:
        engine: that runs it.
        spark: its session.
        files: folder of the input.
        folder: of the outputs, checkpoint and state.
        shape: the windows.
        files_per_epoch: greatest number of files that one epoch reads.

    Raises:
        TidemarkError: Tidemark failed.
        StreamingQueryException: stock Spark failed.
    """
    run = _drain_tidemark if engine == "tidemark" else _drain_stock
    return run(spark, files, folder, shape, files_per_epoch)


def tidemark_fares(files: Path, files_per_epoch: int) -> tm.Stream:
    """Return the fares of a folder as a stream."""
    return tm.source(
        "fares",
        tm.files(str(files), format="parquet", schema=SCHEMA, max_files_per_epoch=files_per_epoch),
        watermarks=tm.bounded_out_of_orderness(BOUND, timestamp="ts"),
    )


def _drain_tidemark(spark: SparkSession, files: Path, folder: Path, shape: Shape, files_per_epoch: int) -> Drained:
    late = tm.OutputTag("late_fares")
    windowed = (
        tidemark_fares(files, files_per_epoch)
        .key_by("driver")
        .window(_assigner(shape))
        .late_to(late)
        .aggregate(total=tm.sum("fare"), n=tm.count())
        .uid("fares-by-driver")
    )  # fmt: skip
    return run_tidemark(spark, folder, windowed, late)


def run_tidemark(spark: SparkSession, folder: Path, hourly: tm.Stream, late: tm.OutputTag) -> Drained:
    """Run a job that writes results and late rows below a folder."""
    outputs = {
        "results": tm.parquet(hourly, str(folder / RESULTS)),
        "late": tm.parquet(hourly.side_output(late), str(folder / LATE)),
    }
    job = tm.Job("fares", outputs, store=str(folder / "store"))
    starts: list[int] = []
    sizes: list[tuple[int, int]] = []

    def note(progress: EpochProgress) -> None:
        starts.append(progress.processing_time)
        operators = progress.operators.values()
        sizes.append((sum(operator.state_rows for operator in operators), sum(operator.state_files for operator in operators)))

    seconds = _timed(lambda: tm.run(job, spark=spark, on_epoch=note))
    return Drained(seconds, tuple(starts), tuple(rows for rows, _ in sizes), tuple(files for _, files in sizes))


def _assigner(shape: Shape) -> WindowAssigner:
    if shape.kind == "session":
        return tm.session(shape.size)
    return tm.tumbling(shape.size) if shape.slide is None else tm.sliding(shape.size, shape.slide)


def _drain_stock(spark: SparkSession, files: Path, folder: Path, shape: Shape, files_per_epoch: int) -> Drained:
    from pyspark.sql import functions as F

    fares = stock_fares(spark, files, files_per_epoch)
    column, window = _stock_window(shape)
    windowed = (
        fares.groupBy("driver", window)
        .agg(F.sum("fare").alias("total"), F.count("*").alias("n"))
        .select("driver", F.col(f"{column}.start").alias("window_start"), F.col(f"{column}.end").alias("window_end"), "total", "n")
    )
    return run_stock(windowed, folder)


def stock_fares(spark: SparkSession, files: Path, files_per_epoch: int) -> DataFrame:
    """Return the fares of a folder as a streaming DataFrame with a watermark."""
    # The name is what a session of Tidemark's asks of every source; it changes the format of the offset log, no more.
    reader = spark.readStream.name("fares").schema(SCHEMA).option("maxFilesPerTrigger", files_per_epoch)
    # As old as the first row may be: else files that are not recent are passed over.
    return reader.option("maxFileAge", "36500d").parquet(str(files)).withWatermark("ts", BOUND)


def run_stock(results: DataFrame, folder: Path) -> Drained:
    """Run a query that writes results below a folder."""
    writer = (
        results.writeStream.format("parquet")
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
    return Drained(seconds, _epoch_starts(queries[0]), _stock_rows(queries[0]))


def _stock_window(shape: Shape) -> tuple[str, Column]:
    """Return the window to group by, and the name that Spark gives it."""
    from pyspark.sql import functions as F

    if shape.kind == "session":
        return "session_window", F.session_window("ts", shape.size)
    return "window", F.window("ts", shape.size, shape.slide)


def _timed(work: Callable[[], object]) -> float:
    began = SYSTEM_CLOCK.monotonic()
    work()
    return SYSTEM_CLOCK.monotonic() - began


def _epoch_starts(query: StreamingQuery) -> tuple[int, ...]:
    """Return when each micro-batch of an ended query began, as Spark itself reports it."""
    starts: dict[int, int] = {}
    for progress in query.recentProgress:
        starts.setdefault(progress["batchId"], to_ms(progress["timestamp"]))
    return tuple(starts[batch] for batch in sorted(starts))


def _stock_rows(query: StreamingQuery) -> tuple[int, ...]:
    """Return the rows of state after each micro-batch of an ended query."""
    rows = {progress["batchId"]: sum(state["numRowsTotal"] for state in progress["stateOperators"]) for progress in query.recentProgress}
    return tuple(rows[batch] for batch in sorted(rows))


def to_ms(stamp: str) -> int:
    """Return the milliseconds since 1970-01-01 UTC of a time in Spark's progress reports."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)
