"""SQL over streams: SELECT with joins, groups and the first rows of groups, as the fluent API's operators."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import StatefulNode, walk
from tidemark.graph.sql.calls import declared_functions, refuse_window_calls, require_functions
from tidemark.graph.sql.coverage import require_covered
from tidemark.graph.sql.grouping import grouped, has_aggregate, is_grouped
from tidemark.graph.sql.joining import conjuncts, joined, pushed_down
from tidemark.graph.sql.parsing import parse_query
from tidemark.graph.sql.projection import Projection, projected, refuse_windows, with_names, with_stars
from tidemark.graph.sql.ranking import Ranking, ordered_by, ranking_of
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation, SqlColumn
from tidemark.names import validate_name

if TYPE_CHECKING:
    from sqlglot import exp


def sql(query: str, /, *, uid: str | None = None, functions: Collection[str] | Stream = (), **streams: Stream) -> Stream:
    """Return the stream that an SQL query makes of others: the same operators as those of the fluent API, by another notation.

    Covered: SELECT with expressions, WHERE, inner, left, right, full, semi and anti joins by equal columns (with bounds on both event
    times an interval join, else one of changelogs), GROUP BY with HAVING, DISTINCT, the first rows of groups by ROW_NUMBER, subqueries in
    FROM, WITH, and UNION ALL. What is not covered is refused by its name. Both notations may be mixed in a job.

    Args:
        query: in Spark's SQL.
        uid: the name that the operators with state get, each followed by what it does, such as ``fares-join-f`` and ``fares-group``.
        functions: SQL functions that the session has besides Spark's own, as for ``tm.Job``.
        streams: the tables of the query, by name.

    Raises:
        ExpressionError: the query cannot be parsed, has a part that is not covered, or calls a function that neither Spark has nor
            ``functions`` declares.
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
    site, declared = QuerySite(place, uid, query), declared_functions(functions, place)
    if isinstance(query, str):
        refuse_window_calls(query, site)
    parsed = parse_query(query, Site("tm.sql", place, uid))
    require_covered(parsed, site)
    require_functions(query, declared, site)
    tables = {name.lower(): stream for name, stream in streams.items()}
    made = _Query(site, tables).run(parsed.copy())
    own = _stateful(made, streams)
    if len({node.uid.lower() for node in own if node.uid is not None}) < len([node for node in own if node.uid is not None]):
        made = _Query(site, tables, taken=set()).run(parsed)
    unnamed = [node for node in own if node.uid is None]
    if unnamed:
        raise DefinitionError(
            f"the query has {len(unnamed)} operators that keep state, and no name to find it by",
            fix="name it: tm.sql('SELECT ...', uid='fares-of-rides', ...)",
            place=place,
        )
    return made


def _stateful(made: Stream, given: Mapping[str, Stream]) -> list[StatefulNode]:
    """Return the operators with state that a query adds to the streams it is given."""
    known = {id(node) for stream in given.values() for node in walk([stream.node])}
    return [node for node in walk([made.node]) if isinstance(node, StatefulNode) and id(node) not in known]


class _Query:
    """One query, and the tables that it may name.

    Args:
        site: of the query.
        tables: by name, in small letters.
        scope: what the names of its operators begin with, after the query's own.
        taken: names that its operators have, in small letters, to number those that would have one of them; None to number none.
    """

    def __init__(self, site: QuerySite, tables: Mapping[str, Stream], scope: str = "", taken: set[str] | None = None) -> None:
        self._site = site
        self._tables = dict(tables)
        self._scope = scope
        self._taken = taken

    def run(self, parsed: exp.Expr) -> Stream:
        """Return the stream of a query."""
        from sqlglot import exp

        query = self.scoped(parsed)
        if isinstance(parsed, exp.Union):
            return query.together(query.run(parsed.this), query.run(with_names(parsed.expression)))
        if isinstance(parsed, exp.Subquery):
            return query.run(parsed.this)
        if isinstance(parsed, exp.Intersect | exp.Except):
            join = "SEMI" if isinstance(parsed, exp.Intersect) else "ANTI"
            raise self._site.refused(
                f"{type(parsed).__name__.upper()} is not covered",
                f"write SELECT DISTINCT id FROM rides r LEFT {join} JOIN fares f ON r.id = f.id",
            )
        if not isinstance(parsed, exp.Select):
            raise self._site.refused(f"{type(parsed).__name__.upper()} is not covered", "write a SELECT")
        return query.select(parsed).stream

    def scoped(self, parsed: exp.Expr) -> _Query:
        """Return the scope of a query: this one, with the tables that its WITH names."""
        with_ = parsed.args.get("with_")
        if with_ is None:
            return self
        made = _Query(self._site, self._tables, self._scope, self._taken)
        names: set[str] = set()
        for each in with_.expressions:
            name = each.alias.lower()
            if name in names:
                raise self._site.refused(f"WITH names {each.alias!r} twice", "give each query another name")
            names.add(name)
            made._tables[name] = made._inner(each.alias).run(each.this)
        return made

    def together(self, first: Stream, second: Stream) -> Stream:
        """Return the rows of both, whose columns are matched by position."""
        names, others = (Relation.of(each, "union", self._site).columns for each in (first, second))
        if len(names) != len(others):
            raise self._site.refused(
                f"UNION ALL of {len(names)} and {len(others)} columns", "give both queries the same number of columns, of the same types"
            )
        return first.union(second.select(**{name.actual: f"`{other.actual}`" for name, other in zip(names, others, strict=True)}))

    def _inner(self, alias: str) -> _Query:
        return _Query(self._site, self._tables, f"{self._scope}-{alias}" if alias else self._scope, self._taken)

    def _uid(self, what: str) -> str | None:
        """Return the name of an operator. Operators are named inside out and from left to right, so that it is the same at each run."""
        if self._site.uid is None:
            return None
        plain = f"{self._site.uid}{self._scope}-{what}"
        if self._taken is None:
            return plain
        name, number = plain, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{plain}-{number}"
        self._taken.add(name.lower())
        return name

    def select(self, select: exp.Select, number: str | None = None, read: int = 0) -> Projection:
        """Return the columns that a query selects; ``number`` and ``read`` are as for ``projected``."""
        source = select.args.get("from_")
        if source is None:
            raise self._site.refused("a query without FROM is not covered", "name a table: FROM rides")
        where = select.args.get("where")
        conditions = list(conjuncts(where.this)) if where is not None else []
        for condition in conditions:
            refuse_windows(condition, self._site)
            if has_aggregate(condition):
                raise self._site.refused(f"the aggregate in WHERE {shown(condition)} makes no sense", "write HAVING, after GROUP BY")
        ranking = ranking_of(source.this, conditions, self._site)
        if ranking is not None and not select.args.get("joins"):
            relation, conditions = self._ranked(source.this, ranking), list(ranking.rest)
        else:
            relation, conditions = self._joined(select, conditions)
        for condition in conditions:
            relation = replace(relation, stream=relation.stream.filter(relation.text(condition, self._site)))
        select = with_stars(select, relation, self._site)
        if is_grouped(select):
            relation, select = grouped(relation, select, self._site, self._uid("group"))
        return projected(relation, select, self._site, number, read)

    def _joined(self, select: exp.Select, conditions: list[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
        """Return the tables of a query joined, and the conditions that are left."""
        joins = select.args.get("joins") or []
        relations = [self._table(select.args["from_"].this), *(self._table(join.this) for join in joins)]
        if all(join.side.upper() == "" and join.kind.upper() in ("", "INNER") for join in joins):
            relations, conditions = pushed_down(relations, conditions, self._site)
        relation = relations[0]
        for join, right in zip(joins, relations[1:], strict=True):
            relation = joined(relation, right, join, self._site, uid=self._uid(f"join-{right.tables[0]}"), where=conditions)
        return relation, conditions

    def _table(self, table: exp.Expr) -> Relation:
        from sqlglot import exp

        if isinstance(table, exp.Subquery):
            return Relation.of(self._inner(table.alias).run(table), table.alias or "subquery", self._site)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self._site.refused(f"{shown(table)} is no table of the query", f"the tables are: {', '.join(self._tables)}")
        stream = self._tables.get(table.name.lower())
        if stream is None:
            near = difflib.get_close_matches(table.name.lower(), self._tables, n=1)
            hint, other = (f"; did you mean {near[0]!r}? The", f"write {near[0]}, or ") if near else ("; the", "")
            raise self._site.refused(
                f"there is no table {table.name!r}{hint} tables are: {', '.join(self._tables) or 'none'}",
                f"{other}pass the stream: tm.sql(..., {table.name}=stream)",
            )
        return Relation.of(stream, table.alias or table.name, self._site)

    def _ranked(self, subquery: exp.Expr, ranking: Ranking) -> Relation:
        """Return the first rows of groups."""
        alias = subquery.alias_or_name or "subquery"
        inner = self._inner(alias).scoped(ranking.select)
        below = inner.select(ranking.select, ranking.name, len(ranking.by) + len(ranking.order))
        by, order = below.read[: len(ranking.by)], below.read[len(ranking.by) :]
        keyed = changelog_keys(below.stream.node) is not None
        rank = ranking.name if ranking.is_read or not keyed else None
        hidden = next((each for each, name in zip(ranking.by, by, strict=True) if name not in below.names), None)
        if rank is not None and hidden is not None:
            raise self._site.refused(
                f"PARTITION BY {shown(hidden)} is by what the subquery does not select, and part of the key of the numbered rows",
                f"select it: SELECT {shown(hidden)} AS part, ...",
            )
        texts = ", ".join(ordered_by(each, name) for each, name in zip(ranking.order, order, strict=True))
        made = below.stream.top_n(ranking.n, by=by, order=texts, rank=rank)
        uid = self._uid("top")
        made = made if uid is None else made.uid(uid)
        columns = tuple(SqlColumn(alias, name, name) for name in below.names if name != ranking.name or rank is not None)
        return Relation.plain(made, columns)
