"""The calls in a query that are refused by their names: windows as Flink's SQL writes them, and functions that nothing has."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from tidemark.errors import DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.function_names import check_declared
from tidemark.graph.expressions.spark_functions import SPARK_FUNCTIONS, SYNTAX
from tidemark.graph.sql.refusals import QuerySite

if TYPE_CHECKING:
    from sqlglot import Token

_ASSIGNERS: Final = {
    "TUMBLE": "tm.tumbling('10 minutes')",
    "HOP": "tm.sliding('1 hour', '10 minutes')",
    "CUMULATE": "tm.cumulative('1 day', '1 hour')",
    "SESSION": "tm.session('30 minutes')",
    "WINDOW": "tm.tumbling('10 minutes')",
    "SESSION_WINDOW": "tm.session('30 minutes')",
}
_PARTS: Final = ("_START", "_END", "_ROWTIME", "_PROCTIME")
"""What Flink's functions of grouped windows have after the window's name."""

_OTHERS: Final = {
    "WINDOW_TIME": ("the time of a window", "its results have the columns window_start and window_end: SELECT window_end FROM hourly"),
    "DESCRIPTOR": ("the time column of a window", "a stream's event time is that of its source: watermarks=tm.ascending(timestamp='at')"),
    "MATCH_RECOGNIZE": ("a pattern of rows", "write a process function: .key_by('zone').process(...)"),
}


def refuse_window_calls(query: str, site: QuerySite) -> None:
    """Check that a query has no windows as SQL of Flink or Spark writes them; it need not be one that can be parsed.

    Raises:
        ExpressionError: it names the first one, its line and column, and the method that makes such windows.
    """
    from sqlglot import tokenize
    from sqlglot.errors import SqlglotError

    try:
        tokens = list(_calls(tokenize(query, read="spark")))
    except SqlglotError:
        return
    for token in tokens:
        name = token.text.upper()
        window = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name)
        if window in _ASSIGNERS:
            raise site.refused(
                f"the window {name}(...) at {_position(token)} is not covered",
                f"make the windows by the method: hourly = rides.key_by('zone').window({_ASSIGNERS[window]}).aggregate(n=tm.count())"
                ".uid('hourly'), and query their results: tm.sql('SELECT window_start, n FROM hourly', hourly=hourly)",
            )
        if name in _OTHERS:
            what, fix = _OTHERS[name]
            raise site.refused(f"{name}(...) at {_position(token)}, {what}, is not covered", fix)


def declared_functions(functions: object, place: str) -> frozenset[str]:
    """Return the names of functions that a session has besides Spark's own, in small letters.

    Raises:
        DefinitionError: not a list of names without a database.
    """
    if isinstance(functions, Stream):
        raise DefinitionError(
            "tm.sql takes no table of the name 'functions': that argument names functions of the session",
            fix="give the table another name in the query: tm.sql('... FROM calls', calls=stream)",
            place=place,
        )
    check_declared(functions, place)
    return frozenset(str(name).lower() for name in functions) if isinstance(functions, Collection) else frozenset()


def require_functions(query: str, declared: Collection[str], site: QuerySite) -> None:
    """Check that Spark has every function that a query calls, or the session by declaration; those of a database are not checked.

    Args:
        query: whose parts are all covered.
        declared: names, in small letters.
        site: of the query.

    Raises:
        ExpressionError: it names the first other one, its line and column, and the function that may have been meant.
    """
    from sqlglot import TokenType, tokenize

    known = {*SPARK_FUNCTIONS, *SYNTAX, *declared}
    for token in _calls(tokenize(query, read="spark")):
        name = token.text
        if token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER) or name.lower() in known:
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        declare = (
            f"if the session has it, declare it here and for the job: tm.sql(..., functions=[{name!r}]), tm.Job(..., functions=[{name!r}])"
        )
        raise site.refused(
            f"the query calls {name!r} at {_position(token)}, which Spark SQL does not have{hint}",
            f"write {near[0]!r}; or, {declare}" if near else f"use one of Spark's functions; or, {declare}",
        )


def _calls(tokens: list[Token]) -> Iterator[Token]:
    """Yield the words without a database that stand before a parenthesis."""
    from sqlglot import TokenType

    for index, token in enumerate(tokens[:-1]):
        qualified = index > 0 and tokens[index - 1].token_type == TokenType.DOT
        if tokens[index + 1].token_type == TokenType.L_PAREN and not qualified:
            yield token


def _position(token: Token) -> str:
    # The parser counts to the end of a word.
    return f"line {token.line}, column {token.col - len(token.text) + 1}"
