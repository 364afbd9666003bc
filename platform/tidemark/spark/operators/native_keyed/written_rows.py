"""The rows that a pass over keys wrote: its results and the next state of keys. Few of them are read by the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.spark.columns.expressions import START
from tidemark.spark.columns.few_rows import driver_can_read, in_one_task
from tidemark.spark.columns.state_files import address_of, read_files
from tidemark.spark.operators.base.contract import OperatorContext, Results
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.keyed.columns import DUE, EPOCH, OLDEST, STATE, TIMER
from tidemark.spark.operators.native_keyed.columns import CHANGES, EMITS, EVENT_RENEWED, PROCESSING_RENEWED, result_name
from tidemark.spark.operators.native_keyed.passes import KeyedPass
from tidemark.spark.operators.native_keyed.program import KeyedProgram
from tidemark.spark.prepared.prepared_plan import PassRows, is_writable
from tidemark.state.log.parquet_files import read_parquet
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


@dataclass(frozen=True)
class WrittenRows:
    """The rows that a pass wrote.

    Args:
        context: of the epoch.
        frames: of the pass.
        files: that it wrote.
        schema: their columns.
    """

    context: OperatorContext
    frames: KeyedPass
    files: tuple[StateFile, ...]
    schema: T.StructType

    @property
    def are_few(self) -> bool:
        """Whether they are few, so that one task reads them, or the driver."""
        return driver_can_read(sum(file.rows for file in self.files), sum(file.bytes for file in self.files))

    def write_state(self, tables: StateTables) -> None:
        """Write the next state of keys into the table of keys; one Spark job, none where they are few."""
        program, epoch = self.frames.program, self.context.epoch
        if self.are_few and tables.schema is not None and is_writable(tables.schema):
            tables.added = tables.add_rows(_state_rows(program, self._rows, tables.schema, epoch))
        else:
            tables.added = tables.write(self.frames.state_rows(self._frame(), epoch))

    def results(self) -> Results:
        """Return the results; few of them are read by the driver, or in one task by a plan that is kept."""

        def made(_: Sequence[int], counts: Observation) -> DataFrame:
            # Their number is known; but the results of a prepared pass have the observation.
            return self.frames.results(self._frame()).observe(counts, F.expr("count(1) AS emitted"))

        store = self.context.store
        files = tuple(address_of(store, file) for file in self.files) if self.are_few else ()
        return Results(made, files=files, shape="results", read=self._few_results, several_tasks=not self.context.native)

    def _frame(self) -> DataFrame:
        rows = read_files(self.context.spark, self.context.store, self.files, self.schema)
        return in_one_task(rows) if self.context.native and self.are_few else rows

    @cached_property
    def _rows(self) -> pa.Table:
        """All rows, read by the driver; they are few."""
        return pa.concat_tables([read_parquet(self.context.store, file.path) for file in self.files], promote_options="default")

    def _few_results(self) -> PassRows | None:
        """Return the results; None where they are not few, or Arrow does not write them as Spark does."""
        names = {name: result_name(number) for number, name in enumerate(self.frames.program.result_columns)}
        schema = T.StructType([T.StructField(name, self.schema[found].dataType) for name, found in names.items()])
        if not self.are_few or not is_writable(schema):
            return None
        emitted = self._rows.filter(self._rows.column(EMITS))
        return PassRows(_typed({name: emitted.column(found) for name, found in names.items()}, schema), schema, ())


def _state_rows(program: KeyedProgram, rows: pa.Table, schema: T.StructType, epoch: int) -> pa.Table:
    """Return the rows of the table of keys, as ``KeyedPass.state_rows`` does."""
    changed = rows.filter(rows.column(CHANGES))
    named = [*zip(program.key_names, program.stored_keys, strict=True), *zip(program.kept_names, program.kept, strict=True)]
    found = {stored: changed.column(name) for name, stored in named}
    found |= {name: changed.column(name) for name in (EVENT_RENEWED, PROCESSING_RENEWED, STATE, DUE, TIMER)}
    found[OLDEST] = pa.nulls(changed.num_rows, pa.int64())
    found[EPOCH] = pa.array([epoch] * changed.num_rows, pa.int64())
    found[START] = pc.coalesce(changed.column(DUE), changed.column(TIMER))
    return _typed(found, T.StructType([field for field in schema if field.name in found]))


def _typed(columns: dict[str, pa.ChunkedArray], schema: T.StructType) -> pa.Table:
    """Return columns with the types that Spark's have in Arrow."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    return pa.table([columns[field.name].cast(field.type) for field in wanted], schema=wanted)
