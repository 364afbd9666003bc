"""Aggregates of a query, as the fluent API has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.graph.aggregates import builtin_aggregates as builtins
from tidemark.graph.expressions.sql_functions import is_aggregate
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation

if TYPE_CHECKING:
    from sqlglot import exp

_COVERED: Final = (
    "count, count(DISTINCT ...), sum, avg, min, max, min_by, max_by, stddev, variance, collect_list, collect_set, approx_count_distinct"
)
_READ: Final[Mapping[str, frozenset[str]]] = {
    "Count": frozenset({"this", "expressions", "big_int"}),
    "ArgMax": frozenset({"this", "expression"}),
    "ArgMin": frozenset({"this", "expression"}),
    "ArrayAgg": frozenset({"this", "nulls_excluded"}),
}
"""The arguments of an aggregate that are read, of others ``this`` alone."""


def aggregate_of(node: exp.Expr, relation: Relation, site: QuerySite) -> Aggregate:
    """Return an aggregate of the fluent API.

    Raises:
        ExpressionError: it is not covered.
    """
    from sqlglot import exp

    refused = site.refused(f"the aggregate {shown(node)} is not covered", f"covered are {_COVERED}; others by .key_by(...).aggregate(...)")
    if isinstance(node.parent, exp.Filter):
        condition = node.parent.expression.this
        raise site.refused(f"{shown(node.parent)} is not covered", f"aggregate CASE WHEN {shown(condition)} THEN ... END")
    nested = any(is_aggregate(each) for each in node.walk() if each is not node)
    one = _of_one_value()
    if nested or isinstance(node.parent, _wrappers()) or not isinstance(node, (exp.Count, exp.ArgMax, exp.ArgMin, *one)):
        raise refused
    others = {name for name, value in node.args.items() if value is not None and value is not False and value != []}
    others -= _READ.get(type(node).__name__, frozenset({"this"}))
    if others:
        raise site.refused(f"the {min(others).strip('_')} given to {shown(node)} is not covered", "leave it out")

    def text(argument: exp.Expr) -> str:
        return relation.text(argument, site)

    if isinstance(node, exp.Count):
        return _count(node, text)
    make = one.get(type(node))
    if make is not None and not isinstance(node.this, exp.Distinct | exp.Order):
        return make(text(node.this))
    if isinstance(node, exp.ArgMax | exp.ArgMin) and node.args.get("expression") is not None:
        return (builtins.max_by if isinstance(node, exp.ArgMax) else builtins.min_by)(text(node.this), text(node.expression))
    raise refused


def _of_one_value() -> Mapping[type[exp.Expr], Callable[[str], Aggregate]]:
    """Return the aggregates of one value."""
    from sqlglot import exp

    return {
        exp.Sum: builtins.sum,
        exp.Avg: builtins.avg,
        exp.Min: builtins.min,
        exp.Max: builtins.max,
        exp.Stddev: builtins.stddev,
        exp.StddevSamp: builtins.stddev,
        exp.StddevPop: builtins.stddev_pop,
        exp.Variance: builtins.variance,
        exp.VariancePop: builtins.variance_pop,
        exp.ArrayAgg: builtins.collect_list,
        exp.ArrayUniqueAgg: builtins.collect_set,
        exp.ApproxDistinct: builtins.approx_count_distinct,
    }


def _count(node: exp.Count, text: Callable[[exp.Expr], str]) -> Aggregate:
    from sqlglot import exp

    if isinstance(node.this, exp.Distinct):
        first, *more = node.this.expressions
        return builtins.count_distinct(text(first), *map(text, more))
    if node.expressions:
        present = " AND ".join(f"({text(each)}) IS NOT NULL" for each in (node.this, *node.expressions))
        return builtins.count(f"CASE WHEN {present} THEN 1 END")
    return builtins.count() if node.this is None or isinstance(node.this, exp.Star) else builtins.count(text(node.this))


def _wrappers() -> tuple[type[exp.Expr], ...]:
    """Return what changes the meaning of the aggregate that it stands around."""
    from sqlglot import exp

    return exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup
