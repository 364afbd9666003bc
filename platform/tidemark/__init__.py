"""Tidemark: streams for teams that run Spark and Dagster.

The public names are loaded at first use, so that ``import tidemark`` costs next to nothing and starts no JVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.clock import Clock
    from tidemark.errors import TidemarkError
    from tidemark.graph.aggregates import Aggregate
    from tidemark.graph.builtin_aggregates import (
        approx_count_distinct,
        approx_percentile,
        avg,
        collect_list,
        collect_set,
        count,
        count_distinct,
        first,
        last,
        max,
        max_by,
        min,
        min_by,
        python_aggregate,
        sql_aggregate,
        stddev,
        stddev_pop,
        sum,
        top_k,
        variance,
        variance_pop,
    )
    from tidemark.graph.job import Job
    from tidemark.graph.nodes import Output, OutputTag
    from tidemark.graph.sinks import (
        console,
        delta,
        guarantee,
        memory,
        parquet,
    )
    from tidemark.graph.sources import (
        files,
        from_elements,
        rate,
        source,
        streaming_format,
    )
    from tidemark.graph.strategies import (
        ascending,
        bounded_out_of_orderness,
        ingestion_time,
        punctuated,
        watermark_strategy,
    )
    from tidemark.graph.streams import Stream
    from tidemark.graph.window_evictors import (
        count_evictor,
        delta_evictor,
        time_evictor,
    )
    from tidemark.graph.window_functions import window_function
    from tidemark.graph.window_triggers import (
        continuous_event_time_trigger,
        continuous_processing_time_trigger,
        count_trigger,
        delta_trigger,
        each_epoch_trigger,
        event_time_trigger,
        never_trigger,
        processing_time_trigger,
        purging_trigger,
    )
    from tidemark.graph.windowed import KeyedStream, WindowedStream
    from tidemark.graph.windowing import count_window, cumulative, global_window, session, sliding, tumbling
    from tidemark.savepoints.checking import check
    from tidemark.savepoints.of_job import abort_rewind, export_savepoint, import_savepoint, savepoints_of
    from tidemark.savepoints.restore import Restore
    from tidemark.savepoints.savepoint import Savepoint
    from tidemark.savepoints.savepoint_store import SavepointStore
    from tidemark.semantics.evictors import Evictor, TimedRow
    from tidemark.semantics.function_calls import WindowContext
    from tidemark.semantics.triggers import MergeContext, QuietTrigger, Trigger, TriggerContext, TriggerResult
    from tidemark.semantics.windows import Window
    from tidemark.spark.late_publication import rewind
    from tidemark.spark.local_sinks import clear_memory, memory_table
    from tidemark.spark.run import RunResult, run
    from tidemark.spark.savepoint_writer import changed_savepoint, new_savepoint
    from tidemark.spark.state_processor import savepoint

__all__ = [
    "Aggregate",
    "Clock",
    "Evictor",
    "Job",
    "KeyedStream",
    "MergeContext",
    "Output",
    "OutputTag",
    "QuietTrigger",
    "Restore",
    "RunResult",
    "Savepoint",
    "SavepointStore",
    "Stream",
    "TidemarkError",
    "TimedRow",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "Window",
    "WindowContext",
    "WindowedStream",
    "abort_rewind",
    "approx_count_distinct",
    "approx_percentile",
    "ascending",
    "avg",
    "bounded_out_of_orderness",
    "changed_savepoint",
    "check",
    "clear_memory",
    "collect_list",
    "collect_set",
    "console",
    "continuous_event_time_trigger",
    "continuous_processing_time_trigger",
    "count",
    "count_distinct",
    "count_evictor",
    "count_trigger",
    "count_window",
    "cumulative",
    "delta",
    "delta_evictor",
    "delta_trigger",
    "each_epoch_trigger",
    "event_time_trigger",
    "export_savepoint",
    "files",
    "first",
    "from_elements",
    "global_window",
    "guarantee",
    "import_savepoint",
    "ingestion_time",
    "last",
    "max",
    "max_by",
    "memory",
    "memory_table",
    "min",
    "min_by",
    "never_trigger",
    "new_savepoint",
    "parquet",
    "processing_time_trigger",
    "punctuated",
    "purging_trigger",
    "python_aggregate",
    "rate",
    "rewind",
    "run",
    "savepoint",
    "savepoints_of",
    "session",
    "sliding",
    "source",
    "sql_aggregate",
    "stddev",
    "stddev_pop",
    "streaming_format",
    "sum",
    "time_evictor",
    "top_k",
    "tumbling",
    "variance",
    "variance_pop",
    "watermark_strategy",
    "window_function",
]

_NAMES = {
    "tidemark.clock": "Clock",
    "tidemark.errors": "TidemarkError",
    "tidemark.graph.aggregates": "Aggregate",
    "tidemark.graph.builtin_aggregates": (
        "approx_count_distinct approx_percentile avg collect_list collect_set count count_distinct first last max max_by min min_by "
        "python_aggregate sql_aggregate stddev stddev_pop sum top_k variance variance_pop"
    ),
    "tidemark.graph.job": "Job",
    "tidemark.graph.nodes": "Output OutputTag",
    "tidemark.graph.sinks": "console delta guarantee memory parquet",
    "tidemark.graph.sources": "files from_elements rate source streaming_format",
    "tidemark.graph.strategies": "ascending bounded_out_of_orderness ingestion_time punctuated watermark_strategy",
    "tidemark.graph.streams": "Stream",
    "tidemark.graph.window_evictors": "count_evictor delta_evictor time_evictor",
    "tidemark.graph.window_functions": "window_function",
    "tidemark.graph.window_triggers": (
        "continuous_event_time_trigger continuous_processing_time_trigger count_trigger delta_trigger each_epoch_trigger "
        "event_time_trigger never_trigger processing_time_trigger purging_trigger"
    ),
    "tidemark.graph.windowed": "KeyedStream WindowedStream",
    "tidemark.graph.windowing": "count_window cumulative global_window session sliding tumbling",
    "tidemark.savepoints.checking": "check",
    "tidemark.savepoints.of_job": "abort_rewind export_savepoint import_savepoint savepoints_of",
    "tidemark.spark.late_publication": "rewind",
    "tidemark.savepoints.restore": "Restore",
    "tidemark.savepoints.savepoint": "Savepoint",
    "tidemark.savepoints.savepoint_store": "SavepointStore",
    "tidemark.semantics.evictors": "Evictor TimedRow",
    "tidemark.semantics.function_calls": "WindowContext",
    "tidemark.semantics.triggers": "MergeContext QuietTrigger Trigger TriggerContext TriggerResult",
    "tidemark.semantics.windows": "Window",
    "tidemark.spark.local_sinks": "clear_memory memory_table",
    "tidemark.spark.run": "RunResult run",
    "tidemark.spark.savepoint_writer": "changed_savepoint new_savepoint",
    "tidemark.spark.state_processor": "savepoint",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
