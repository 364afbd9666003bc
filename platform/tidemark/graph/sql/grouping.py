"""GROUP BY of a query: its keys, and its aggregates as the fluent API has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidemark.graph.aggregates import builtin_aggregates as builtins
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation, SqlColumn

if TYPE_CHECKING:
    from sqlglot import exp

_COVERED: Final = (
    "count, count(DISTINCT ...), sum, avg, min, max, min_by, max_by, stddev, variance, collect_list, collect_set, approx_count_distinct"
)


def grouped(relation: Relation, select: exp.Select, site: QuerySite, uid: str | None) -> tuple[Relation, exp.Select]:
    """Return the groups of a query as a relation, and the query over them: its keys and aggregates are columns then.

    Raises:
        ExpressionError: an aggregate, or a form of GROUP BY, that is not covered.
    """
    from sqlglot import exp

    keys = _keys(select, site)
    over = select.copy()
    over.set("group", None)
    names: dict[str, str] = {}
    key_texts: dict[str, str] = {}
    for number, key in enumerate(keys):
        name = _name_of_key(key, number, select)
        names[key.sql()] = name
        key_texts[name] = relation.text(key, site)
    aggregates: dict[str, Aggregate] = {}

    def replaced(node: exp.Expr) -> exp.Expr:
        if node.sql() in names:
            return exp.column(names[node.sql()], quoted=True)
        if isinstance(node, exp.AggFunc):
            name = f"aggregate_{len(aggregates) + 1}"
            aggregates[name] = _aggregate(node, relation, site)
            names[node.sql()] = name
            return exp.column(name, quoted=True)
        return node

    expressions = []
    for number, each in enumerate(select.expressions):
        name = each.alias_or_name or f"column_{number + 1}"
        expressions.append(exp.alias_(each.unalias().copy().transform(replaced), name, quoted=True))
    over.set("expressions", expressions)
    having = over.args.get("having")
    over.set("having", None)
    over.set("where", None if having is None else exp.Where(this=having.this.transform(replaced)))
    stray = next((column for each in expressions for column in each.find_all(exp.Column) if column.name not in names.values()), None)
    if stray is not None:
        raise site.refused(
            f"{shown(stray)} is neither in GROUP BY nor in an aggregate", f"add it to GROUP BY, or write max({shown(stray)})"
        )
    if not aggregates:
        aggregates["rows_of_group"] = builtins.count()
    made = relation.stream.key_by(**key_texts).aggregate(ttl=None, **aggregates)
    made = made if uid is None else made.uid(uid)
    columns = tuple(SqlColumn("", name, name) for name in (*key_texts, *aggregates))
    return Relation(made, columns), over


def _keys(select: exp.Select, site: QuerySite) -> Sequence[exp.Expr]:
    from sqlglot import exp

    group = select.args.get("group")
    if group is None:
        if select.args.get("distinct"):
            return [each.unalias() for each in select.expressions]
        raise site.refused(
            "an aggregate without GROUP BY is not covered", "group by a constant: SELECT 'all' AS g, sum(x) ... GROUP BY 'all'"
        )
    unknown = [name for name in ("grouping_sets", "cube", "rollup", "totals") if group.args.get(name)]
    if unknown or group.args.get("all"):
        raise site.refused(
            f"GROUP BY {(unknown or ['all'])[0].replace('_', ' ').upper()} is not covered", "name the expressions of the groups"
        )
    found = []
    for key in group.expressions:
        if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise site.refused(f"GROUP BY {type(key).__name__.upper()} is not covered", "name the expressions of the groups")
        if isinstance(key, exp.Literal) and not key.is_string and 1 <= int(key.name) <= len(select.expressions):
            found.append(select.expressions[int(key.name) - 1].unalias())
        else:
            named = next((each.unalias() for each in select.expressions if isinstance(each, exp.Alias) and each.alias == key.name), None)
            found.append(named if isinstance(key, exp.Column) and not key.table and named is not None else key)
    return found


def _name_of_key(key: exp.Expr, number: int, select: exp.Select) -> str:
    """Return the name that the query gives a key, or one of its own."""
    from sqlglot import exp

    for each in select.expressions:
        if each.unalias() == key and each.alias_or_name:
            return str(each.alias_or_name)
    return key.name if isinstance(key, exp.Column) else f"key_{number + 1}"


def _aggregate(node: exp.AggFunc, relation: Relation, site: QuerySite) -> Aggregate:
    """Return an aggregate of the fluent API."""
    from sqlglot import exp

    def text(argument: exp.Expr) -> str:
        return relation.text(argument, site)

    if isinstance(node, exp.Count):
        return _count(node, text)
    one: dict[type[exp.Expr], Callable[[str], Aggregate]] = {
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
    make = one.get(type(node))
    if make is not None and not isinstance(node.this, exp.Distinct | exp.Order):
        return make(text(node.this))
    if isinstance(node, exp.ArgMax | exp.ArgMin) and node.expression is not None:
        return (builtins.max_by if isinstance(node, exp.ArgMax) else builtins.min_by)(text(node.this), text(node.expression))
    raise site.refused(f"the aggregate {shown(node)} is not covered", f"covered are {_COVERED}; others by .key_by(...).aggregate(...)")


def _count(node: exp.Count, text: Callable[[exp.Expr], str]) -> Aggregate:
    from sqlglot import exp

    if isinstance(node.this, exp.Distinct):
        first, *more = node.this.expressions
        return builtins.count_distinct(text(first), *map(text, more))
    return builtins.count() if node.this is None or isinstance(node.this, exp.Star) else builtins.count(text(node.this))
