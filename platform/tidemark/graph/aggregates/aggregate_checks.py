"""Which types an aggregate accepts: as Spark does, but without implicit casts."""

from __future__ import annotations

import re
from typing import Final

from tidemark.errors import ExpressionError
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, parse_sql
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.schema import Schema

_NUMBERS: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})
_ADDED: Final = frozenset({"sum", "avg"})
_COMPUTED: Final = frozenset({"stddev", "stddev_pop", "variance", "variance_pop", "approx_percentile"})
_UNORDERED: Final = re.compile(r"\b(MAP|VARIANT)\b")
_UNHASHED: Final = {"count_distinct": re.compile(r"\bMAP\b"), "approx_count_distinct": _UNORDERED}
_SORTED_FIRST: Final = frozenset({"min", "max", "collect_list", "collect_set", "top_k"})
"""Aggregates whose first argument is sorted."""
_SORTED_SECOND: Final = frozenset({"min_by", "max_by", "top_k"})
"""Those whose second argument, ``by``, is."""


def check_argument_types(name: str, aggregate: Aggregate, schema: Schema | None, site: Site) -> None:
    """Check that an aggregate accepts its arguments' types; types that are not known before the job runs pass.

    Args:
        name: the result's column.
        aggregate: the aggregate with its arguments.
        schema: of the window's input.
        site: the site of its declaration.

    Raises:
        ExpressionError: it does not; the fix says how to convert the argument, so that state does not change.
    """
    for index, argument in enumerate(aggregate.arguments):
        kind = type_of(parse_sql(argument, site), schema)
        wanted = None if kind is None else _refused(aggregate.kind, index, kind)
        if wanted is not None and kind is not None:
            raise ExpressionError(
                f"aggregate {name!r} = {aggregate.kind}({', '.join(aggregate.arguments)}) reads {argument!r} of type {kind}, not {wanted}",
                fix=_fix(argument, kind, wanted, schema),
                uid=site.uid,
                place=site.place,
            )


def _refused(aggregate: str, index: int, kind: str) -> str | None:
    """Return what an argument should be, None if it may be of that type."""
    number = kind.partition("(")[0] in _NUMBERS
    if aggregate in _ADDED and not number and not kind.startswith("INTERVAL"):
        return "a number or an interval"
    if aggregate in _COMPUTED and not number:
        return "a number"
    if aggregate in _UNHASHED and _UNHASHED[aggregate].search(kind):
        return "one of which values can be compared"
    sorted_here = aggregate in (_SORTED_FIRST if index == 0 else _SORTED_SECOND)
    return "one of which values have an order" if sorted_here and _UNORDERED.search(kind) else None


def _fix(argument: str, kind: str, wanted: str, schema: Schema | None) -> str:
    if not wanted.startswith("a number"):
        return f"take a part of it that can be, such as a field or an item, or make it text: to_json({argument})"
    conversion = {
        "BOOLEAN": f"CAST({argument} AS INT)",
        "DATE": f"unix_date({argument})",
        "TIMESTAMP": f"unix_millis({argument})",
        "TIMESTAMP_NTZ": f"unix_millis(CAST({argument} AS TIMESTAMP))",
    }.get(kind, f"try_cast({argument} AS DOUBLE)" if kind == "STRING" or "CHAR" in kind else f"CAST({argument} AS DOUBLE)")
    if kind.startswith(("ARRAY", "MAP", "STRUCT", "BINARY", "VARIANT")):
        return "take a number out of it, such as a field or an item"
    if schema is not None and schema.find(argument) is not None:
        return f"convert the column before the window: .with_columns({argument}={conversion!r})"
    return f"convert it: {conversion!r}"
