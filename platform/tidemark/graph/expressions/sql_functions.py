"""Functions of Spark SQL that are not allowed in an expression over one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

# Spark's aggregates that sqlglot has no class for, and so does not mark as aggregates.
_AGGREGATES = frozenset(
    {
        "any",
        "bitmap_and_agg",
        "collect_union",
        "count_min_sketch",
        "every",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kll_merge_agg_bigint",
        "kll_merge_agg_double",
        "kll_merge_agg_float",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "mean",
        "measure",
        "some",
        "std",
        "theta_intersection_agg",
        "theta_sketch_agg",
        "theta_union_agg",
        "try_avg",
        "try_sum",
        "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer",
        "tuple_sketch_agg_double",
        "tuple_sketch_agg_integer",
        "tuple_union_agg_double",
        "tuple_union_agg_integer",
    }
)
_WINDOW_FUNCTIONS = frozenset(
    {"lead", "counter_diff", "lag", "rank", "ntile", "percent_rank", "row_number", "cume_dist", "nth_value", "dense_rank"}
)
_GENERATORS = frozenset(
    {"stack", "json_tuple", "variant_explode", "variant_explode_outer", "inline_outer", "posexplode_outer", "explode_outer"}
)
_TIME_WINDOWS = frozenset({"window", "session_window", "window_time"})


@dataclass(frozen=True)
class Forbidden:
    """A function that may not be used, in words, and what to do instead."""

    what: str
    fix: str


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a parsed expression is itself a call of an aggregate function."""
    from sqlglot import exp

    name = function_name(node)
    return (isinstance(node, exp.AggFunc) and name not in _WINDOW_FUNCTIONS) or name in _AGGREGATES


def forbidden_function(parsed: exp.Expr) -> Forbidden | None:
    """Return the first function in an expression that is not a function of one row, or None.

    >>> import sqlglot
    >>> forbidden_function(sqlglot.parse_one("sum(fare) + 1", dialect="spark")).what
    "the aggregate 'sum'"
    """
    from sqlglot import exp

    generators = (exp.Explode, exp.Posexplode, exp.Inline, exp.Stack, exp.UDTF)
    for node in parsed.walk(bfs=False):
        name = function_name(node)
        if isinstance(node, exp.Window) or name in _WINDOW_FUNCTIONS:
            what = f"the window function {name!r}" if name else "a window function (OVER)"
            return Forbidden(what, "use .key_by(...).window(...).aggregate(...), or .transform(...) within an epoch")
        if is_aggregate(node):
            return Forbidden(f"the aggregate {name!r}", "aggregate per window: .key_by(...).window(tm.tumbling('1 hour')).aggregate(...)")
        if isinstance(node, generators) or name in _GENERATORS:
            return Forbidden(f"the generator {name!r}", "make several rows of one with .explode('items', as_='item')")
        if name in _TIME_WINDOWS:
            return Forbidden(f"the function {name!r}", "put elements into windows with .key_by(...).window(tm.tumbling('1 hour'))")
    return None


def function_name(node: exp.Expr) -> str:
    """Return the name of the function that a parsed expression is a call of, in lower case; empty for other expressions."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if isinstance(node, exp.Any):
        # LIKE ANY (…) and LIKE SOME (…) compare one row's value with several patterns.
        return "" if isinstance(node.parent, exp.Like | exp.ILike) else "any"
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""
