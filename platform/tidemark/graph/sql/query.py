"""SQL over streams: SELECT with joins, groups and the first rows of groups, as the fluent API's operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidemark.errors import DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import StatefulNode, walk
from tidemark.graph.sql.grouping import grouped
from tidemark.graph.sql.joining import conjuncts, joined, pushed_down
from tidemark.graph.sql.parsing import parse_query
from tidemark.graph.sql.ranking import Ranking, ranking_of
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation, SqlColumn
from tidemark.names import validate_name

if TYPE_CHECKING:
    from sqlglot import exp

_NOT_COVERED: Final = {
    "order": ("ORDER BY", "a stream has no end to order it at: sort what reads the table"),
    "limit": ("LIMIT", "the first rows of groups are ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= n in an outer query"),
    "offset": ("OFFSET", "leave it out"),
    "qualify": ("QUALIFY", "write an outer query: SELECT * FROM (SELECT ..., ROW_NUMBER() ... AS nth) WHERE nth <= 3"),
    "laterals": ("LATERAL VIEW", "explode before: stream.explode(...)"),
    "pivots": ("PIVOT", "write aggregates with CASE"),
    "windows": ("WINDOW", "write the window after OVER"),
    "sample": ("TABLESAMPLE", "filter before: stream.filter('hash(id) % 10 = 0')"),
}


def sql(query: str, /, *, uid: str | None = None, **streams: Stream) -> Stream:
    """Return the stream that an SQL query makes of others: the same operators as those of the fluent API, by another notation.

    Covered: SELECT with expressions, WHERE, inner, left, right, full, semi and anti joins by equal columns (with bounds on both event
    times an interval join, else one of changelogs), GROUP BY with HAVING, DISTINCT, the first rows of groups by ROW_NUMBER, subqueries in
    FROM, WITH, and UNION ALL. What is not covered is refused by its name. Both notations may be mixed in a job.

    Args:
        query: in Spark's SQL.
        uid: the name that the operators with state get, each followed by what it does, such as ``fares-join-f`` and ``fares-group``.
        streams: the tables of the query, by name.

    Raises:
        ExpressionError: the query cannot be parsed, or has a part that is not covered.
        ColumnError: a column does not exist.
        DefinitionError: a table is no stream, or operators with state have no ``uid``.

    >>> import tidemark as tm
    >>> rides = tm.source(
    ...     "rides", tm.from_elements(rows=[], schema="id INT, zone INT, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at")
    ... )
    >>> tm.sql("SELECT zone, count(*) AS rides FROM rides GROUP BY zone", uid="zones", rides=rides)
    <Stream: select zone = `zone`, rides = `aggregate_1`>
    """
    place = call_site()
    if uid is not None:
        validate_name("uid", uid, place=place)
    for name, stream in streams.items():
        if not isinstance(stream, Stream):
            raise DefinitionError(
                f"tm.sql is given {name}={stream!r}, not a stream", fix=f"pass a stream: tm.sql(..., {name}=rides)", place=place
            )
    site = QuerySite(place, uid)
    made = _Query(site, {name.lower(): stream for name, stream in streams.items()}).run(parse_query(query, Site("tm.sql", place, uid)))
    known = {id(node) for stream in streams.values() for node in walk([stream.node])}
    unnamed = [node for node in walk([made.node]) if isinstance(node, StatefulNode) and node.uid is None and id(node) not in known]
    if unnamed:
        raise DefinitionError(
            f"the query has {len(unnamed)} operators that keep state, and no name to find it by",
            fix="name it: tm.sql('SELECT ...', uid='fares-of-rides', ...)",
            place=place,
        )
    return made


class _Query:
    """One query, and the tables that it may name.

    Args:
        site: of the query.
        tables: by name, in small letters.
        scope: what the names of its operators begin with, after the query's own.
    """

    def __init__(self, site: QuerySite, tables: Mapping[str, Stream], scope: str = "") -> None:
        self._site = site
        self._tables = dict(tables)
        self._scope = scope

    def run(self, parsed: exp.Expr) -> Stream:
        """Return the stream of a query."""
        from sqlglot import exp

        with_ = parsed.args.get("with_")
        for each in with_.expressions if with_ is not None else ():
            if with_ is not None and with_.args.get("recursive"):
                raise self._site.refused("WITH RECURSIVE is not covered", "leave RECURSIVE out")
            self._tables[each.alias.lower()] = self._inner(each.alias).run(each.this)
        if isinstance(parsed, exp.Union):
            if parsed.args.get("distinct"):
                raise self._site.refused("UNION without ALL is not covered", "write UNION ALL, or SELECT DISTINCT over it")
            self._require_covered(parsed)
            return self._together(self.run(parsed.this), self.run(parsed.expression))
        if isinstance(parsed, exp.Subquery):
            return self.run(parsed.this)
        if not isinstance(parsed, exp.Select):
            raise self._site.refused(f"{type(parsed).__name__.upper()} is not covered", "write a SELECT")
        return self._select(parsed)

    def _together(self, first: Stream, second: Stream) -> Stream:
        """Return the rows of both, whose columns are matched by position."""
        names, others = (Relation.of(each, "union", self._site).columns for each in (first, second))
        if len(names) != len(others):
            raise self._site.refused(
                f"UNION ALL of {len(names)} and {len(others)} columns", "give both queries the same number of columns, of the same types"
            )
        return first.union(second.select(**{name.actual: f"`{other.actual}`" for name, other in zip(names, others, strict=True)}))

    def _inner(self, alias: str) -> _Query:
        return _Query(self._site, self._tables, f"{self._scope}-{alias}" if alias else self._scope)

    def _uid(self, what: str) -> str | None:
        return None if self._site.uid is None else f"{self._site.uid}{self._scope}-{what}"

    def _require_covered(self, parsed: exp.Expr) -> None:
        for part, (name, fix) in _NOT_COVERED.items():
            if parsed.args.get(part):
                raise self._site.refused(f"{name} is not covered", fix)

    def _select(self, select: exp.Select) -> Stream:
        from sqlglot import exp

        self._require_covered(select)
        source = select.args.get("from_")
        if source is None:
            raise self._site.refused("a query without FROM is not covered", "name a table: FROM rides")
        where = select.args.get("where")
        conditions = list(conjuncts(where.this)) if where is not None else []
        for condition in conditions:
            if condition.find(exp.Query, exp.Exists):
                raise self._site.refused(f"the subquery in {shown(condition)} is not covered", "write LEFT SEMI JOIN or LEFT ANTI JOIN")
        ranking = ranking_of(source.this, conditions, self._site)
        if ranking is not None and not select.args.get("joins"):
            relation, conditions = self._ranked(source.this, ranking), list(ranking.rest)
        else:
            relation, conditions = self._joined(select, conditions)
        for condition in conditions:
            relation = replace(relation, stream=relation.stream.filter(relation.text(condition, self._site)))
        if select.args.get("group") is not None or select.args.get("distinct") or select.find(exp.AggFunc):
            relation, select = grouped(relation, _with_stars(select, relation), self._site, self._uid("group"))
            having = select.args.get("where")
            if having is not None:
                relation = replace(relation, stream=relation.stream.filter(relation.text(having.this, self._site)))
        return self._projected(relation, select)

    def _joined(self, select: exp.Select, conditions: list[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
        """Return the tables of a query joined, and the conditions that are left."""
        joins = select.args.get("joins") or []
        relations = [self._table(select.args["from_"].this), *(self._table(join.this) for join in joins)]
        if all(join.side.upper() == "" and join.kind.upper() in ("", "INNER") for join in joins):
            relations, conditions = pushed_down(relations, conditions, self._site)
        relation = relations[0]
        for join, right in zip(joins, relations[1:], strict=True):
            relation = joined(relation, right, join, self._site, self._uid(f"join-{right.tables[0]}"))
        return relation, conditions

    def _table(self, table: exp.Expr) -> Relation:
        from sqlglot import exp

        if isinstance(table, exp.Subquery):
            return Relation.of(self._inner(table.alias).run(table.this), table.alias or "subquery", self._site)
        if not isinstance(table, exp.Table) or table.args.get("joins") or table.db:
            raise self._site.refused(f"{shown(table)} is no table of the query", f"the tables are: {', '.join(self._tables)}")
        self._require_covered(table)
        stream = self._tables.get(table.name.lower())
        if stream is None:
            raise self._site.refused(
                f"there is no table {table.name!r}; the tables are: {', '.join(self._tables) or 'none'}",
                f"pass the stream: tm.sql(..., {table.name}=stream)",
            )
        return Relation.of(stream, table.alias or table.name, self._site)

    def _ranked(self, subquery: exp.Expr, ranking: Ranking) -> Relation:
        """Return the first rows of groups."""
        alias = subquery.alias_or_name or "subquery"
        below = Relation.of(self._inner(alias).run(ranking.select), alias, self._site)
        by = [below.find(column, self._site).actual for column in ranking.by]
        order = ", ".join(below.text(each, self._site) for each in ranking.order)
        keyed = changelog_keys(below.stream.node) is not None
        rank = ranking.name if ranking.is_read or not keyed else None
        made = below.stream.top_n(ranking.n, by=by, order=order, rank=rank)
        uid = self._uid("top")
        made = made if uid is None else made.uid(uid)
        added = () if rank is None else (SqlColumn(alias, rank, rank),)
        return Relation(made, (*below.columns, *added))

    def _projected(self, relation: Relation, select: exp.Select) -> Stream:
        from sqlglot import exp

        found: dict[str, str] = {}
        for number, each in enumerate(_with_stars(select, relation).expressions):
            if each.find(exp.Window):
                raise self._site.refused(
                    f"{shown(each)} is not covered",
                    "covered is ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) with a bound in an outer query",
                )
            name = each.alias_or_name or f"column_{number + 1}"
            if name.lower() in {other.lower() for other in found}:
                raise self._site.refused(
                    f"two columns of the result are named {name!r}", f"name one of them: {shown(each.unalias())} AS other"
                )
            found[name] = relation.text(each.unalias(), self._site)
        return relation.stream.select(**found)


def _with_stars(select: exp.Select, relation: Relation) -> exp.Select:
    """Return a query whose stars are written out."""
    from sqlglot import exp

    if not any(each.is_star for each in select.expressions):
        return select
    expressions: list[exp.Expr] = []
    for each in select.expressions:
        if not each.is_star:
            expressions.append(each)
            continue
        table = each.table.lower() if isinstance(each, exp.Column) else ""
        expressions += [
            exp.column(column.name, table=column.table or None, quoted=True)
            for column in relation.columns
            if not table or column.table.lower() == table
        ]
    made = select.copy()
    made.set("expressions", expressions)
    return made
