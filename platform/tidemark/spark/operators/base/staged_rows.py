"""Rows of an epoch that are read more than once: written to files first, and deleted at the epoch's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.spark.columns.expressions import TIME
from tidemark.spark.columns.few_rows import FEW_ROWS, in_one_task
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import read_files, write_folder
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StagedRows:
    """Rows that were written to files of their own; one Spark job.

    Args:
        context: of the epoch.
        tables: the operator's.
        rows: what is written.
    """

    def __init__(self, context: OperatorContext, tables: StateTables, rows: DataFrame) -> None:
        self._context = context
        self._schema = nullable(rows.schema)
        time = TIME if TIME in rows.columns else None
        self._files = write_folder(rows, context.store, tables.new_folder(), compression=STATE_COMPRESSION, time_column=time)
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

    def delete(self) -> None:
        """Delete the files; called when nothing reads the rows any more."""
        self._context.store.delete(tuple(file.path for file in self._files))
        self._files = []
