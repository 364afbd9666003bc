"""Built-in aggregates under the names users know from Spark SQL."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.aggregates import Aggregate, Partial


def _argument(function: str, expression: object) -> str:
    if not isinstance(expression, str) or not expression.strip():
        raise DefinitionError(
            f"{function}({expression!r}): the argument is not SQL text",
            fix=f'write {function}("column") or any SQL expression over the columns, as a string',
        )
    return expression.strip()


def _template(expression: str) -> str:
    return "(" + expression.replace("{", "{{").replace("}", "}}") + ")"


def count(expression: str | None = None) -> Aggregate:
    """Count elements, or those where the expression is not null. BIGINT, exact, never null."""
    if expression is None or expression.strip() == "*":
        return Aggregate("count", (), (Partial("count", "count(1)", "sum({count})"),), "{count}")
    argument = _argument("count", expression)
    return Aggregate("count", (argument,), (Partial("count", f"count({_template(argument)})", "sum({count})"),), "{count}")


def sum(expression: str) -> Aggregate:
    """Add up the values."""
    argument = _argument("sum", expression)
    return Aggregate("sum", (argument,), (Partial("sum", f"sum({_template(argument)})", "sum({sum})"),), "{sum}")


def avg(expression: str) -> Aggregate:
    """Average the values."""
    argument = _argument("avg", expression)
    text = _template(argument)
    return Aggregate(
        "avg",
        (argument,),
        (Partial("sum", f"sum({text} / 1)", "sum({sum})"), Partial("count", f"count({text})", "sum({count})")),
        "try_divide({sum}, {count})",
    )


def min(expression: str) -> Aggregate:
    """Return the least value."""
    argument = _argument("min", expression)
    return Aggregate("min", (argument,), (Partial("min", f"min({_template(argument)})", "min({min})"),), "{min}")


def max(expression: str) -> Aggregate:
    """Return the greatest value."""
    argument = _argument("max", expression)
    return Aggregate("max", (argument,), (Partial("max", f"max({_template(argument)})", "max({max})"),), "{max}")
