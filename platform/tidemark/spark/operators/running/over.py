"""Makes window functions of the aggregates in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.graph.expressions.expressions import Site, parse_sql
from tidemark.graph.expressions.sql_functions import is_aggregate

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token


def over_each_aggregate(text: str, over: str) -> str:
    """Return an expression whose aggregates are over a window; ``over`` follows each of them.

    A window function takes no FILTER: its condition goes into the first argument, since aggregates ignore nulls.

    >>> over_each_aggregate("flatten(collect_list(`a`)) || max(b)", "OVER w")
    'flatten(collect_list(`a`) OVER w) || max(b) OVER w'
    >>> over_each_aggregate("approx(1) + collect_list(a.n) FILTER (WHERE a.n > 0)", "OVER w")
    'approx(1) + collect_list(CASE WHEN a.n > 0 THEN a.n END) OVER w'
    """
    from sqlglot import tokenize

    tokens = tokenize(text, read="spark")
    parts, after, index = [], 0, 0
    while index < len(tokens) - 1:
        if tokens[index + 1].text != "(" or not _is_call(text, tokens, index):
            index += 1
            continue
        end = _closing(tokens, index + 1)
        call, last = text[tokens[index].start : tokens[end].end + 1], end
        if end + 2 < len(tokens) and tokens[end + 1].text.upper() == "FILTER":
            last = _closing(tokens, end + 2)
            call = _filtered(text, tokens, (index, end, last))
        parts += [text[after : tokens[index].start], f"{call} {over}"]
        after = tokens[last].end + 1
        index = last + 1
    return "".join([*parts, text[after:]])


def _is_call(text: str, tokens: list[Token], index: int) -> bool:
    """Return whether an aggregate function is called there."""
    if not tokens[index].text.isidentifier():
        return False
    call = text[tokens[index].start : tokens[_closing(tokens, index + 1)].end + 1]
    return is_aggregate(parse_sql(call, Site("aggregate", "")))


def _closing(tokens: list[Token], opening: int) -> int:
    """Return the index of the parenthesis that closes another."""
    depth = 0
    for index in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index
    raise ValueError("parentheses do not match")


def _filtered(text: str, tokens: list[Token], places: tuple[int, int, int]) -> str:
    """Return a call whose first argument is null where the condition of its FILTER (WHERE ...) is not true."""
    call, end, last = places
    condition = text[tokens[end + 3].end + 1 : tokens[last].start].strip()
    depth, stop = 0, end
    for index in range(call + 2, end):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if depth == 0 and tokens[index].text == ",":
            stop = index
            break
    first = text[tokens[call + 1].end + 1 : tokens[stop].start].strip()
    rest = text[tokens[stop].start : tokens[end].end + 1]
    return f"{text[tokens[call].start : tokens[call + 1].end + 1]}CASE WHEN {condition} THEN {first} END{rest}"
