"""Copies of tables that keep no versions: the rows as they are when an epoch is planned, as files of the operator's state.

So what keeps state files keeps copies: a copy stays as long as a record, a savepoint, another job or the plan of an epoch names it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.spark.columns.expressions import AS_JSON, quoted
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import read_files, write_folder
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables
from tidemark.state.log.epoch_intent import TableVersion
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION: Final = "table_version"
"""The field of the operator's entry in an epoch's record that says which version of the table the epoch read."""

COPY: Final = "table_copy"
"""The field with the columns of its copy, and the hash of what was copied; missing where the table keeps its versions."""

PART: Final = "table"
"""The table of the operator's state that holds the copy."""

_COPIED_BY: Final = ("table", "columns", "keys", "right_keys")
"""The parts of the operator's definition that say which rows and columns a copy has."""


def known_version(context: OperatorContext) -> TableVersion | None:
    """Return the version of the epoch before; None where there is none, or it was of another table or other columns of it."""
    before, stored = context.before, context.before.definition
    version = stored.get(VERSION)
    if not isinstance(version, str) or any(stored.get(name) != context.definition.get(name) for name in _COPIED_BY):
        return None
    copy = cast("dict[str, str] | None", stored.get(COPY))
    if copy is None:
        return TableVersion(version)
    return TableVersion(version, tuple(file for file in before.files if file.part == PART), copy["schema"], copy["listing"])


def recorded(state: OperatorState, table: TableVersion) -> OperatorState:
    """Return the operator's entry for an epoch's record with the version that the epoch read."""
    definition: dict[str, object] = {**state.definition, VERSION: table.version}
    if table.schema:
        definition[COPY] = {"schema": table.schema, "listing": table.listing}
    return replace(state, definition=definition, files=table.files)


def copied(context: OperatorContext, rows: DataFrame, *, place: str, listing: str, known: TableVersion | None) -> TableVersion:
    """Copy a table; one Spark job. Return the known version where the rows are the same; its copy stays then.

    Args:
        context: of the epoch that is planned.
        rows: of the table, keyed.
        place: where the operator was declared.
        listing: the hash of the files that are copied, empty for a table of a database.
        known: the version of the epoch before, if any.
    """
    schema, seen = nullable(rows.schema), Observation()
    counted = rows.observe(seen, F.expr("count(1) AS rows"), F.expr(f"sum(CAST({_row_hash(schema)} AS DECIMAL(20, 0))) AS hash"))
    folder = StateTables(context, place).new_folder()
    written = write_folder(counted, context.store, folder, compression=STATE_COMPRESSION)
    columns, content = schema.json(), seen.get
    version = hashlib.sha256(f"{columns} {content['rows']} {content['hash']}".encode()).hexdigest()[:16]
    if known is not None and known.version == version:
        context.store.remove_folder(folder)
        return replace(known, listing=listing)
    crash_point("table-copied")
    files = tuple(replace(file.as_state_file(context.epoch), part=PART) for file in written)
    return TableVersion(version, files, columns, listing)


def rows_of_copy(context: OperatorContext, table: TableVersion) -> DataFrame:
    """Return the rows of a copy."""
    schema = T.StructType.fromJson(json.loads(table.schema))
    return read_files(context.spark, context.store, table.files, schema) if table.files else no_rows(context.spark, schema)


def _row_hash(schema: T.StructType) -> str:
    """Return SQL for a hash of a row. Spark's hash passes over nulls, so the places of these are hashed, too."""
    parts = []
    for field in schema:
        name = quoted(field.name)
        parts.append(f"isnull({name})")
        if isinstance(field.dataType, T.StringType):
            # A collation may take different texts for equal.
            parts.append(f"CAST({name} AS BINARY)")
        elif isinstance(field.dataType, T.AtomicType) and not isinstance(field.dataType, T.VariantType):
            parts.append(name)
        else:
            parts.append(f"to_json(struct({name}), {AS_JSON})")
    return f"xxhash64({', '.join(parts)})"
