"""Functions of Spark SQL that may give another value when they are called again for the same row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.graph.expressions.sql_functions import function_name

if TYPE_CHECKING:
    from sqlglot import exp

_CHANGING = frozenset(
    {
        *("rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "aes_encrypt", "reflect", "try_reflect", "java_method"),
        *("monotonically_increasing_id", "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length"),
        *("current_timestamp", "now", "localtimestamp", "current_date", "curdate", "current_time", "getdate", "sysdate"),
    }
)
_OF_TIMES = frozenset(
    {
        *("to_date", "try_to_date", "to_timestamp", "try_to_timestamp", "to_timestamp_ntz", "to_timestamp_ltz", "ts_or_ds_to_date"),
        *(
            "year",
            "quarter",
            "month",
            "monthname",
            "week_of_year",
            "day",
            "dayname",
            "weekday",
            "day_of_month",
            "day_of_week",
            "day_of_year",
        ),
        *("hour", "minute", "second", "extract", "date_part", "datepart", "date_trunc", "timestamp_trunc", "last_day", "next_day"),
        *("ts_or_ds_add", "date_add", "date_sub", "dateadd", "add_months", "months_between", "datediff", "date_diff", "time_to_str"),
        *("timestamp_add", "timestampadd", "timestamp_diff", "timestampdiff", "convert_timezone", "to_utc_timestamp", "from_utc_timestamp"),
        *("unix_date", "unix_seconds", "unix_millis", "unix_micros"),
    }
)
"""Functions that take a date or a timestamp: Spark converts a text that it is given."""

_NO_TIMES = frozenset({"format", "unit", "zone", "source_tz", "target_tz"})
"""The arguments of these that are no times."""

_INSTANT = "(?:now|today|tomorrow|yesterday)"
_NAMED = re.compile(rf"\s*{_INSTANT}(?![A-Za-z])\s*\S*\s*", re.IGNORECASE)
"""A text that Spark converts to the time, or the day, at which a query is planned; a time zone may follow."""

_QUOTED = re.compile(rf"""['"](\s*{_INSTANT}(?![A-Za-z])\s*[^\s'"]*\s*)['"]""", re.IGNORECASE)


def names_the_time(text: str) -> str | None:
    """Return the text in SQL that Spark may read as the time, or the day, at which a query is planned; None without any.

    >>> names_the_time("day >= DATE'Today UTC'")
    'Today UTC'
    """
    found = _QUOTED.search(text)
    return None if found is None else found.group(1).strip()


def changing_function(parsed: exp.Expr, is_time: Callable[[exp.Expr], bool] = lambda _: False) -> str | None:
    """Return what in an expression draws a random value, reads the clock or depends on where a row is processed; None without any.

    Args:
        parsed: the expression.
        is_time: whether a part of it is known to be a date or timestamp.

    >>> import sqlglot
    >>> changing_function(sqlglot.parse_one("fare + rand(7)", dialect="spark"))
    'rand'
    """
    for node in parsed.walk(bfs=False):
        name = function_name(node)
        if name in _CHANGING and not (name == "aes_encrypt" and _has_mode_ecb(node)):
            return name
        text = _constant_text(node)
        if text is not None and _NAMED.fullmatch(text) and _becomes_time(node, is_time):
            return text
    return None


def _constant_text(node: exp.Expr) -> str | None:
    """Return the text that an expression of texts alone has: one text, or several that are put together; None of others."""
    from sqlglot import exp

    if isinstance(node, exp.Literal):
        return node.name if node.is_string else None
    if isinstance(node, exp.Paren):
        return _constant_text(node.this)
    if isinstance(node, exp.Concat | exp.DPipe):
        parts = [_constant_text(part) for part in (node.flatten() if isinstance(node, exp.DPipe) else node.expressions)]
        return None if None in parts else "".join(part or "" for part in parts)
    return None


def _becomes_time(text: exp.Expr, is_time: Callable[[exp.Expr], bool]) -> bool:
    """Return whether Spark converts a text to a date or timestamp: by a cast or a function, or since it is beside one.

    It does so with what an expression without columns makes of the text, too, as a CASE; with texts of rows it does not.
    """
    from sqlglot import exp

    kept = (exp.Paren, exp.If, exp.Case, exp.Coalesce, exp.Greatest, exp.Least, exp.Trim, exp.Lower, exp.Upper, exp.Cast)
    node, parent = text, text.parent
    while parent is not None:
        if isinstance(parent, exp.Cast) and parent.is_type(*exp.DataType.TEMPORAL_TYPES):
            return True
        if _takes_time(parent, node) or any(map(is_time, _of_one_type(parent, node))):
            return True
        if not isinstance(parent, kept) or _is_condition(parent, node) or parent.find(exp.Column) is not None:
            return False
        node, parent = parent, parent.parent
    return False


def _takes_time(function: exp.Expr, argument: exp.Expr) -> bool:
    """Return whether a function takes an argument as a date or timestamp, not as a format, unit or time zone."""
    from sqlglot import exp

    if argument.arg_key in _NO_TIMES:
        return False
    name = function_name(function)
    if isinstance(function, exp.Anonymous) and argument.index and name.startswith(("to_", "try_to_")):
        return False
    return name in _OF_TIMES or isinstance(function, exp.AtTimeZone)


def _of_one_type(parent: exp.Expr, node: exp.Expr) -> list[exp.Expr]:
    """Return what Spark converts to one type with a part of an expression: what that is compared with, or the other results."""
    from sqlglot import exp

    of_texts = (exp.DPipe, exp.Like, exp.ILike, exp.RegexpLike, exp.Dot)
    beside = (exp.Binary, exp.Predicate, exp.Between, exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif)
    if isinstance(parent, exp.If):
        if isinstance(parent.parent, exp.Case):
            return _of_one_type(parent.parent, parent if node.arg_key == "true" else node)
        return [] if _is_condition(parent, node) else [parent.args[name] for name in ("true", "false") if parent.args.get(name)]
    if isinstance(parent, exp.Case):
        if node.arg_key == "this":
            operand = parent.this
            return [operand, *(branch.this for branch in parent.args["ifs"])] if operand is not None else []
        results = [branch.args["true"] for branch in parent.args["ifs"]]
        return [*results, parent.args["default"]] if parent.args.get("default") else results
    if isinstance(parent, beside) and not isinstance(parent, of_texts):
        return [part for part in parent.iter_expressions() if part is not node]
    return []


def _is_condition(parent: exp.Expr, node: exp.Expr) -> bool:
    """Return whether a part of a CASE or an IF only decides which result it has."""
    from sqlglot import exp

    return isinstance(parent, exp.If | exp.Case) and node.arg_key == "this"


def _has_mode_ecb(node: exp.Expr) -> bool:
    from sqlglot import exp

    return any(literal.name.upper() == "ECB" for literal in node.find_all(exp.Literal))
