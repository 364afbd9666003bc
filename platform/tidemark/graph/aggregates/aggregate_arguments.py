"""Arguments of aggregates: checked when an aggregate is declared, and written into templates."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.model.call_site import call_site


def sql_argument(function: str, expression: object) -> str:
    """Return an SQL expression without surrounding blanks; it is parsed later, when columns are known.

    Raises:
        DefinitionError: it is not text, or empty.
    """
    if not isinstance(expression, str) or not expression.strip():
        raise DefinitionError(
            f"{function}({expression!r}): the argument is not an SQL expression",
            fix=f"pass a column or any SQL expression over the columns as text, such as {function}('fare')",
            place=call_site(),
        )
    return expression.strip()


def in_template(expression: str) -> str:
    """Return an expression as one operand of a template, its own braces doubled.

    >>> in_template("a -> '{'")
    "(a -> '{{')"
    """
    return "(" + expression.replace("{", "{{").replace("}", "}}") + ")"


def number_between(function: str, name: str, value: object, *, minimum: float, maximum: float) -> float:
    """Return a number that lies in a range, bounds included.

    Raises:
        DefinitionError: it is not a number or lies outside.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise DefinitionError(
            f"{function}: {name}={value!r} is not a number from {minimum:g} to {maximum:g}",
            fix=f"pass {name} from {minimum:g} to {maximum:g}{_as_share(value, maximum)}",
            place=call_site(),
        )
    return value


def _as_share(value: object, maximum: float) -> str:
    """Return the share for a number that was given as a percentage."""
    if maximum == 1 and isinstance(value, int | float) and 1 < value <= 100:
        return f", such as {value / 100:g} for {value:g} per cent"
    return ""


def whole_number(function: str, name: str, value: object, *, minimum: int, maximum: int) -> int:
    """Return a whole number that lies in a range, bounds included.

    Raises:
        DefinitionError: it is not a whole number or lies outside.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise DefinitionError(
            f"{function}: {name}={value!r} is not a whole number from {minimum} to {maximum}",
            fix=f"pass {name} from {minimum} to {maximum}",
            place=call_site(),
        )
    return value
