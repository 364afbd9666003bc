"""The aggregates that come with Tidemark, under the names that users of Spark SQL know."""

from __future__ import annotations

from tidemark.graph.aggregates.aggregates_custom import python_aggregate, sql_aggregate
from tidemark.graph.aggregates.aggregates_distinct import approx_count_distinct, collect_set, count_distinct
from tidemark.graph.aggregates.aggregates_numeric import avg, count, max, min, stddev, stddev_pop, sum, variance, variance_pop
from tidemark.graph.aggregates.aggregates_ordered import collect_list, first, last, max_by, min_by, top_k
from tidemark.graph.aggregates.aggregates_percentile import approx_percentile

__all__ = [
    "approx_count_distinct",
    "approx_percentile",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "max_by",
    "min",
    "min_by",
    "python_aggregate",
    "sql_aggregate",
    "stddev",
    "stddev_pop",
    "sum",
    "top_k",
    "variance",
    "variance_pop",
]
