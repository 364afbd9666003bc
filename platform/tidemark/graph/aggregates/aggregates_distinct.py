"""Aggregates of distinct values: exact ones keep every value in state, the approximate one a sketch of 4 KiB.

Spark keeps one object per key for these; with many keys per epoch it sorts.
"""

from __future__ import annotations

import math

from tidemark.graph.aggregates.aggregate_arguments import in_template, number_between, sql_argument
from tidemark.graph.model.aggregates import Aggregate, Partial

_MIN_ERROR = 0.001
_MAX_ERROR = 0.25


def collect_set(expression: str) -> Aggregate:
    """List the distinct values that are not null, sorted ascending; NaN equals NaN and comes last, -0.0 equals 0.0.

    Result: ARRAY of the expression's type (orderable: no MAP, no VARIANT), exact, empty where there is no value.
    State holds every distinct value.
    """
    argument = sql_argument("collect_set", expression)
    return Aggregate("collect_set", (argument,), (_distinct(in_template(argument)),), "array_sort({values})")


def count_distinct(expression: str, *more: str) -> Aggregate:
    """Count the distinct values that are not null; of several expressions, the distinct combinations in which none is null.

    Result: BIGINT, exact, never null. State holds every distinct value; if that is too much, use ``approx_count_distinct``.
    """
    arguments = tuple(sql_argument("count_distinct", each) for each in (expression, *more))
    return Aggregate("count_distinct", arguments, (_distinct(_combined(arguments, "struct")),), "CAST(size({values}) AS BIGINT)")


def approx_count_distinct(expression: str, *more: str, relative_error: float = 0.02) -> Aggregate:
    """Estimate the number of distinct values that are not null, with a HyperLogLog sketch.

    Args:
        expression: any type that can be hashed (no MAP, no VARIANT).
        more: further expressions, to count combinations in which none is null.
        relative_error: the estimate's standard error, 0.001 to 0.25; state per key and window is about (1 / error)² bytes,
            less while there are few values.

    Result: BIGINT, never null. The same values give the same estimate, however they were split and merged.

    Raises:
        DefinitionError: relative_error is out of range.
    """
    arguments = tuple(sql_argument("approx_count_distinct", each) for each in (expression, *more))
    error = number_between("approx_count_distinct", "relative_error", relative_error, minimum=_MIN_ERROR, maximum=_MAX_ERROR)
    # 1.04 / sqrt(2 ** registers) is the standard error of HyperLogLog.
    registers = math.ceil(2 * math.log2(1.04 / error))
    # Hashed first: the sketch takes few types, a cast to text depends on the session's time zone, and -0.0 and 0.0 have one hash.
    create = f"hll_sketch_agg({_combined(arguments, 'xxhash64')}, {registers})"
    combine = "coalesce(hll_union({left_sketch}, {right_sketch}), {left_sketch}, {right_sketch})"
    partial = Partial("sketch", create, "hll_union_agg({sketch})", "hll_union_agg({sketch}){over}", combine)
    # A sketch fed value by value is estimated from the order they came in; a union is estimated from the registers alone.
    return Aggregate("approx_count_distinct", arguments, (partial,), "hll_sketch_estimate(hll_union({sketch}, {sketch}))")


def _distinct(value: str) -> Partial:
    return Partial("values", f"collect_set({value})", "collect_union({values})")


def _combined(arguments: tuple[str, ...], function: str) -> str:
    """Return the arguments as one value, null if one of them is."""
    values = [in_template(argument) for argument in arguments]
    if function == "struct" and len(values) == 1:
        return values[0]
    present = " AND ".join(f"{value} IS NOT NULL" for value in values)
    return f"CASE WHEN {present} THEN {function}({', '.join(values)}) END"
