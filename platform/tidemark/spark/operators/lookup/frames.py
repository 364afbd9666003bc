"""The DataFrames of a join with a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidemark.errors import DefinitionError
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.join_keys import added_names, check_names, types_differ
from tidemark.graph.operators.lookup.kind import missing_column
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.spark.columns.expressions import POSITION, TIME, column, quoted, visible_of
from tidemark.spark.columns.schemas import struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOUND: Final = "__tm_found"
_KEY: Final = "__tm_key_{}"


def keyed_rows(node: LookupNode, rows: DataFrame) -> DataFrame:
    """Return the rows of a table with their keys, and the columns that results have.

    Raises:
        ColumnError: the table lacks a column.
        DefinitionError: it has a column of another type than was declared.
    """
    rows = _declared(node, rows)
    known = Schema.of((field.name, field.dataType.simpleString()) for field in rows.schema)
    for name in node.columns or ():
        if known.find(name) is None:
            raise missing_column(node, name, known)
    chosen = None if node.columns is None else {name.lower() for name in node.columns}
    kept = [name for name in added_names(node.on, rows.columns) if chosen is None or name.lower() in chosen]
    named = [column(expression).alias(_KEY.format(number)) for number, expression in enumerate(key.right for key in node.on)]
    try:
        rows.select(*named)
    except PySparkException as error:
        wanted = next((str(key.right) for key in node.on if known.find(str(key.right).strip("` ")) is None), "")
        raise missing_column(node, wanted, known) from error
    # A row whose key has a null meets nothing.
    present = " AND ".join(f"{_KEY.format(number)} IS NOT NULL" for number in range(len(named)))
    return rows.select(*named, *(F.col(quoted(name)) for name in kept)).where(present)


def with_found(rows: DataFrame) -> DataFrame:
    """Return keyed rows with the column that says, after a left join, that there is one."""
    return rows.withColumn(FOUND, F.expr("true"))


def joined(node: LookupNode, elements: DataFrame, table: DataFrame) -> DataFrame:
    """Return elements with the table's columns, null where there is no row, and whether there is one.

    Args:
        node: the operator.
        elements: of the epoch.
        table: its rows, keyed, ``with_found``.

    Raises:
        ColumnError: one name for columns of both sides.
        DefinitionError: values of different types are compared.
    """
    added = visible_of(table.columns)
    check_names(visible_of(elements.columns), added, node, "lookup")
    names = [f"__tm_asked_{number}" for number in range(len(node.on))]
    asked = elements.withColumns({name: column(key.left) for name, key in zip(names, node.on, strict=True)})
    for number, key in enumerate(node.on):
        was, now = asked.schema[names[number]].dataType.simpleString(), table.schema[_KEY.format(number)].dataType.simpleString()
        if was != now:
            raise types_differ(key, (was.upper(), now.upper()), node, "lookup")
    same = " AND ".join(f"{name} = {_KEY.format(number)}" for number, name in enumerate(names))
    hidden = [name for name in (TIME, POSITION) if name in elements.columns]
    found = F.expr(f"coalesce({FOUND}, false)").alias(FOUND)
    return asked.join(table, F.expr(same), "left").select(*map(quoted, visible_of(elements.columns)), *map(quoted, added), *hidden, found)


def _declared(node: LookupNode, rows: DataFrame) -> DataFrame:
    """Return the columns that were declared, as they were spelled; all of them where none were."""
    if node.table.schema is None:
        return rows
    there = {field.name.lower(): field for field in rows.schema}
    chosen = []
    for field in struct_of(node.table.schema):
        found = there.get(field.name.lower())
        declared = field.dataType.simpleString()
        if found is None:
            raise missing_column(node, field.name, Schema.of((each.name, None) for each in rows.schema))
        if found.dataType.simpleString() != declared:
            was = found.dataType.simpleString().upper()
            raise DefinitionError(
                f"table {node.table.label!r} has column {field.name!r} of type {was}, and schema= declares {declared.upper()}",
                fix="declare the types that the table has",
                uid=node.uid,
                place=node.place,
            )
        chosen.append(F.col(quoted(found.name)).alias(field.name))
    return rows.select(*chosen)
