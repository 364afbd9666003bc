"""Expressions and functions in words, on one line."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.graph.model.nodes import Expression


def describe_expression(expression: Expression) -> str:
    """Return SQL on one line, or the name of a deferred function."""
    return " ".join(expression.split()) if isinstance(expression, str) else f"{function_name(expression)}()"


def describe_columns(columns: Iterable[tuple[str, Expression]]) -> str:
    """Return names with their expressions, the name alone where it is the column of that name.

    >>> describe_columns([("zone", "zone"), ("double", "2 * fare")])
    'zone, double = 2 * fare'
    """
    shown = ((name, describe_expression(expression)) for name, expression in columns)
    return ", ".join(name if name == text else f"{name} = {text}" for name, text in shown)


def function_name(function: object) -> str:
    """Return the name of a function, or of the class of a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))


def shortened(text: str, most: int = 80) -> str:
    """Return a text on one line, cut where it is longer than a message can bear.

    >>> shortened("a  b", 3), shortened("abcdef", 3)
    ('a b', 'ab…')
    """
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
