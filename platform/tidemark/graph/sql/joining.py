"""Joins of a query: its conditions as the keys of a join, an interval of times, and what is left to filter by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from tidemark.durations import format_duration, to_ms
from tidemark.errors import DurationError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.model.nodes import Expression, FilterNode, Node, SelectNode, SourceNode, WithColumnsNode
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation

if TYPE_CHECKING:
    from sqlglot import exp

How = Literal["inner", "left", "right", "full", "semi", "anti"]

_SIDES: Final[dict[tuple[str, str], How]] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}


@dataclass(frozen=True)
class _Condition:
    """The parts of a join's condition: pairs of equal expressions, bounds of right time - left time, and the rest."""

    pairs: dict[str, str]
    bounds: dict[str, int]
    rest: tuple[exp.Expr, ...]


def joined(left: Relation, right: Relation, join: exp.Join, site: QuerySite, uid: str | None) -> Relation:
    """Return the join of two relations.

    Args:
        left: what was joined before.
        right: the table that follows.
        join: how.
        site: of the query.
        uid: of the operator.

    Raises:
        ExpressionError: a kind of join, or a condition, that is not covered.
    """
    how = _how(join, site)
    # Columns of USING with one name are one column of the result.
    using = {each.name.lower() for each in join.args.get("using") or ()}
    same = {column.actual.lower() for column in left.columns if column.name.lower() in using and column.actual == column.name}
    right = right.renamed(left.actual_names - same)
    both = Relation(left.stream, (*left.columns, *right.columns))
    found = _condition(left, right, join, site)
    if not found.pairs:
        raise site.refused(
            f"the join with {', '.join(right.tables)} has no columns that are to be equal", "write ON r.id = f.ride_id, or USING (id)"
        )
    if found.rest and how != "inner":
        raise site.refused(
            f"the condition {shown(found.rest[0])} of a join that keeps rows without a partner is not covered",
            "filter before the join, in a subquery, or join by equal columns alone",
        )
    on: dict[Expression, Expression] = dict(found.pairs.items())
    if found.bounds:
        stream = left.stream.join(right.stream, on=on, how=how, within=_interval(found.bounds, site))
    else:
        stream = left.stream.join(right.stream, on=on, how=how)
    stream = stream if uid is None else stream.uid(uid)
    for condition in found.rest:
        stream = stream.filter(both.text(condition, site))
    return _named(Relation(stream, left.columns if how in ("semi", "anti") else both.columns), join)


def _named(relation: Relation, join: exp.Join) -> Relation:
    """Return a relation in which the columns of USING have the left one's name alone."""
    using = {each.name.lower() for each in join.args.get("using") or ()}
    seen: set[str] = set()
    columns = []
    for column in relation.columns:
        if column.name.lower() in using:
            if column.name.lower() in seen:
                continue
            seen.add(column.name.lower())
        columns.append(column)
    return replace(relation, columns=tuple(columns))


def _how(join: exp.Join, site: QuerySite) -> How:
    side, kind = join.side.upper(), join.kind.upper()
    found = _SIDES.get((side, kind))
    if found is None or join.method:
        raise site.refused(
            f"a {' '.join(filter(None, (join.method, side, kind)))} join is not covered",
            "write JOIN, LEFT, RIGHT or FULL JOIN, LEFT SEMI or LEFT ANTI JOIN, with ON or USING",
        )
    return found


def _condition(left: Relation, right: Relation, join: exp.Join, site: QuerySite) -> _Condition:
    from sqlglot import exp

    pairs: dict[str, str] = {}
    bounds: dict[str, int] = {}
    rest: list[exp.Expr] = []
    for each in join.args.get("using") or ():
        column = exp.column(each.name)
        pairs[f"`{left.find(column, site).actual}`"] = f"`{right.find(column, site).actual}`"
    condition = join.args.get("on")
    for part in conjuncts(condition) if condition is not None else ():
        pair = _equal(left, right, part, site)
        if pair is not None:
            pairs[pair[0]] = pair[1]
        elif (found := _time_bounds(left, right, part, site)) is not None:
            bounds |= found
        else:
            rest.append(part)
    return _Condition(pairs, bounds, tuple(rest))


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a condition that all have to be true."""
    from sqlglot import exp

    if isinstance(condition, exp.And):
        yield from conjuncts(condition.this)
        yield from conjuncts(condition.expression)
    elif isinstance(condition, exp.Paren):
        yield from conjuncts(condition.this)
    else:
        yield condition


def _equal(left: Relation, right: Relation, part: exp.Expr, site: QuerySite) -> tuple[str, str] | None:
    """Return the left and the right expression of an equation between both sides, None for any other condition."""
    from sqlglot import exp

    if not isinstance(part, exp.EQ):
        return None
    for one, other in ((part.this, part.expression), (part.expression, part.this)):
        if one.find(exp.Column) and other.find(exp.Column) and left.covers(one) and right.covers(other):
            return left.text(one, site), right.text(other, site)
    return None


def _time_bounds(left: Relation, right: Relation, part: exp.Expr, site: QuerySite) -> dict[str, int] | None:
    """Return the bounds, by ``lower`` and ``upper``, that a condition sets to the right time - the left time; None for any other one."""
    from sqlglot import exp

    if isinstance(part, exp.Between):
        lower = _time_bounds(left, right, exp.GTE(this=part.this.copy(), expression=part.args["low"].copy()), site)
        upper = _time_bounds(left, right, exp.LTE(this=part.this.copy(), expression=part.args["high"].copy()), site)
        return None if lower is None or upper is None else lower | upper
    if not isinstance(part, exp.GTE | exp.LTE):
        return None
    one, other = _shifted(part.this, site), _shifted(part.expression, site)
    if one is None or other is None:
        return None
    (first, plus), (second, more) = one, other
    # Both sides of the comparison are a time, shifted.
    distance = more - plus
    if _is_time(right, first) and _is_time(left, second):
        return {"lower" if isinstance(part, exp.GTE) else "upper": distance}
    if _is_time(left, first) and _is_time(right, second):
        return {"upper" if isinstance(part, exp.GTE) else "lower": -distance}
    return None


def _shifted(expression: exp.Expr, site: QuerySite) -> tuple[exp.Column, int] | None:
    """Return the column of an expression that adds an interval to one, or takes it from it, and the milliseconds; None for any other."""
    from sqlglot import exp

    expression = expression.unnest()
    if isinstance(expression, exp.Column):
        return expression, 0
    if isinstance(expression, exp.Add | exp.Sub) and isinstance(expression.expression, exp.Interval):
        base = _shifted(expression.this, site)
        ms = _interval_ms(expression.expression, site)
        return None if base is None else (base[0], base[1] + (ms if isinstance(expression, exp.Add) else -ms))
    return None


def _interval_ms(interval: exp.Interval, site: QuerySite) -> int:
    unit = interval.args.get("unit")
    amount = interval.this.name if interval.this is not None else ""
    text = f"{amount} {unit.name.lower()}" if unit is not None else amount
    try:
        return to_ms(text, what="INTERVAL", place=site.place)
    except DurationError as error:
        raise site.refused(
            f"{shown(interval)} is no interval of a fixed length", "write INTERVAL 10 MINUTES, or of hours or days"
        ) from error


def _is_time(relation: Relation, column: exp.Column) -> bool:
    """Return whether a column is the event time of a relation's stream, which is only added to."""
    if not relation.has(column) or changelog_keys(relation.stream.node) is not None:
        return False
    actual = next(each.actual for each in relation.columns if each.name.lower() == column.name.lower())
    return (_event_time(relation.stream.node) or "").lower() == actual.lower()


def _event_time(node: Node) -> str | None:
    """Return the column that has the event time of a node's rows, None where none has it, or that is not known."""
    if isinstance(node, SourceNode):
        timestamp = node.watermarks.timestamp
        return timestamp if isinstance(timestamp, str) else None
    if isinstance(node, FilterNode):
        return _event_time(node.input)
    if isinstance(node, SelectNode | WithColumnsNode):
        before = _event_time(node.input)
        if before is None:
            return None
        kept = [name for name, text in node.columns if isinstance(text, str) and text.strip("` ").lower() == before.lower()]
        if kept:
            return kept[0]
        replaced = any(name.lower() == before.lower() for name, _ in node.columns)
        return None if isinstance(node, SelectNode) or replaced else before
    return None


def _interval(bounds: dict[str, int], site: QuerySite) -> tuple[str, str]:
    missing = {"lower", "upper"} - set(bounds)
    if missing:
        raise site.refused(
            "the times of a join have a bound on one side only: its state would have no end",
            "write f.at BETWEEN r.at - INTERVAL 10 MINUTES AND r.at + INTERVAL 1 HOUR",
        )
    return _text(bounds["lower"]), _text(bounds["upper"])


def _text(ms: int) -> str:
    return f"-{format_duration(-ms)}" if ms < 0 else format_duration(ms) if ms else "0 seconds"


def pushed_down(relations: Sequence[Relation], conditions: Sequence[exp.Expr], site: QuerySite) -> tuple[list[Relation], list[exp.Expr]]:
    """Return relations filtered by the conditions that read one of them alone, and the other conditions."""
    rest: list[exp.Expr] = []
    found = list(relations)
    for condition in conditions:
        number = next((n for n, relation in enumerate(found) if relation.covers(condition)), None)
        alone = number is not None and sum(relation.covers(condition) for relation in found) == 1
        if number is None or not alone:
            rest.append(condition)
        else:
            filtered = found[number].stream.filter(found[number].text(condition, site))
            found[number] = replace(found[number], stream=filtered)
    return found, rest
