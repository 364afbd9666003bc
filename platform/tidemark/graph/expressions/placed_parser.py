"""Parses SQL by sqlglot's Spark dialect; each expression keeps its place in the text. Imported only to parse, as it takes long to load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlglot import ParseError, exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

_PLACE: Final = "place"
_LEVELS: Final = (
    *("expression", "assignment", "disjunction", "conjunction", "equality", "comparison", "range", "bitwise", "term", "factor", "exponent"),
    *("unary", "type", "column", "field", "primary", "function"),
)
"""What sqlglot's methods parse that return an expression, from the weakest operators on."""

Place = tuple[int, int]
"""Where a part of a text begins and ends."""

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def parse(text: str) -> exp.Expr:
    """Return the parsed form of SQL.

    Raises:
        SqlglotError: it cannot be parsed. Of some calls with arguments that sqlglot does not expect, errors of Python.
    """
    spark = Spark()
    statements = _PlacingParser(dialect=spark).parse(_with_doubled_quotes(spark.tokenize(text), text), text)
    if not statements or statements[0] is None:
        raise ParseError("No expression was parsed")
    return exp.Block(expressions=statements) if len(statements) > 1 else statements[0]


def place_of(expression: exp.Expr) -> Place | None:
    """Return where an expression stands in the text that it was parsed from, None for one that was made.

    >>> place_of(parse("a + upper(  b )").expression)
    (4, 15)
    """
    if isinstance(expression, exp.Column) and all("start" in part.meta for part in expression.parts):
        return expression.parts[0].meta["start"], expression.parts[-1].meta["end"] + 1
    place: Place | None = expression.meta.get(_PLACE)
    return place


class _PlacingParser(SparkParser):
    """Keeps the places of expressions."""


def _placing(method: Callable[Concatenate[SparkParser, _Given], _Found]) -> Callable[Concatenate[SparkParser, _Given], _Found]:
    """Return a method of the parser that keeps the place of what it parses; the last one to return an expression has all of it."""

    def placing(self: SparkParser, /, *args: _Given.args, **options: _Given.kwargs) -> _Found:
        first = self._index
        found = method(self, *args, **options)
        if isinstance(found, exp.Expr) and self._index > first:
            found.meta[_PLACE] = self._tokens[first].start, self._tokens[self._index - 1].end + 1
        return found

    return placing


for _level in _LEVELS:
    setattr(_PlacingParser, f"_parse_{_level}", _placing(getattr(SparkParser, f"_parse_{_level}")))


def _with_doubled_quotes(tokens: Sequence[Token], text: str) -> list[Token]:
    """Return tokens in which texts that follow each other at once are one, with the quote in between that is written twice.

    sqlglot's Spark dialect takes them for two, as Spark 3 did, and as Spark 4 does with a blank in between.

    >>> query = "'it''s' = 'its' 's'"
    >>> [token.text for token in _with_doubled_quotes(Spark().tokenize(query), query)]
    ["it's", '=', 'its', 's']
    """
    made: list[Token] = []
    for token in tokens:
        before = made[-1] if made and made[-1].token_type is token.token_type is TokenType.STRING else None
        quote = text[token.start]
        if before is None or before.end + 1 != token.start or text[before.end] != quote:
            made.append(token)
            continue
        both = f"{before.text}{quote}{token.text}"
        made[-1] = Token(TokenType.STRING, both, token.line, token.col, before.start, token.end, [*before.comments, *token.comments])
    return made
