"""The join with a table: an epoch's elements are joined once with the version that its plan fixed, and the rows are read from files.

An epoch with input makes one Spark job, beside those of its outputs; the first with a version reads the table, which stays in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from tidemark.spark.operators.lookup.frames import FOUND, joined, table_rows
from tidemark.spark.operators.lookup.versions import TableReader
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = "table_version"
"""The field of the operator's entry in an epoch's record that says which version of the table the epoch read."""

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
        known = schema_of(node) if node.inputs else None
        self.names = None if known is None else known.names

    @property
    def node(self) -> LookupNode:
        """The operator's declaration."""
        return self._declared

    def plan_table(self, before: OperatorState, processing_time: int) -> str:
        """Return the version of the epoch before, or the newest where it is time to look for it, or where it was of another table.

        Raises:
            SourceError: there is no such table.
        """
        version, refreshed = before.definition.get(VERSION), before.counters.get(REFRESHED_AT)
        current = {"format": self._declared.table.format, "path": self._declared.table.path, "schema": self._declared.table.schema}
        same = before.definition.get("table") == current
        if not isinstance(version, str) or refreshed is None or not same or processing_time - refreshed >= self._declared.refresh_ms:
            return self._reader.newest()
        return version

    def table(self, spark: SparkSession, version: str) -> DataFrame:
        """Return the rows of a version, with the columns that are wanted; kept in memory until another one is asked for."""
        if self._kept is not None and self._kept[0] == version:
            return self._kept[1]
        self.close()
        rows = table_rows(self._declared, self._reader.rows(spark, version)).persist(StorageLevel.MEMORY_AND_DISK)
        self._kept = version, rows
        return rows

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
        if context.table_version is None:
            raise ValueError("an epoch whose plan has no version of the table")
        came, made = Observation(), Observation()
        elements = inputs["elements"].rows.observe(came, F.count(F.lit(1)).alias("rows"))
        rows = joined(runtime.node, elements, runtime.table(context.spark, context.table_version))
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
        version, before = context.table_version, context.before
        kept = self._tables.snapshot(self.watermark, {})
        if version is None:
            return kept
        same = version == before.definition.get(VERSION) and REFRESHED_AT in before.counters
        due = not same or context.processing_time - before.counters[REFRESHED_AT] >= self.runtime.node.refresh_ms
        counters = {**kept.counters, REFRESHED_AT: context.processing_time if due else before.counters[REFRESHED_AT]}
        return OperatorState({**kept.definition, VERSION: version}, kept.files, kept.watermark, counters)
