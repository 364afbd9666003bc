"""The engines that count fares by driver and hour in a process function in Python, with state and timers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tidemark as tm
from benchmarks.functions.process_functions import LATE_ROWS, RETURNS, HourlyFares, HourlyFaresInBatches
from benchmarks.harness.engines import Drained, Engine, run_stock, run_tidemark, stock_fares, tidemark_fares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def drain_function(engine: Engine, spark: SparkSession, files: Path, folder: Path, *, files_per_epoch: int) -> Drained:
    """Run the job over all files; the arguments and errors are those of ``engines.drain``."""
    if engine.startswith("tidemark"):
        late = tm.OutputTag("late_fares")
        function = HourlyFaresInBatches(late) if engine == "tidemark-process-batch" else HourlyFares(late)
        keyed = tidemark_fares(files, files_per_epoch).key_by("driver")
        hourly = keyed.process(function, returns=RETURNS, side_outputs={late: LATE_ROWS}).uid("fares-by-driver")
        return run_tidemark(spark, folder, hourly, late)
    from benchmarks.functions.stock_process_functions import HourlyFrames, HourlyRows

    grouped = stock_fares(spark, files, files_per_epoch).groupBy("driver")
    if engine == "spark-tws-rows":
        return run_stock(grouped.transformWithState(HourlyRows(), RETURNS, "Append", "EventTime"), folder)
    return run_stock(grouped.transformWithStateInPandas(HourlyFrames(), RETURNS, "Append", "EventTime"), folder)
