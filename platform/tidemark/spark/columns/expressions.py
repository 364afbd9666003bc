"""From the graph's expressions to Spark columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from tidemark.graph.model.nodes import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIME = "__tm_time"
SPLIT = "__tm_split"
POSITION = "__tm_position"
ROW_STATUS = "__tm_verdict"
START = "__tm_start"
ROWS = "__tm_rows"
REASON = "__tm_reason"
CORRUPT = "__tm_corrupt"
RAW = "__tm_raw"
VALUE = "__tm_value"
"""The value of a record as received, where the source decodes it."""
CHANGE = "__tm_change"
META = "__tm_meta"
SOURCE = "__tm_source"
HIDDEN = (TIME, SPLIT, POSITION, CHANGE)
MAX_PIECES: Final = 1 << 16
"""Up to so many rows made of one row have their own positions; further ones share the last."""
AS_JSON: Final = (
    "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS XXX', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""Options by which JSON keeps all of a value."""
_NAME = re.compile(r"\w+|`[^`]+`")


def quoted(name: str) -> str:
    """Return a column name as an SQL identifier, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Return a string as SQL, whatever characters it has, and however the session reads backslashes: it may come from data."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def is_name(expression: Expression) -> bool:
    """Whether an expression is only a column name, which cannot fail."""
    return isinstance(expression, str) and _NAME.fullmatch(expression.strip()) is not None and not expression.strip()[0].isdigit()


def key_hash(columns: Sequence[str]) -> str:
    """Return SQL of a number that orders the rows of one time by their keys, as positions order a source's rows."""
    # A hash ignores nulls, so it needs to include which of several keys are null.
    nulls = [f"{quoted(key)} IS NULL" for key in columns] if len(columns) > 1 else []
    return f"xxhash64({', '.join([*map(quoted, columns), *nulls])})" if columns else "0L"


def nth_position(number: str) -> str:
    """Return SQL of the position of the row made of another one as its ``number``-th, from 0.

    Rows made of one row are ordered by it.
    """
    bits = MAX_PIECES.bit_length() - 1
    row = f"shiftleft({POSITION}.row, {bits}) | CAST(least({number}, {MAX_PIECES - 1}) AS BIGINT)"
    return f"named_struct('origin', {POSITION}.origin, 'block', {POSITION}.block, 'row', {row})"


def nulls_in(value: str, kind: DataType) -> list[str]:
    """Return expressions for which parts of a value are null, since Spark's hashes ignore nulls.

    Args:
        value: an SQL expression.
        kind: its type.

    >>> from pyspark.sql.types import IntegerType, StructType
    >>> nulls_in("key", StructType().add("a", IntegerType()))
    ['key IS NULL', 'key.`a` IS NULL']
    """
    found = [f"{value} IS NULL"]
    if isinstance(kind, StructType):
        found += [place for field in kind.fields for place in nulls_in(f"{value}.{quoted(field.name)}", field.dataType)]
    elif isinstance(kind, ArrayType):
        found.append(f"transform({value}, x -> struct({', '.join(nulls_in('x', kind.elementType))}))")
    return found


def column(expression: Expression) -> Column:
    """Return the Column of an SQL text or of a deferred function."""
    return F.expr(expression) if isinstance(expression, str) else expression()


def hidden_of(names: Sequence[str]) -> list[str]:
    """Return which of the engine's columns that travel with every row are among the names."""
    return [name for name in HIDDEN if name in names]


def visible_of(names: Sequence[str]) -> list[str]:
    """Return the user's columns among the names, in order."""
    return [name for name in names if not name.startswith("__tm_")]


def visible_part(rows: DataFrame) -> DataFrame:
    """Return rows without the engine's columns."""
    return rows.drop(*(name for name in rows.columns if name not in visible_of(rows.columns)))
