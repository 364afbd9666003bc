"""What the functions that declare a sink to a table of a database do alike: names, mode, keys, and the columns that are added."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidemark.errors import DefinitionError
from tidemark.graph.api.sinks import bind_output
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.output_columns import check_added_columns, output_schema
from tidemark.graph.checks.upsert_keys import upsert_keys
from tidemark.graph.connectors.database.node import BOOKKEEPING, DatabaseSpec
from tidemark.graph.connectors.tables import ColumnFault, check_table_columns
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.nodes import Output

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream

_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def checked_parts(table: object, dsn_env: object, place: str, *, caller: str, longest: int, parts: int) -> list[str]:
    """Return the parts of a table's name, of which there are at most two, and check the variable's name.

    Args:
        table: as it was given.
        dsn_env: likewise, the variable that holds the connection string.
        place: the user's file and line.
        caller: the function that was called, for errors.
        longest: the greatest length of a part.
        parts: how many there may be.

    Raises:
        DefinitionError: no such names. What is given for the variable may be a secret, and the message does not repeat it.
    """
    if not isinstance(dsn_env, str) or not _VARIABLE.fullmatch(dsn_env):
        raise DefinitionError(
            f"{caller}(dsn_env=...) names no environment variable in capital letters",
            fix="give the name of the variable that holds the connection string: dsn_env='SHOP_DSN'; the string itself is kept nowhere",
            place=place,
        )
    found = table.split(".") if isinstance(table, str) else []
    if not 1 <= len(found) <= parts or not all(_PART.fullmatch(part) and len(part) <= longest for part in found):
        shown = "'orders' or 'shop.orders'" if parts > 1 else "'orders'"
        raise DefinitionError(
            f"{caller}(table={shortened(repr(table))}) names no table",
            fix=f"write {shown}: letters, digits and '_', each name with at most {longest} of them",
            place=place,
        )
    if found[-1] == BOOKKEEPING:
        raise DefinitionError(
            f"{caller}(table={table!r}) is the table in which Tidemark notes what was published", fix="name another table", place=place
        )
    return found


def table_output(stream: Stream, spec: DatabaseSpec, keys: Sequence[str] | None, fault: ColumnFault, *, caller: str, place: str) -> Output:
    """Return the output of a stream to a table.

    Args:
        stream: the stream to write.
        spec: as it was given, without keys.
        keys: of an upsert, None for the default.
        fault: says why the database cannot hold a column.
        caller: the function that was called, for errors.
        place: the user's file and line.

    Raises:
        DefinitionError: not a stream, no such mode, or keys that are missing or of no use.
        ColumnError: the database has no type for a column, or the stream lacks a key column.
    """
    output = bind_output(caller, stream, spec)
    if spec.mode not in {"append", "upsert"} or (spec.mode == "append" and keys is not None):
        raise DefinitionError(
            f"{caller}(mode={spec.mode!r}, keys={keys!r}) is neither an append nor an upsert",
            fix="write mode='upsert', or mode='append' without keys",
            place=place,
        )
    if spec.with_epoch and (spec.mode == "upsert" or changelog_keys(output.node) is not None):
        what = "an upsert keeps only the newest rows" if spec.mode == "upsert" else "a changelog's history has the epoch already"
        raise DefinitionError(f"{caller}(with_epoch=True): {what}", fix="leave with_epoch out", place=place)
    if spec.mode == "upsert":
        output = replace(output, sink=replace(spec, keys=upsert_keys(output.node, keys, place, sink=caller)))
    check_added_columns(output)
    schema = output_schema(output)
    check_table_columns(schema.columns if schema is not None else (), fault, place, caller=caller)
    return output
