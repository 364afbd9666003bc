"""The same job on each engine, run on at a trigger: fares by driver in windows of a second, into a Delta table.

Stock Spark has no Delta writer of its own here: it hands each batch's result rows to ``deltalake``, which Tidemark commits with, too, and
which makes it exactly once by the batch's number. They are few, so that this costs it little.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tidemark as tm
from benchmarks.harness.engines import SCHEMA, Engine, cores
from tidemark.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidemark.state.log.progress import EpochProgress

WINDOW: Final = "1 second"
BOUND: Final = "1 second"
TABLE: Final = "table"


@dataclass(frozen=True)
class Batch:
    """An epoch or micro-batch as its engine reports it: when it began, and how long it took, milliseconds."""

    began_ms: int
    took_ms: int


@dataclass(frozen=True)
class Live:
    """A run until an event is set.

    Args:
        files: folder that the fares arrive in.
        folder: of the table, checkpoint and state.
        trigger_ms: time between epochs.
        ended: asks for the end.
        committed: called after each epoch.
    """

    files: Path
    folder: Path
    trigger_ms: int
    ended: threading.Event
    committed: Callable[[], object] = lambda: None


def run_live(engine: Engine, spark: SparkSession, live: Live) -> tuple[Batch, ...]:
    """Run the job on an engine; returns the batches that had input or results.

    Raises:
        TidemarkError: Tidemark failed.
        StreamingQueryException: stock Spark failed.
    """
    return _run_tidemark(spark, live) if engine == "tidemark" else _run_stock(spark, live)


def _run_tidemark(spark: SparkSession, live: Live) -> tuple[Batch, ...]:
    fares = tm.source(
        "fares", tm.files(str(live.files), format="parquet", schema=SCHEMA), watermarks=tm.bounded_out_of_orderness(BOUND, timestamp="ts")
    )
    windowed = fares.key_by("driver").window(tm.tumbling(WINDOW)).aggregate(total=tm.sum("fare"), n=tm.count()).uid("fares-by-driver")
    job = tm.Job("live", {"results": tm.delta(windowed, str(live.folder / TABLE))}, store=str(live.folder / "store"), parallelism=cores())
    epochs: list[Batch] = []

    def note(progress: EpochProgress) -> None:
        epochs.append(Batch(progress.processing_time, progress.duration_ms))
        live.committed()

    tm.run(job, spark=spark, trigger=f"{live.trigger_ms} milliseconds", stop=live.ended, on_epoch=note, handle_signals=False)
    return tuple(epochs)


def _run_stock(spark: SparkSession, live: Live) -> tuple[Batch, ...]:
    from pyspark.sql import functions as F

    fares = spark.readStream.name("fares").schema(SCHEMA).parquet(str(live.files))
    windowed = (
        fares.withWatermark("ts", BOUND)
        .groupBy("driver", F.window("ts", WINDOW))
        .agg(F.sum("fare").alias("total"), F.count("*").alias("n"))
        .select("driver", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "total", "n")
    )

    def publish(batch: DataFrame, number: int) -> None:
        _append(batch, number, live.folder / TABLE)
        live.committed()

    query = (
        windowed.writeStream.foreachBatch(publish)
        .outputMode("append")
        .option("checkpointLocation", str(live.folder / "checkpoint"))
        .trigger(processingTime=f"{live.trigger_ms} milliseconds")
        .start()
    )
    while not live.ended.is_set() and query.isActive:
        SYSTEM_CLOCK.sleep(0.1)
    found = _batches(query)
    query.stop()
    error = query.exception()
    if error is not None:
        raise error
    return found


def _append(batch: DataFrame, number: int, place: Path) -> None:
    from deltalake import CommitProperties, Transaction, write_deltalake

    rows = batch.toArrow()
    if rows.num_rows:
        write_deltalake(str(place), rows, mode="append", commit_properties=CommitProperties(app_transactions=[Transaction("live", number)]))


def _batches(query: StreamingQuery) -> tuple[Batch, ...]:
    from benchmarks.harness.engines import to_ms

    found: dict[int, Batch] = {}
    for progress in query.recentProgress:
        took = progress["durationMs"]
        # A look that found nothing is reported, too, now and then; it has added no batch.
        if "addBatch" in took:
            found.setdefault(progress["batchId"], Batch(to_ms(progress["timestamp"]), took["triggerExecution"]))
    return tuple(found[number] for number in sorted(found))
