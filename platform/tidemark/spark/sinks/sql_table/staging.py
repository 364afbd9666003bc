"""The rows of an epoch as they are staged for MariaDB, MySQL or SQLite: values that they cannot hold are refused before the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.connectors.sql_table.checks import SHOWN
from tidemark.graph.connectors.sql_table.node import SqlDatabase
from tidemark.savepoints.database.stored import Longest
from tidemark.spark.columns.expressions import quoted, visible_of
from tidemark.spark.sinks.database.limits import Limits, Problem, held, is_deleted, not_null

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_loaded(rows: DataFrame, limits: Limits, database: SqlDatabase) -> DataFrame:
    """Return rows with the bounds of replaced sessions as JSON, and all other values as they are.

    Args:
        rows: visible columns, and the engine's own, which stay.
        limits: of the table.
        database: its database.
    """
    visible, deleted = visible_of(rows.columns), is_deleted(rows)
    columns = []
    for field in rows.schema:
        if field.name not in visible:
            columns.append(F.col(quoted(field.name)))
            continue
        problem = Problem(limits.output, field.name, SHOWN[database])
        value = not_null(F.col(quoted(field.name)), field, limits, deleted, problem)
        longest = limits.longest.get(field.name)
        if longest is not None:
            value = _short(value, field.dataType, longest, deleted, problem)
        columns.append(_loaded(value, field.dataType, problem, database).alias(field.name))
    return rows.select(*columns)


def _loaded(value: Column, kind: T.DataType, problem: Problem, database: SqlDatabase) -> Column:
    if isinstance(kind, T.ArrayType):
        return F.to_json(value)
    if isinstance(kind, T.FloatType | T.DoubleType):
        bad, what = F.isnan(value), "is NaN"
        if database != "sqlite":
            bad, what = bad | (F.abs(value) == F.lit(float("inf"))), "is NaN or infinite"
        fault = problem.raised(what, "write null instead, such as nullif(value, double('NaN'))")
        return F.when(bad, fault.cast(kind)).otherwise(value)
    # MariaDB and MySQL promise times from the year 1000 on.
    return held(value, kind, problem, first_year=1 if database == "sqlite" else 1000)


def _short(value: Column, kind: T.DataType, longest: Longest, deleted: Column, problem: Problem) -> Column:
    if not isinstance(kind, T.StringType | T.BinaryType):
        return value
    exceeds = (F.length(value) > longest.characters) | (F.octet_length(value) > longest.bytes)
    fix = "write a part of it or a checksum, filter such rows, or make the table's column longer"
    fault = problem.raised(f"is longer than {longest.characters} characters or {longest.bytes} bytes", fix)
    return F.when(exceeds & ~deleted, fault.cast(kind)).otherwise(value)
