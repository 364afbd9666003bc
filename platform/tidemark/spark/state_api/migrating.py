"""Migrates state for a changed job, before its first epoch: columns renamed, widened, added or dropped.

Nothing refers to the files written here until a record names them; the old files stay for the records that name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from tidemark.graph.operators.registry import encode
from tidemark.graph.operators.state_names import FUNCTION_PART
from tidemark.savepoints.model.verdict import OperatorVerdict, Rewrite, Verdict
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.operators.aligned.sliced import PREFIX, SUFFIX
from tidemark.spark.state_api.rewriting import GROUP, WITH_PARTIALS, Rewriting, depends_on_columns
from tidemark.spark.state_api.schema_probe import InputSchema
from tidemark.spark.state_api.widening import widened
from tidemark.state.log.records import EpochRecord, OperatorState, StateFile
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def migrate(
    spark: SparkSession, store: JobStore, record: EpochRecord, found: Verdict, inputs: Mapping[str, InputSchema]
) -> dict[str, OperatorState]:
    """Return the state of a job's operators, by uid, that the changed job can resume from; one Spark job per rewritten table.

    Args:
        spark: the session.
        store: the store at the folder of the job that resumes.
        record: of the epoch to resume from.
        found: the compatibility verdict on the job, which ``fits``.
        inputs: of the job's operators, by uid.

    Raises:
        CorruptStoreError: a state file does not hold the recorded rows; existing files are not touched.
    """
    states: dict[str, OperatorState] = {}
    for each in found.operators:
        if each.stored is None or each.status == "dropped":
            continue
        before = record.operators[each.stored]
        writer = Rewriting(spark, store, store, each.uid, record.epoch)
        states[each.uid] = before if each.rewrite.empty else _Migration(writer, before, each, inputs[each.uid]).state()
    return states


@dataclass(frozen=True)
class _Migration:
    """The migration of one operator."""

    writer: Rewriting
    before: OperatorState
    verdict: OperatorVerdict
    given: InputSchema

    @property
    def change(self) -> Rewrite:
        """The change of its columns."""
        return self.verdict.rewrite

    def state(self) -> OperatorState:
        """Return the operator's migrated state."""
        before, change = self.before, self.change
        columns = replace(change, without_function=False)
        left_out = {FUNCTION_PART} if change.without_function else set()
        # Prefixes and suffixes are computed from slices, and can be computed again.
        left_out |= set() if columns.empty else {PREFIX, SUFFIX}
        parts: dict[str, list[StateFile]] = {}
        for file in before.files:
            if file.part not in left_out:
                parts.setdefault(file.part, []).append(file)
        files = [made for part, held in parts.items() for made in self._written(part, held)]
        counters = {name: number for name, number in before.counters.items() if columns.empty or not depends_on_columns(name)}
        definition: dict[str, object] = dict(encode(self.given.node))
        if self._schema is not None:
            definition["schema"] = self._schema.jsonValue()
        return OperatorState(definition, tuple(files), before.watermark, counters)

    @cached_property
    def _schema(self) -> StructType | None:
        """The migrated columns of the main table."""
        stored = self.before.definition.get("schema")
        if not isinstance(stored, dict):
            return None
        change, fields = self.change, []
        given = {field.name.lower(): field for field in self.given.columns}
        added = {name.lower() for name in change.added}
        for field in StructType.fromJson(stored):
            name = change.renamed.get(field.name, field.name)
            # A column that comes back is among the added ones.
            if field.name not in change.dropped and name.lower() not in added:
                fields.append(StructField(name, self._widened(name) or field.dataType, metadata=field.metadata))
        return StructType([*fields, *(given[name] for name in sorted(added))])

    def _widened(self, name: str) -> DataType | None:
        kind = self.change.widened.get(name)
        if kind is None:
            return None
        return StructType.fromJson({"fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]})[name].dataType

    def _written(self, part: str, files: Sequence[StateFile]) -> Sequence[StateFile]:
        """Return the migrated files of a table; those that need not change stay."""
        names = self.writer.columns(files)
        if not self._touches(part, names):
            return files
        return self.writer.written(files, lambda rows: self._changed(rows, names, with_partials=part in WITH_PARTIALS))

    def _touches(self, part: str, names: Sequence[str]) -> bool:
        """Return whether files with these columns have to be rewritten."""
        change = self.change
        new_names = {change.renamed.get(name, name) for name in names}
        if any(name in change.renamed for name in names) or new_names & set(change.widened):
            return True
        return part in WITH_PARTIALS and (any(name in change.dropped for name in names) or bool(self._constants))

    @cached_property
    def _constants(self) -> tuple[str, ...]:
        """The added columns that have a value where there is no element; others are null, as a missing column is."""
        empty = self.given.schemas.empty_accumulators() if self.change.added else None
        row = None if empty is None else empty.first()
        return () if row is None else tuple(name for name in self.change.added if row[name] is not None)

    def _changed(self, rows: DataFrame, names: Sequence[str], *, with_partials: bool) -> DataFrame:
        change, kept = self.change, []
        for name in names:
            if name not in change.dropped:
                new = change.renamed.get(name, name)
                kind = self._widened(new)
                column = F.col(quoted(name))
                kept.append((column if kind is None else widened(column, rows.schema[name].dataType, kind)).alias(new))
        found = rows.select(*kept, GROUP)
        empty = self.given.schemas.empty_accumulators() if with_partials and self._constants else None
        if empty is None:
            return found
        constants = empty.select(*map(quoted, self._constants))
        return found.drop(*self._constants).crossJoin(F.broadcast(constants))
