"""Tidemark: streams for teams that run Spark and Dagster.

The public names are loaded at first use, so that ``import tidemark`` costs next to nothing and starts no JVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_MODULES = {
    "tidemark.graph.nodes": ("OutputTag", "Output", "Expression"),
    "tidemark.graph.aggregates": ("Aggregate", "Partial", "PythonFunction"),
    "tidemark.graph.builtin_aggregates": (
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "min_by",
        "max_by",
        "first",
        "last",
        "stddev",
        "stddev_pop",
        "variance",
        "variance_pop",
        "collect_list",
        "collect_set",
        "count_distinct",
        "approx_count_distinct",
        "approx_percentile",
        "top_k",
        "sql_aggregate",
        "python_aggregate",
    ),
    "tidemark.graph.streams": ("Stream",),
    "tidemark.graph.windowed": ("KeyedStream", "WindowedStream"),
    "tidemark.graph.sources": ("source", "from_elements", "files", "streaming_format", "rate"),
    "tidemark.graph.strategies": ("bounded_out_of_orderness", "ascending", "punctuated", "ingestion_time", "watermark_strategy"),
    "tidemark.graph.windowing": ("tumbling",),
    "tidemark.graph.sinks": ("delta", "parquet", "console", "memory", "guarantee"),
    "tidemark.graph.job": ("Job",),
    "tidemark.errors": ("TidemarkError",),
    "tidemark.spark.run": ("run", "RunResult"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
