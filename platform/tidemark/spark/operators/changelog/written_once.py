"""Rows of state that are written once: each beside the row before, so that the epoch's changes are read from the same files.

The row before is a column that is no part of the state: merged files do not have it, and readers ask for columns by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.spark.columns.changes import AFTER, BEFORE
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.changelog.contents import EPOCH, GONE, HASH, STORED, Contents
from tidemark.spark.operators.changelog.frames import KEPT, PairsFrames
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WrittenOnce:
    """An epoch's rows of state, written beside the rows before; one Spark job.

    Args:
        contents: the table that they are added to.
        pairs: the rows before and after, with what is written.
        epoch: the current one.
    """

    def __init__(self, contents: Contents, pairs: DataFrame, epoch: int) -> None:
        self._contents = contents
        self._before = T.StructField(STORED, nullable(T.StructType([pairs.schema[BEFORE]]))[BEFORE].dataType)
        # As a literal it would have the code compiled in each epoch.
        number = F.expr(runtime_literals(epoch, varying=HASH)[0]).alias(EPOCH)
        kept = pairs.where(f"{KEPT} IS NOT NULL").select(f"{KEPT}.*", GONE, number, HASH, F.col(BEFORE).alias(STORED))
        self.files = contents.add(kept.select(*map(quoted, contents.columns.names), GONE, EPOCH, HASH, STORED))

    @property
    def few_files(self) -> tuple[str, ...]:
        """The addresses of the files, where they have few rows, and are read in one task; empty otherwise."""
        return self._contents.tables.few_files(self.files)

    def pairs(self, frames: PairsFrames) -> DataFrame:
        """Return the rows of each key before and after the epoch."""
        columns = self._contents.columns
        rows = self._contents.tables.read(self.files, T.StructType([*columns, T.StructField(GONE, T.BooleanType()), self._before]))
        after = f"if({GONE}, NULL, {frames.rows_after(columns.names)})"
        return rows.selectExpr(f"{STORED} AS {BEFORE}", f"{after} AS {AFTER}")
