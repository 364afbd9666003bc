"""The partial result of a single row, as an expression, for aggregates of which it is simple."""

from __future__ import annotations

from typing import Final

_SAME: Final = frozenset({"sum", "min", "max", "avg"})
"""Aggregates that of a single value return the value; a sum of it has another type, to which the caller casts."""


def lifted(create: str) -> str | None:
    """Return SQL of an aggregate's partial over one row, None where only the aggregate itself makes it.

    Args:
        create: the template of a partial, with braces of SQL doubled.

    >>> lifted("sum((fare) / 1)"), lifted("count(fare)"), lifted("collect_set(fare)"), lifted("sum(a) / sum(b)")
    ('((fare) / 1)', 'CAST((fare) IS NOT NULL AS BIGINT)', None, None)
    """
    from sqlglot import tokenize

    if "{order}" in create:
        return None
    text = create.format()
    tokens = tokenize(text, read="spark")
    name = tokens[0].text.lower()
    if len(tokens) < 4 or name not in {*_SAME, "count"} or tokens[1].text != "(" or tokens[2].text.upper() == "DISTINCT":
        return None
    depth = 0
    for index, token in enumerate(tokens[1:], start=1):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if (depth == 0 and index < len(tokens) - 1) or (depth == 1 and token.text == ","):
            return None
    value = text[tokens[1].end + 1 : tokens[-1].start]
    if name in _SAME:
        return f"({value})"
    return "1L" if value.strip() == "*" else f"CAST(({value}) IS NOT NULL AS BIGINT)"
