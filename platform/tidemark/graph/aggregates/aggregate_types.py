"""The result type of an aggregate, if it is certain at definition."""

from __future__ import annotations

import re

from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, parse_sql
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.schema import Schema

_COUNTS = frozenset({"count", "count_distinct", "approx_count_distinct"})
_DOUBLES = frozenset({"stddev", "stddev_pop", "variance", "variance_pop"})
_SAME = frozenset({"min", "max", "min_by", "max_by", "first", "last"})
_LISTS = frozenset({"collect_list", "collect_set", "top_k"})
_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")


def aggregate_type(aggregate: Aggregate, schema: Schema | None) -> str | None:
    """Return the Spark type of an aggregate's result over a stream's columns, None where it is not certain."""
    if aggregate.returns is not None:
        return aggregate.returns
    if aggregate.kind in _COUNTS:
        return "BIGINT"
    if aggregate.kind in _DOUBLES:
        return "DOUBLE"
    argument = argument_type(aggregate, schema)
    if argument is None:
        return None
    if aggregate.kind in _SAME:
        return argument
    if aggregate.kind in _LISTS:
        return f"ARRAY<{argument}>"
    if aggregate.kind == "sum":
        return _sum_type(argument)
    return _average_type(argument) if aggregate.kind == "avg" else None


def argument_type(aggregate: Aggregate, schema: Schema | None) -> str | None:
    """Return the Spark type of an aggregate's first argument, None where it is not certain, or there is none."""
    if not aggregate.arguments:
        return None
    return type_of(parse_sql(aggregate.arguments[0], Site("argument", "")), schema)


def _sum_type(argument: str) -> str | None:
    decimal = _DECIMAL.fullmatch(argument)
    if decimal:
        return f"DECIMAL({min(38, int(decimal[1]) + 10)}, {decimal[2]})"
    if argument in {"TINYINT", "SMALLINT", "INT", "BIGINT"}:
        return "BIGINT"
    return "DOUBLE" if argument in {"FLOAT", "DOUBLE"} else None


def _average_type(argument: str) -> str | None:
    return "DOUBLE" if argument in {"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"} else None
