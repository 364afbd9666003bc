"""From the graph's expressions to Spark columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.graph.nodes import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column

TIME = "__tm_time"
SPLIT = "__tm_split"
POSITION = "__tm_position"
VERDICT = "__tm_verdict"
START = "__tm_start"
ROWS = "__tm_rows"
REASON = "__tm_reason"
CORRUPT = "__tm_corrupt"
META = "__tm_meta"
SOURCE = "__tm_source"
HIDDEN = (TIME, SPLIT, POSITION)
_NAME = re.compile(r"\w+|`[^`]+`")


def struct_of(ddl: str) -> StructType:
    """Return the type of rows with the columns of a DDL text."""
    found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise TypeError(f"{ddl!r} declares no columns")
    return found


def quoted(name: str) -> str:
    """Return a column name as an SQL identifier, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def is_name(expression: Expression) -> bool:
    """Whether an expression is a column as it stands, which cannot fail."""
    return isinstance(expression, str) and _NAME.fullmatch(expression.strip()) is not None and not expression.strip()[0].isdigit()


def column(expression: Expression) -> Column:
    """Return the Column of an SQL text or of a deferred function."""
    return F.expr(expression) if isinstance(expression, str) else expression()


def named_columns(pairs: Sequence[tuple[str, Expression]]) -> list[Column]:
    """Return the columns of (name, expression) pairs, aliased."""
    return [column(expression).alias(name) for name, expression in pairs]


def hidden_of(names: Sequence[str]) -> list[str]:
    """Return which of the engine's columns that travel with every row are among the names."""
    return [name for name in HIDDEN if name in names]


def visible_of(names: Sequence[str]) -> list[str]:
    """Return the user's columns among the names, in order."""
    return [name for name in names if not name.startswith("__tm_")]
