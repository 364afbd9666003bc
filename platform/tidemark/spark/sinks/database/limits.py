"""Values that a table of a database cannot hold are refused while rows are staged: after the commit there is no other way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.savepoints.database.stored import Longest
from tidemark.spark.sinks.delta.delta_changes import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Limits:
    """What a table takes.

    Args:
        output: the name of the output that writes to it, for errors.
        keys: of an upsert, empty for an append.
        required: columns that take no null.
        longest: the greatest length of values, by column, where there is one.
    """

    output: str
    keys: Sequence[str]
    required: Collection[str]
    longest: Mapping[str, Longest]


@dataclass(frozen=True)
class Problem:
    """A value that cannot be written, as an error of the epoch says it: the output, its column, and the database."""

    output: str
    column: str
    database: str

    def raised(self, what: str, fix: str) -> Column:
        """Return an expression that fails."""
        text = f"output '{self.output}': column '{self.column}' {what}, which its {self.database} table cannot hold: {fix}"
        return F.raise_error(F.lit(text))


def is_deleted(rows: DataFrame) -> Column:
    """Return whether a row only has the key of one that is deleted."""
    return F.col(DELETED) if DELETED in rows.columns else F.lit(False)


def not_null(value: Column, field: T.StructField, limits: Limits, deleted: Column, problem: Problem) -> Column:
    """Return a value, or fail where the table's column takes no null."""
    if field.name not in limits.required:
        return value
    fault = problem.raised("is null", "filter such rows, or take NOT NULL off the table's column")
    return F.when(value.isNull() & ~deleted, fault.cast(field.dataType)).otherwise(value)


def held(value: Column, kind: T.DataType, problem: Problem, *, first_year: int = 1) -> Column:
    """Return a value, or fail where its text is no UTF-8 or has the character 0, or its year is out of range.

    Args:
        value: to write.
        kind: its type.
        problem: what fails.
        first_year: the least that the database holds; the last one is 9999.
    """
    if isinstance(kind, T.StringType):
        fault = problem.raised("has a text with the character 0, or bytes that are no UTF-8", "replace these, as by replace(text, char(0))")
        bad = (F.instr(value, F.lit("\0")) > 0) | ~F.call_function("is_valid_utf8", value)
        return F.when(bad, fault.cast("string")).otherwise(value)
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        fault = problem.raised(f"has a year outside {first_year} to 9999", "filter such rows, or write null instead")
        year = F.year(value)
        return F.when((year < first_year) | (year > 9999), fault.cast(kind)).otherwise(value)
    return value
