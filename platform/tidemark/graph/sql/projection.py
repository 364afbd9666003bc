"""The columns that a query selects: their names, stars written out, and columns that only the numbers of rows read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.graph.api.streams import Stream
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class Projection:
    """A stream of selected columns.

    ``names`` are those of the query in order, ``read`` the columns that hold what is read besides, by the place of that.
    """

    stream: Stream
    names: tuple[str, ...]
    read: tuple[str, ...]


def projected(relation: Relation, select: exp.Select, site: QuerySite, number: str | None, read: int) -> Projection:
    """Return the columns that a query selects.

    Args:
        relation: what they are selected from.
        select: the query; its last ``read`` columns are not its own: another operator reads them.
        site: of the query.
        number: a column that another operator adds: it has a name and a place here, and no value. None for no such one.
        read: how many there are of those.

    Raises:
        ExpressionError: a column has no name, or that of another one, or is not covered.
    """
    expressions = select.expressions
    own, others = expressions[: len(expressions) - read], expressions[len(expressions) - read :]
    names: list[str] = []
    found: dict[str, str] = {}
    for each in own:
        name = name_of(each, site)
        if name.lower() in {other.lower() for other in names}:
            raise site.refused(f"two columns of the result are named {name!r}", f"name one of them: {shown(each.unalias())} AS other")
        names.append(name)
        if name != number:
            refuse_windows(each, site)
            found[name] = relation.text(each.unalias(), site)
    held, added = _added(relation, found, names, others, site)
    return Projection(relation.stream.select(**found, **added), tuple(names), held)


def _added(
    relation: Relation, found: dict[str, str], names: Sequence[str], others: Sequence[exp.Expr], site: QuerySite
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the columns that hold other expressions, and those of them that have to be added."""
    held = {text: name for name, text in reversed(found.items())}
    taken = {name.lower() for name in names}
    added: dict[str, str] = {}
    read = []
    for each in others:
        text = relation.text(each.unalias(), site)
        if text not in held:
            name = each.alias
            while name.lower() in taken:
                name += "_"
            taken.add(name.lower())
            held[text] = name
            added[name] = text
        read.append(held[text])
    return tuple(read), added


def name_of(expression: exp.Expr, site: QuerySite) -> str:
    """Return the name of a selected column.

    Raises:
        ExpressionError: it has none, or one that no column may have.
    """
    from sqlglot import exp

    if expression.alias_or_name == "self":
        raise site.refused("a column named 'self' is not covered", "give it another name")
    if isinstance(expression, exp.Alias | exp.Column):
        return str(expression.alias_or_name)
    raise site.refused(f"the column {shown(expression)} has no name", f"name it: {shown(expression)} AS value")


def refuse_windows(expression: exp.Expr, site: QuerySite) -> None:
    """Check that an expression has no OVER.

    Raises:
        ExpressionError: it has one.
    """
    from sqlglot import exp

    if expression.find(exp.Window):
        raise site.refused(
            f"{shown(expression)} is not covered",
            "covered is ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) in a subquery of FROM, with a bound in the query over it; "
            "for aggregates of the rows so far write .key_by('zone').running_aggregate(total=tm.sum('fare'))",
        )


def with_names(query: exp.Expr) -> exp.Expr:
    """Return a query whose columns without a name have one of their place, as in a UNION, which takes the names of its first query."""
    from sqlglot import exp

    made = query.copy()
    select = made.unnest() if isinstance(made, exp.Subquery) else made
    if isinstance(select, exp.Select):
        named = (exp.Alias, exp.Column, exp.Star)
        select.set(
            "expressions",
            [
                each if isinstance(each, named) else exp.alias_(each, f"column_{number + 1}", quoted=True)
                for number, each in enumerate(select.expressions)
            ],
        )
    return made


def with_stars(select: exp.Select, relation: Relation, site: QuerySite) -> exp.Select:
    """Return a query whose stars are written out."""
    from sqlglot import exp

    if not any(each.is_star for each in select.expressions):
        return select
    made = select.copy()
    expressions: list[exp.Expr] = []
    for each in made.expressions:
        if not each.is_star:
            expressions.append(each)
        else:
            expressions += relation.star(each.table if isinstance(each, exp.Column) else "", site)
    made.set("expressions", expressions)
    return made
