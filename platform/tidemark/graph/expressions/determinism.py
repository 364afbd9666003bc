"""Functions of Spark SQL that may give another value when they are called again for the same row."""

from __future__ import annotations

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
_INSTANTS = frozenset({"now", "today", "tomorrow", "yesterday"})


def changing_function(parsed: exp.Expr) -> str | None:
    """Return what in an expression draws a random value, reads the clock or depends on where a row is processed; None without any.

    >>> import sqlglot
    >>> changing_function(sqlglot.parse_one("fare + rand(7)", dialect="spark"))
    'rand'
    """
    from sqlglot import exp

    for node in parsed.walk(bfs=False):
        name = function_name(node)
        if name in _CHANGING and not (name == "aes_encrypt" and _has_mode_ecb(node)):
            return name
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.name.strip().lower() in _INSTANTS:
            return node.this.name
    return None


def _has_mode_ecb(node: exp.Expr) -> bool:
    from sqlglot import exp

    return any(literal.name.upper() == "ECB" for literal in node.find_all(exp.Literal))
