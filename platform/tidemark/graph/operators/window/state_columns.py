"""The columns of a window operator's state: their names, and their types as far as the graph alone determines them."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.graph.aggregates.aggregate_types import aggregate_type, argument_type
from tidemark.graph.expressions.expression_types import expression_type
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.state_names import element_column, key_column, partial_column
from tidemark.graph.operators.window.columns import aggregate_columns
from tidemark.graph.operators.window.execution import is_incremental
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.process.evictors import CountEvictor, TimeEvictor
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)

_SIMPLE = (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    CountEvictor,
    TimeEvictor,
)
_MOMENTS = "STRUCT<n: BIGINT, mean: DOUBLE, m2: DOUBLE>"


def looks_at_rows(rule: object) -> bool:
    """Return whether a trigger or evictor may read the rows of elements; a user's class may."""
    if rule is None or isinstance(rule, _SIMPLE):
        return False
    if isinstance(rule, EventTimeTrigger):
        return looks_at_rows(rule.early) or looks_at_rows(rule.late)
    return looks_at_rows(rule.inner) if isinstance(rule, PurgingTrigger) else True


def needed_columns(node: WindowNode) -> frozenset[str] | None:
    """Return, in lower case, the columns that an operator's results are made of; None for all."""
    if node.function is not None and not node.aggregates:
        return None
    if looks_at_rows(node.trigger) or looks_at_rows(node.evictor):
        return None
    sites = ((aggregate, Site(f"aggregate {name!r}", node.place, node.uid)) for name, aggregate in node.aggregates)
    return frozenset(column.lower() for aggregate, site in sites for column in aggregate_columns(aggregate, site))


def state_columns(node: WindowNode, given: Schema | None) -> dict[str, str | None] | None:
    """Return the columns of keys, and of partials or elements, with their Spark types, in order; a type is None if it is not certain.

    None if elements are kept whose columns only the running source knows. The engine's internal columns are not included.
    """
    found = {key_column(name): expression_type(expression, given) for name, expression in node.keys}
    if is_incremental(node):
        found |= {
            partial_column(name, partial): kind for name, aggregate in node.aggregates for partial, kind in partial_types(aggregate, given)
        }
        return found
    needed = needed_columns(node)
    if given is None:
        return None
    kept = [column for column in given.columns if needed is None or column.name.lower() in needed]
    return found | {element_column(column.name): column.type for column in kept}


def partial_types(aggregate: Aggregate, given: Schema | None) -> Iterator[tuple[str, str | None]]:
    """Yield the partials of an aggregate with their Spark types, None for one that is not certain."""
    for partial in aggregate.partials:
        yield partial.name, _partial_type(aggregate, partial.name, given)


def _partial_type(aggregate: Aggregate, partial: str, given: Schema | None) -> str | None:
    match aggregate.kind, partial:
        case _ if (aggregate.kind, partial) in _FIXED:
            return _FIXED[aggregate.kind, partial]
        case ("sum" | "min" | "max", _):
            return aggregate_type(aggregate, given)
        case ("avg", "sum" | "mean"):
            # Of decimals these have types that no rule here knows.
            return aggregate_type(aggregate, given)
        case ("collect_set" | "count_distinct", "values") if len(aggregate.arguments) == 1:
            argument = argument_type(aggregate, given)
            return f"ARRAY<{argument}>" if argument else None
    return None


_FIXED = {
    ("count", "count"): "BIGINT",
    ("avg", "count"): "BIGINT",
    ("approx_count_distinct", "sketch"): "BINARY",
    **{(kind, "moments"): _MOMENTS for kind in ("variance", "variance_pop", "stddev", "stddev_pop")},
}
