"""Joins of a query: its conditions as the keys of a join, an interval of times, and what is left to filter by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from tidemark.durations import format_duration, to_ms
from tidemark.errors import DurationError, ExpressionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.model.nodes import Expression, FilterNode, Node, SelectNode, SourceNode, WithColumnsNode
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation, SqlColumn

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


_BOUNDS: Final = 2
"""A lower and an upper one."""


@dataclass(frozen=True)
class _Condition:
    """The parts of a join's condition: pairs of equal expressions, bounds of right time - left time, and the rest."""

    pairs: tuple[tuple[str, str], ...]
    bounds: dict[str, int]
    rest: tuple[exp.Expr, ...]


def joined(left: Relation, right: Relation, join: exp.Join, site: QuerySite, *, uid: str | None, where: Sequence[exp.Expr]) -> Relation:
    """Return the join of two relations.

    Args:
        left: what was joined before.
        right: the table that follows.
        join: how.
        site: of the query.
        uid: of the operator.
        where: the conditions of the query's rows, none of which may bound the times of the join.

    Raises:
        ExpressionError: a kind of join, or a condition, that is not covered.
    """
    how = _how(join, site)
    # Columns of USING are one column of the result.
    using = _using(left, join, site)
    right = right.renamed(left.actual_names - {column.actual.lower() for column in using})
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
    _refuse_misplaced_bounds(left, right, found, where, site)
    on = _compared(found.pairs)
    if found.bounds:
        stream = left.stream.join(right.stream, on=on, how=how, within=_interval(found.bounds, site))
    else:
        stream = left.stream.join(right.stream, on=on, how=how)
    stream = stream if uid is None else stream.uid(uid)
    if how in ("semi", "anti"):
        return replace(left, stream=stream)
    made = _result(left, right, how, using, stream)
    for condition in found.rest:
        made = replace(made, stream=made.stream.filter(made.text(condition, site)))
    return made


def _compared(pairs: Sequence[tuple[str, str]]) -> dict[Expression, Expression]:
    """Return what a join compares. Where an expression is compared with several, it is written differently each time."""
    on: dict[Expression, Expression] = {}
    for one, other in dict.fromkeys(pairs):
        left = one
        while left in on:
            left = f"({left})"
        on[left] = other
    return on


def _using(left: Relation, join: exp.Join, site: QuerySite) -> tuple[SqlColumn, ...]:
    """Return the left columns of USING."""
    from sqlglot import exp

    found = tuple(left.find(exp.column(each.name, quoted=True), site) for each in join.args.get("using") or ())
    other = next((column for column in found if column.actual != column.name), None)
    if other is not None:
        raise site.refused(f"USING ({other.name}) after a join that has two such columns is not covered", "write ON, with the tables")
    return found


def _result(left: Relation, right: Relation, how: How, using: Sequence[SqlColumn], stream: Stream) -> Relation:
    """Return the rows of a join.

    The columns of USING come first, also of those of a table, and hold the value of the side that has the row. Where a table's rows may
    be missing, its name and theirs would mean another value, which results do not have.
    """
    shared = {column.name.lower(): column for column in using}
    actual = {column.actual.lower() for column in using}
    lost = {"inner": (False, False), "left": (False, True), "right": (True, False)}.get(how, (True, True))

    def missing(column: SqlColumn) -> SqlColumn:
        reason = f"{column.table}.{column.name} after a {how.upper()} JOIN with USING ({column.name}) is not covered"
        return replace(column, refused=(reason, f"write {column.name}, which is there for all rows, or join with ON {_equation(column)}"))

    one = [missing(column) if lost[0] and column.actual.lower() in actual and not column.refused else column for column in left.of_tables]
    other = [
        column
        if column.name.lower() not in shared
        else missing(column)
        if lost[1]
        else replace(column, actual=shared[column.name.lower()].actual)
        for column in right.of_tables
    ]
    rest = [column for column in left.columns if column.actual.lower() not in actual]
    rest += [column for column in right.columns if column.name.lower() not in shared]
    one.sort(key=lambda column: column.actual.lower() not in actual)
    other.sort(key=lambda column: column.name.lower() not in shared)
    return Relation(stream, (*dict.fromkeys(using), *rest), (*one, *other))


def _equation(column: SqlColumn) -> str:
    return f"{column.table}.{column.name} = ..."


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

    pairs: list[tuple[str, str]] = []
    bounds: dict[str, int] = {}
    rest: list[exp.Expr] = []
    for each in join.args.get("using") or ():
        column = exp.column(each.name, quoted=True)
        pairs.append((left.text(column, site), right.text(column, site)))
    condition = join.args.get("on")
    both = Relation(left.stream, (*left.columns, *right.columns), (*left.of_tables, *right.of_tables))
    for part in conjuncts(condition) if condition is not None else ():
        for column in part.find_all(exp.Column):
            both.find(column, site)
        pair = _equal(left, right, part, site)
        if pair is not None:
            pairs.append(pair)
        elif (found := _time_bounds(left, right, part, site)) is not None:
            bounds = _both(bounds, found)
        else:
            rest.append(part)
    return _Condition(tuple(pairs), bounds, tuple(rest))


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
        return None if lower is None or upper is None else _both(lower, upper)
    if not isinstance(part, exp.GTE | exp.LTE):
        return None
    one, other = _shifted(part.this, site), _shifted(part.expression, site)
    if one is None or other is None:
        return None
    (first, plus), (second, more) = one, other
    # Both sides of the comparison are a time, shifted.
    distance = more - plus
    if _is_time(right, first, site) and _is_time(left, second, site):
        return {"lower" if isinstance(part, exp.GTE) else "upper": distance}
    if _is_time(left, first, site) and _is_time(right, second, site):
        return {"upper" if isinstance(part, exp.GTE) else "lower": -distance}
    return None


def _refuse_misplaced_bounds(left: Relation, right: Relation, found: _Condition, where: Sequence[exp.Expr], site: QuerySite) -> None:
    """Check that the times of a join without both bounds are not compared where the join does not see it.

    Raises:
        ExpressionError: WHERE has a bound, or ON has one by ``<`` or ``>``.
    """
    if len(found.bounds) == _BOUNDS:
        return
    for part in where:
        if _compares_times(left, right, part, site):
            raise site.refused(
                f"WHERE has the bound {shown(part)} on the times of both sides of a join, which would keep its rows for ever",
                f"move it to ON: JOIN {right.tables[0]} ON ... AND {shown(_inclusive(part))}, which makes it an interval join",
            )
    for part in found.rest:
        if _compares_times(left, right, part, site):
            raise site.refused(
                f"the bound {shown(part)} of the times of a join is not inclusive, as those of an interval join are",
                f"write {shown(_inclusive(part))}",
            )


def _compares_times(left: Relation, right: Relation, part: exp.Expr, site: QuerySite) -> bool:
    """Return whether a condition bounds the distance of both times, inclusively or not."""
    try:
        return _time_bounds(left, right, _inclusive(part), site) is not None
    except ExpressionError:
        # An interval without a fixed length, such as a month, may stand in a condition of rows.
        return False


def _inclusive(part: exp.Expr) -> exp.Expr:
    """Return a comparison by ``<`` or ``>`` as one by ``<=`` or ``>=``, any other condition as it is."""
    from sqlglot import exp

    kinds: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.GTE, exp.LT: exp.LTE}
    kind = kinds.get(type(part))
    return part if kind is None else kind(this=part.this.copy(), expression=part.expression.copy())


def _both(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the bounds of times that are within those of both."""
    found = {**one, **other}
    for bound, closer in (("lower", max), ("upper", min)):
        if bound in one and bound in other:
            found[bound] = closer(one[bound], other[bound])
    return found


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


def _is_time(relation: Relation, column: exp.Column, site: QuerySite) -> bool:
    """Return whether a column is the event time of a relation's stream, which is only added to."""
    if not relation.has(column) or changelog_keys(relation.stream.node) is not None:
        return False
    return (_event_time(relation.stream.node) or "").lower() == relation.find(column, site).actual.lower()


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
            "write f.at BETWEEN r.at - INTERVAL 10 MINUTES AND r.at + INTERVAL 1 HOUR after ON",
        )
    return _text(bounds["lower"]), _text(bounds["upper"])


def _text(ms: int) -> str:
    return f"-{format_duration(-ms)}" if ms < 0 else format_duration(ms) if ms else "0 seconds"


def pushed_down(relations: Sequence[Relation], conditions: Sequence[exp.Expr], site: QuerySite) -> tuple[list[Relation], list[exp.Expr]]:
    """Return relations filtered by the conditions that read one of them alone, and the other conditions."""
    from sqlglot import exp

    rest: list[exp.Expr] = []
    found = list(relations)
    for condition in conditions:
        columns = list(condition.find_all(exp.Column))
        owners = [{number for number, relation in enumerate(found) if relation.has(column)} for column in columns]
        number = next(iter(owners[0])) if owners and owners[0] else None
        # A name that several tables have is left to be refused, or to mean the column of USING.
        if number is None or any(each != {number} for each in owners):
            rest.append(condition)
        else:
            filtered = found[number].stream.filter(found[number].text(condition, site))
            found[number] = replace(found[number], stream=filtered)
    return found, rest
