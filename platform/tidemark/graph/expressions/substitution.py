"""Replaces columns in SQL by other expressions; all else stays as it is written."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.graph.expressions.expressions import Site, parse_sql


def with_columns_replaced(text: str, replace: Callable[[str], str | None], site: Site | None = None) -> str:
    """Return SQL in which each column that ``replace`` knows is what it returns for its name; of ``a.b`` that is asked for ``a``.

    Names of functions, fields and variables of lambda functions are no columns.

    Args:
        text: SQL that can be parsed.
        replace: returns the SQL that a column is replaced by, None for one that stays.
        site: of the expression, for errors.

    >>> with_columns_replaced("last + transform(fares, last -> last * rate)[0]", {"last": "state.last"}.get)
    'state.last + transform(fares, last -> last * rate)[0]'
    """
    from sqlglot import exp

    found: dict[int, tuple[int, str]] = {}
    for column in parse_sql(text, site or Site("expression", "")).find_all(exp.Column, bfs=False):
        name = column.parts[0]
        new = replace(name.name)
        if new is not None:
            found[int(name.meta["start"])] = (int(name.meta["end"]) + 1, new)
    parts, after = [], 0
    for start in sorted(found):
        end, new = found[start]
        parts += [text[after:start], new]
        after = end
    return "".join([*parts, text[after:]])
