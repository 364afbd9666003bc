"""What the connectors to tables have in common: the name of a fork's table, and the check of columns."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final

from tidemark.errors import ColumnError
from tidemark.graph.model.schema import SchemaColumn

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")

ColumnFault = Callable[[str, str | None], tuple[str, str] | None]
"""Returns why a column of a name and a type (None if it is not known) cannot be written, and what to write instead."""


def fork_table(fork: str, table: str, *, longest: int) -> str:
    """Return the name of a fork's table: ``<fork>_<table>``, with a checksum where the database has no such names.

    Args:
        fork: its name.
        table: that of the original's table.
        longest: the greatest length of a name.

    >>> fork_table("try", "orders", longest=63)
    'try_orders'
    """
    wanted = f"{fork}_{table}"
    name = _NOT_IN_NAMES.sub("_", wanted)
    if name == wanted and len(name) <= longest:
        return name
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    return f"{name[: longest - len(digest) - 1]}_{digest}"


def check_table_columns(columns: Iterable[SchemaColumn], fault: ColumnFault, place: str, *, caller: str) -> None:
    """Check that a database takes each column. Columns of unknown types are checked before the first rows.

    Args:
        columns: of the output.
        fault: of a column.
        place: the user's file and line.
        caller: the function that was called, for the error.

    Raises:
        ColumnError: naming the first that it does not take, and what to write instead.
    """
    for column in columns:
        found = fault(column.name, column.type)
        if found is not None:
            raise ColumnError(f"{caller}: {found[0]}", fix=found[1], place=place)
