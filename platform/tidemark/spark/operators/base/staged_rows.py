"""Rows of an epoch that are read more than once: written to files first, and deleted at the epoch's end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.spark.columns.expressions import TIME
from tidemark.spark.columns.few_rows import FEW_ROWS, in_one_task
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import read_files, write_few, write_folder
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables
from tidemark.spark.prepared.prepared_pass import Build
from tidemark.spark.prepared.prepared_plan import PassRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StagedRows:
    """Rows that were written to files of their own; one Spark job, none where they were read already.

    Args:
        context: of the epoch.
        tables: the operator's.
        rows: what is written.
    """

    def __init__(self, context: OperatorContext, tables: StateTables, rows: DataFrame | PassRows) -> None:
        self._context = context
        self._schema = nullable(rows.schema)
        time = TIME if TIME in self._schema.names else None
        store, folder = context.store, tables.new_folder()
        if isinstance(rows, PassRows):
            table = rows.table.cast(to_arrow_schema(self._schema, timezone="UTC"))
            self._files = write_few(store, folder, table, compression=STATE_COMPRESSION, time_column=time)
        else:
            self._files = write_folder(rows, store, folder, compression=STATE_COMPRESSION, time_column=time)
        self.count = sum(file.rows for file in self._files)

    @property
    def few(self) -> bool:
        """Whether they are few, and processed in one task."""
        return self._context.native and self.count <= FEW_ROWS

    @property
    def rows(self) -> DataFrame:
        """The rows, read from the files."""
        if not self._files:
            return no_rows(self._context.spark, self._schema)
        files = [file.as_state_file(self._context.epoch) for file in self._files]
        rows = read_files(self._context.spark, self._context.store, files, self._schema)
        return in_one_task(rows) if self.few else rows

    @property
    def few_files(self) -> tuple[str, ...]:
        """The addresses of the files, where they have few rows, and are read in one task; empty otherwise."""
        return tuple(self._context.store.spark_uri(file.path) for file in self._files) if self.few else ()

    def delete(self) -> None:
        """Delete the files; called when nothing reads the rows any more."""
        self._context.store.delete(tuple(file.path for file in self._files))
        self._files = []


def staged_rows(
    context: OperatorContext, tables: StateTables, scans: Sequence[Sequence[str]], numbers: Sequence[int], build: Build, *, name: str
) -> tuple[StagedRows, Sequence[Mapping[str, Any]]]:
    """Return the rows of a pass, and what each of its observations has; one Spark job.

    Args:
        context: of the epoch.
        tables: the operator's.
        scans: the files that each scan reads, where all have few rows, so that the pass may be prepared; else none.
        numbers: that differ between epochs.
        build: makes the DataFrame from the numbers, and its observations.
        name: of the pass.
    """
    found = context.prepared[name].run(scans, numbers, build) if scans else None
    if found is not None:
        return StagedRows(context, tables, found), found.observed
    rows, observations = build(numbers)
    return StagedRows(context, tables, rows), [each.get for each in observations]
