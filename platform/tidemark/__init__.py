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
    from tidemark.graph.windowed import KeyedStream, WindowedStream
    from tidemark.graph.windowing import tumbling
    from tidemark.spark.local_sinks import clear_memory, memory_table
    from tidemark.spark.run import RunResult, run

__all__ = [
    "Aggregate",
    "Clock",
    "Job",
    "KeyedStream",
    "Output",
    "OutputTag",
    "RunResult",
    "Stream",
    "TidemarkError",
    "WindowedStream",
    "approx_count_distinct",
    "approx_percentile",
    "ascending",
    "avg",
    "bounded_out_of_orderness",
    "clear_memory",
    "collect_list",
    "collect_set",
    "console",
    "count",
    "count_distinct",
    "delta",
    "files",
    "first",
    "from_elements",
    "guarantee",
    "ingestion_time",
    "last",
    "max",
    "max_by",
    "memory",
    "memory_table",
    "min",
    "min_by",
    "parquet",
    "punctuated",
    "python_aggregate",
    "rate",
    "run",
    "source",
    "sql_aggregate",
    "stddev",
    "stddev_pop",
    "streaming_format",
    "sum",
    "top_k",
    "tumbling",
    "variance",
    "variance_pop",
    "watermark_strategy",
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
    "tidemark.graph.windowed": "KeyedStream WindowedStream",
    "tidemark.graph.windowing": "tumbling",
    "tidemark.spark.local_sinks": "clear_memory memory_table",
    "tidemark.spark.run": "RunResult run",
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
