"""GROUP BY of a query: its keys, and its aggregates as the fluent API has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidemark.errors import ExpressionError
from tidemark.graph.aggregates import builtin_aggregates as builtins
from tidemark.graph.expressions.sql_functions import is_aggregate
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.sql.aggregates import aggregate_of
from tidemark.graph.sql.projection import name_of, refuse_windows
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.relation import Relation, SqlColumn
from tidemark.graph.sql.written import instead_of

if TYPE_CHECKING:
    from sqlglot import exp

_GROUPS: Final = "(groups)"
"""The table of the columns of groups, which no query can name."""


@dataclass(frozen=True)
class _Key:
    """What rows are grouped by: an expression over the input's columns, its SQL, and the column of the groups that holds it."""

    meaning: exp.Expr
    text: str
    name: str


def grouped(relation: Relation, select: exp.Select, site: QuerySite, uid: str | None) -> tuple[Relation, exp.Select]:
    """Return the groups of a query as a relation, and the query over them: its keys and aggregates are columns then.

    Raises:
        ExpressionError: an aggregate, or a form of GROUP BY, that is not covered.
    """
    from sqlglot import exp

    keys = _named_keys(_keys(relation, select, site), relation, select, site)
    groups = _Groups(relation, keys, site)
    expressions = [exp.alias_(groups.over(each.unalias()), name_of(each, site), quoted=True) for each in select.expressions]
    having = select.args.get("having")
    condition = None if having is None else groups.over(having.this, {each.alias.lower(): each.this for each in expressions})
    over = select.copy()
    for part in ("group", "distinct", "having", "where"):
        over.set(part, None)
    over.set("expressions", expressions)
    aggregates = groups.aggregates or {_free("rows_of_group", {key.name.lower() for key in keys}): builtins.count()}
    stream = relation.stream.key_by(**{key.name: key.text for key in keys}).aggregate(ttl=None, **aggregates)
    stream = stream if uid is None else stream.uid(uid)
    made = Relation.plain(stream, tuple(SqlColumn(_GROUPS, name, name) for name in (*(key.name for key in keys), *aggregates)))
    return made if condition is None else replace(made, stream=stream.filter(made.text(condition, site))), over


class _Groups:
    """The columns of groups, as expressions over the input's columns need them.

    Args:
        relation: the input.
        keys: what it is grouped by.
        site: of the query.
    """

    def __init__(self, relation: Relation, keys: Sequence[_Key], site: QuerySite) -> None:
        self._relation = relation
        self._site = site
        self._keys = {key.meaning: key.name for key in keys}
        self._taken = {key.name.lower() for key in keys}
        self._aggregates: dict[exp.Expr, tuple[str, Aggregate]] = {}

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """The aggregates that were met, by their columns."""
        return dict(self._aggregates.values())

    def over(self, expression: exp.Expr, selected: Mapping[str, exp.Expr] | None = None) -> exp.Expr:
        """Return an expression over the columns of groups.

        Args:
            expression: over those of the input.
            selected: what else columns may mean that are no keys: those of the result, by name in small letters.

        Raises:
            ExpressionError: it reads a column that is no key outside of an aggregate, or has an aggregate that is not covered.
        """
        from sqlglot import exp

        root = expression.copy()

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Window):
                refuse_windows(node, self._site)
            if is_aggregate(node):
                return instead_of(node, self._column(self._aggregate(node)))
            # Functions may ask for a literal, which a column is not.
            key = None if isinstance(node, exp.Literal) and node is not root else self._key(node)
            if key is not None:
                return instead_of(node, self._column(key))
            if isinstance(node, exp.Column):
                found = selected.get(node.name.lower()) if selected is not None and not node.table else None
                if found is None:
                    raise self._stray(node)
                return instead_of(node, found.copy())
            return node

        return root.transform(replaced, copy=False)

    def _key(self, node: exp.Expr) -> str | None:
        """Return the key that an expression is, None where it is none."""
        from sqlglot import exp

        columns = list(node.find_all(exp.Column)) if isinstance(node, exp.Condition) else []
        if not isinstance(node, exp.Condition) or not all(map(self._relation.has, columns)):
            return None
        return self._keys.get(self._relation.meaning(node, self._site))

    def _aggregate(self, node: exp.Expr) -> str:
        """Return the column of an aggregate."""
        made = aggregate_of(node, self._relation, self._site)
        meaning = self._relation.meaning(node, self._site)
        if meaning not in self._aggregates:
            name = _free(f"aggregate_{len(self._aggregates) + 1}", self._taken)
            self._taken.add(name.lower())
            self._aggregates[meaning] = (name, made)
        return self._aggregates[meaning][0]

    def _column(self, name: str) -> exp.Expr:
        from sqlglot import exp

        return exp.column(name, table=_GROUPS, quoted=True)

    def _stray(self, column: exp.Column) -> ExpressionError:
        self._relation.find(column, self._site)
        return self._site.refused(
            f"{shown(column)} is neither in GROUP BY nor in an aggregate", f"add it to GROUP BY, or write max({shown(column)})"
        )


def is_grouped(select: exp.Select) -> bool:
    """Return whether a query is one of groups of rows."""
    return any(select.args.get(part) is not None for part in ("group", "distinct", "having")) or any(map(has_aggregate, select.expressions))


def has_aggregate(expression: exp.Expr) -> bool:
    """Return whether an expression has an aggregate of groups, which one before OVER is not."""
    from sqlglot import exp

    return any(map(is_aggregate, expression.walk(prune=lambda node: isinstance(node, exp.Window))))


def _keys(relation: Relation, select: exp.Select, site: QuerySite) -> Sequence[exp.Expr]:
    """Return the expressions that a query groups by."""
    group = select.args.get("group")
    if group is None:
        if select.args.get("having") is not None or any(map(has_aggregate, select.expressions)):
            what = "HAVING" if select.args.get("having") is not None else "an aggregate"
            raise site.refused(
                f"{what} without GROUP BY is not covered", "group by a constant: SELECT 'all' AS g, sum(x) ... GROUP BY 'all'"
            )
        for each in select.expressions:
            refuse_windows(each, site)
        return [each.unalias() for each in select.expressions]
    if select.args.get("distinct"):
        raise site.refused("SELECT DISTINCT with GROUP BY is not covered", "write SELECT DISTINCT over a subquery with GROUP BY")
    found = [_key(key, relation, select, site) for key in group.expressions]
    for key in found:
        refuse_windows(key, site)
        if has_aggregate(key):
            raise site.refused(f"GROUP BY {shown(key)} is by an aggregate", "write an outer query that groups by it")
    return found


def _key(key: exp.Expr, relation: Relation, select: exp.Select, site: QuerySite) -> exp.Expr:
    """Return what a part of GROUP BY means: a column of the result by its place, one of the input, else one of the result by its name."""
    from sqlglot import exp

    if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
        raise site.refused(f"GROUP BY {type(key).__name__.upper()} is not covered", "name the expressions of the groups")
    if isinstance(key, exp.Literal) and not key.is_string:
        if not key.name.isdecimal() or not 1 <= int(key.name) <= len(select.expressions):
            raise site.refused(f"GROUP BY {shown(key)} is no column of the result", f"write a number from 1 to {len(select.expressions)}")
        numbered: exp.Expr = select.expressions[int(key.name) - 1]
        return numbered.unalias()
    if isinstance(key, exp.Column) and not key.table and not relation.has(key):
        named = next((each for each in select.expressions if isinstance(each, exp.Alias) and each.alias.lower() == key.name.lower()), None)
        return key if named is None else named.unalias()
    return key


def _named_keys(keys: Sequence[exp.Expr], relation: Relation, select: exp.Select, site: QuerySite) -> tuple[_Key, ...]:
    """Return the keys, each once, with the names that the query gives them, or else with others."""
    from sqlglot import exp

    found: dict[exp.Expr, _Key] = {}
    for number, key in enumerate(keys):
        meaning = relation.meaning(key, site)
        if meaning in found:
            continue
        selected = (each for each in select.expressions if isinstance(each, exp.Alias | exp.Column))
        names = [each.alias_or_name for each in selected if not has_aggregate(each) and relation.meaning(each.unalias(), site) == meaning]
        name = next(iter(names), key.name if isinstance(key, exp.Column) else f"key_{number + 1}")
        text = relation.text(key.unnest(), site)
        found[meaning] = _Key(meaning, text, _free(name, {other.name.lower() for other in found.values()}))
    return tuple(found.values())


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken."""
    found, number = name, 2
    while found.lower() in taken:
        found, number = f"{name}_{number}", number + 1
    return found
