"""The join with a table: an epoch's elements are joined once with the version that its plan fixed, and the rows are read from files.

An epoch with input makes one Spark job, beside those of its outputs; the first with a version reads the table, which stays in memory.
To copy a table takes one more, when the epoch is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from tidemark.crashpoints import crash_point
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.spark.columns.expressions import POSITION, TIME, quoted
from tidemark.spark.operators.base.contract import InputCounts, Observed, OperatorContext, OperatorEpoch, OperatorRuntime, PortInput
from tidemark.spark.operators.base.staged_rows import StagedRows
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.lookup.copies import copied, known_version, recorded, rows_of_copy
from tidemark.spark.operators.lookup.databases import naming_database
from tidemark.spark.operators.lookup.frames import FOUND, joined, keyed_rows, with_found
from tidemark.spark.operators.lookup.versions import TableReader
from tidemark.state.log.epoch_intent import TableVersion
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REFRESHED_AT: Final = "refreshed_at"
"""The counter of the processing time at which the version was looked for."""


class LookupRuntime(OperatorRuntime):
    """A join with a table of a run; keeps the rows of the newest version that was read.

    Args:
        node: its declaration.
    """

    def __init__(self, node: LookupNode) -> None:
        super().__init__(node)
        self._declared = node
        self._reader = TableReader(node)
        self._kept: tuple[str, DataFrame] | None = None
        self._there: str | None = None
        known = schema_of(node) if node.inputs else None
        self.names = None if known is None else known.names

    @property
    def node(self) -> LookupNode:
        """The operator's declaration."""
        return self._declared

    def plan_table(self, context: OperatorContext) -> TableVersion:
        """Return the version of the epoch before, or the newest where it is time to look for it, or where it was of another table.

        Raises:
            SourceError: there is no such table, or it cannot be read.
            ColumnError: it lacks a column.
            DefinitionError: it has a column of another type than was declared.
        """
        known, node = known_version(context), self._declared
        if known is not None and not self.is_due(context) and self._is_there(known):
            return known
        if node.table.has_versions:
            return TableVersion(self._reader.newest())
        listing = self._reader.listing()
        if known is not None and listing and known.listing == listing:
            return known
        with naming_database(node):
            rows = keyed_rows(node, self._reader.current(context.spark))
            return copied(context, rows, place=node.place, listing=listing, known=known)

    def _is_there(self, known: TableVersion) -> bool:
        """Return whether the known version can be read: it is in memory, a copy, or of the table that is there."""
        in_memory = self._kept is not None and self._kept[0] == known.version
        if not (known.schema or in_memory or self._there == known.version or self._reader.is_there(known.version)):
            return False
        self._there = known.version
        return True

    def is_due(self, context: OperatorContext) -> bool:
        """Return whether it is time to look for a newer version: none is known, or the known one is as old as it may be."""
        refreshed = context.before.counters.get(REFRESHED_AT)
        return refreshed is None or known_version(context) is None or context.processing_time - refreshed >= self._declared.refresh_ms

    def table(self, context: OperatorContext) -> DataFrame:
        """Return the rows of the epoch's version, with the columns that are wanted; kept in memory until another one is asked for."""
        version = context.table
        if version is None:
            raise ValueError("an epoch whose plan has no version of the table")
        if self._kept is not None and self._kept[0] == version.version:
            return self._kept[1]
        self.close()
        if version.schema:
            keyed = rows_of_copy(context, version)
        else:
            keyed = keyed_rows(self._declared, self._reader.version(context.spark, version.version))
        self._kept = version.version, with_found(keyed).persist(StorageLevel.MEMORY_AND_DISK)
        return self._kept[1]

    def close(self) -> None:
        """Release the rows of the table."""
        if self._kept is not None:
            self._kept[1].unpersist()
            self._kept = None

    def begin(self, context: OperatorContext) -> LookupEpoch:
        """Return the operator at work on an epoch."""
        return LookupEpoch(self, context)

    def next_timer(self, state: OperatorState) -> None:
        """Return nothing: there are no timers."""
        del state


class LookupEpoch(OperatorEpoch):
    """A join with a table in one epoch."""

    runtime: LookupRuntime

    def __init__(self, runtime: LookupRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._made: StagedRows | None = None
        self._found: Mapping[str, Any] = {}

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Join the epoch's elements with the table, and write the rows; one Spark job."""
        runtime, context = self.runtime, self.context
        came, made = Observation(), Observation()
        elements = inputs["elements"].rows.observe(came, F.count(F.lit(1)).alias("rows"))
        rows = joined(runtime.node, elements, runtime.table(context))
        counted = rows.observe(made, F.expr("count(1) AS all"), F.expr(f"count_if({FOUND}) AS found"))
        self._made = StagedRows(context, self._tables, counted)
        self._found = {**came.get, **made.get}
        crash_point("state-staged")

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The number of elements, all of which are accepted."""
        return {"elements": InputCounts(self._found["rows"], {})} if self._found else None

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Never called: there are no side outputs."""
        raise ValueError(f"{counter} of {list(inputs)}")

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the joined rows; they do not wait for the watermark."""
        del observation  # the pass has its own
        self.watermark = watermark
        if self._made is None or not self._rows_out:
            return None
        rows = self._made.rows
        chosen = rows.where(FOUND) if self.runtime.node.how == "inner" else rows
        names = [name for name in chosen.columns if name not in {FOUND, TIME, POSITION}]
        ordered = [name for name in self.runtime.names or () if name in names]
        hidden = [name for name in (TIME, POSITION) if name in chosen.columns]
        return chosen.select(*map(quoted, dict.fromkeys([*ordered, *names])), *hidden)

    @property
    def _rows_out(self) -> int:
        return int(self._found.get("found" if self.runtime.node.how == "inner" else "all", 0))

    def emitted(self, observation: Observed) -> int:
        """Return the number of joined rows."""
        del observation
        return self._rows_out

    def compact(self) -> Callable[[], None] | None:
        """Return nothing: there is nothing to merge."""
        return None

    def snapshot(self) -> OperatorState:
        """Return the operator's entry for the epoch's record, with the version of the table."""
        if self._made is not None:
            self._made.delete()
        context = self.context
        kept = self._tables.snapshot(self.watermark, {})
        if context.table is None:
            return kept
        at = context.processing_time if self.runtime.is_due(context) else context.before.counters[REFRESHED_AT]
        return recorded(replace(kept, counters={**kept.counters, REFRESHED_AT: at}), context.table)
