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
_TO_TIME = frozenset({"to_date", "try_to_date", "to_timestamp", "try_to_timestamp", "to_timestamp_ntz", "to_timestamp_ltz"})
_INSTANTS = frozenset({"now", "today", "tomorrow", "yesterday"})
_NAMED_INSTANT = re.compile(rf"""['"]\s*({"|".join(sorted(_INSTANTS))})\s*['"]""", re.IGNORECASE)


def names_the_time(text: str) -> str | None:
    """Return the text in SQL that Spark may read as the time, or the day, at which a query is planned; None without any.

    >>> names_the_time("day >= DATE'Today'")
    'Today'
    """
    found = _NAMED_INSTANT.search(text)
    return None if found is None else found.group(1)


def changing_function(parsed: exp.Expr, is_time: Callable[[exp.Expr], bool] = lambda _: False) -> str | None:
    """Return what in an expression draws a random value, reads the clock or depends on where a row is processed; None without any.

    Args:
        parsed: the expression.
        is_time: whether a part of it is known to be a date or timestamp.

    >>> import sqlglot
    >>> changing_function(sqlglot.parse_one("fare + rand(7)", dialect="spark"))
    'rand'
    """
    from sqlglot import exp

    for node in parsed.walk(bfs=False):
        name = function_name(node)
        if name in _CHANGING and not (name == "aes_encrypt" and _has_mode_ecb(node)):
            return name
        if isinstance(node, exp.Literal) and node.name.strip().lower() in _INSTANTS and _becomes_time(node, is_time):
            return node.name
    return None


def _becomes_time(literal: exp.Literal, is_time: Callable[[exp.Expr], bool]) -> bool:
    """Return whether a text is turned into a date or timestamp: by a function, or to be compared with one."""
    from sqlglot import exp

    parent = literal.parent
    if isinstance(parent, exp.Predicate | exp.In | exp.Between | exp.Coalesce):
        return any(map(is_time, parent.iter_expressions()))
    return isinstance(parent, exp.Cast | exp.TsOrDsToDate) or (parent is not None and function_name(parent) in _TO_TIME)


def _has_mode_ecb(node: exp.Expr) -> bool:
    from sqlglot import exp

    return any(literal.name.upper() == "ECB" for literal in node.find_all(exp.Literal))
