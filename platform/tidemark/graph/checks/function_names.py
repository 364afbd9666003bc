"""Checks that the functions which a job's SQL calls are Spark's, or declared."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence

from tidemark.errors import DefinitionError, ExpressionError
from tidemark.graph.checks.node_expressions import node_expressions
from tidemark.graph.expressions.spark_functions import SPARK_FUNCTIONS, SYNTAX
from tidemark.graph.model.nodes import Node


def check_functions(nodes: Sequence[Node], declared: Collection[str]) -> None:
    """Check that every function which the SQL of operators calls is one of Spark's, declared, or qualified (``db.fn``).

    Args:
        nodes: the operators of a job.
        declared: names of functions that the session will have besides Spark's own.

    Raises:
        ExpressionError: there is none of that name; the message has the one that may have been meant, and the user's line.
    """
    known = {*SPARK_FUNCTIONS, *SYNTAX, *(name.lower() for name in declared)}
    for node in nodes:
        for site, text in node_expressions(node):
            unknown = next((name for name in called_functions(text) if name.lower() not in known), None)
            if unknown is None:
                continue
            near = difflib.get_close_matches(unknown.lower(), known, n=1, cutoff=0.7)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            declare = f"if the session has it, declare it: tm.Job(..., functions=[{unknown!r}])"
            raise ExpressionError(
                f"{site.of(text)} calls {unknown!r}, which Spark SQL does not have{hint}",
                fix=f"write {near[0]!r}; or, {declare}" if near else f"use one of Spark's functions; or, {declare}",
                uid=site.uid,
                place=site.place,
            )


def called_functions(text: str) -> Iterator[str]:
    """Yield the names of functions that an SQL text calls without a database, as it spells them.

    Some that SQL has a keyword for, such as ``left``, are left out: those are Spark's.

    >>> list(called_functions("my_fn(fare) + db.fn(1) + sum(CAST(tip AS DECIMAL(10, 2)))"))
    ['my_fn', 'sum', 'CAST']
    """
    from sqlglot import TokenType, tokenize

    names = {TokenType.VAR, TokenType.IDENTIFIER}
    tokens = tokenize(text, read="spark")
    for index, token in enumerate(tokens[:-1]):
        qualified = index > 0 and tokens[index - 1].token_type == TokenType.DOT
        if token.token_type in names and tokens[index + 1].token_type == TokenType.L_PAREN and not qualified:
            yield token.text


def check_declared(functions: object, place: str) -> None:
    """Check the functions that a job declares for its session.

    Raises:
        DefinitionError: not a list of names without a database.
    """
    if isinstance(functions, str) or not isinstance(functions, Collection) or not all(_is_function_name(name) for name in functions):
        raise DefinitionError(
            f"functions={functions!r} is not a list of names of functions",
            fix="write functions=['my_fn']; those with a database, db.my_fn(...), need not be declared",
            place=place,
        )


def _is_function_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()
