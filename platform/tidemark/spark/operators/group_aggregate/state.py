"""The tables of groups in one epoch: what is read of them, written to them, and dropped when it expires.

A row's version is not the epoch but three times it, and more: of what one epoch writes, rows that a lifetime of processing time ended
come first, then those that input changed, then those that a lifetime of event time ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.columns.changes import ADDS
from tidemark.spark.columns.expressions import TIME, quoted
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.base.contract import OperatorContext, run_in_order
from tidemark.spark.operators.base.staged_rows import StagedRows
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.changelog.contents import EPOCH, GONE, HASH, STORED, Contents, lookup_hash
from tidemark.spark.operators.group_aggregate.columns import (
    EMITS,
    EVENT_DUE,
    KEPT_PART,
    KNOWN,
    NUMBER,
    PROCESSING_DUE,
    ROWS,
    VALUES_PART,
)
from tidemark.spark.operators.group_aggregate.layout import GroupLayout
from tidemark.spark.operators.group_aggregate.lookups import NUMBER_BEFORE, KeptRows
from tidemark.spark.prepared.runtime_literals import literal, runtime_literals
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHOLE: Final = "whole"
"""A counter: the newest epoch that wrote all groups, each once, so that files of that epoch alone have no outdated rows."""

_VERSIONS: Final = 3
BEFORE_INPUT: Final = 0
OF_INPUT: Final = 1
AFTER_INPUT: Final = 2


@dataclass(frozen=True)
class Expired:
    """What expired: the number of groups, and the least deadline of those that are left."""

    groups: int
    next_due: int


class GroupState:
    """The tables of an operator in an epoch.

    Args:
        context: of the epoch.
        tables: the operator's files.
        layout: of the state.
        schema: all columns of state that users' columns make.
        changed: how many rows the epoch has, where that is known.
    """

    def __init__(
        self, context: OperatorContext, tables: StateTables, layout: GroupLayout, schema: T.StructType, changed: int | None = None
    ) -> None:
        self._context = context
        self._changed = changed
        self._tables = tables
        self._layout = layout
        keys = tuple(layout.keys)
        self.groups = Contents(tables, MAIN, layout.groups(schema), (), keys)
        self.values = Contents(tables, VALUES_PART, layout.counts(schema), tuple(layout.values), keys) if layout.counted else None
        self.kept = Contents(tables, KEPT_PART, layout.rows(schema), tuple(layout.row_keys), keys) if layout.kept else None

    def stored_groups(self, touched: DataFrame | None) -> DataFrame | None:
        """Return the groups before the epoch, None where there are none; ``touched`` are the hashes of those that are needed."""
        return self.groups.current(touched, keys=self._changed) if self.groups.files else None

    def all_groups(self) -> DataFrame | None:
        """Return all groups before the epoch, partitioned by key, None where there are none."""
        if not self.groups.files:
            return None
        groups = self.groups.current(once=self.once)
        # Else what the input adds, which is partitioned already, would be exchanged again with them.
        return groups.repartition(*map(quoted, self._layout.keys)) if self.once and self._layout.keys else groups

    @property
    def once(self) -> bool:
        """Whether each stored group is in the files once, so that none is outdated."""
        return {file.epoch for file in self.groups.files} == {self._context.before.counters.get(WHOLE)}

    def with_known(self, rows: DataFrame) -> DataFrame:
        """Return rows of input with ``KNOWN``: whether the groups of those that are taken back are there before them."""
        if not self.groups.files:
            return rows.withColumn(KNOWN, F.lit(False))
        names = [f"__tm_known_{number}" for number in range(len(self._layout.keys))]
        keys = (F.col(quoted(key)).alias(name) for key, name in zip(self._layout.keys, names, strict=True))
        with_keys = rows.select("*", *self._layout.with_keys())
        needed = self.groups.current(self.touched(with_keys.where(f"NOT {ADDS}")))
        stored = needed.where(f"{ROWS} > 0").select(*keys, F.lit(True).alias(KNOWN))
        same = [f"{given} <=> {name}" for given, name in zip(self._layout.input_keys, names, strict=True)]
        joined = with_keys.join(stored, F.expr(" AND ".join(same or ["true"])), "left")
        return joined.select(*map(quoted, rows.columns), F.expr(f"coalesce({KNOWN}, false) AS {KNOWN}"))

    def forget(self, pairs: DataFrame) -> None:
        """Drop what is left of groups that have no rows any more, since rows were taken back that came before their state expired.

        Args:
            pairs: groups that the epoch changed, as ``with_results`` returns them.
        """
        wanted = pairs.where(f"__tm_was AND {ROWS} = 0").selectExpr(*map(quoted, self._layout.keys), HASH)
        for contents in filter(None, (self.values, self.kept)):
            if contents.files:
                self._mark(contents, wanted, AFTER_INPUT)

    def looked_up(self, contents: Contents, touched: DataFrame) -> DataFrame | None:
        """Return the rows of a table that belong to groups with some hashes, None where it has no rows."""
        if not contents.files:
            return None
        return contents.current(touched, keys=self._changed).join(F.broadcast(touched), HASH, "left_semi")

    def touched(self, rows: DataFrame) -> DataFrame:
        """Return the hashes of the groups of rows of input, each once."""
        return rows.select(F.expr(lookup_hash(self._layout.input_keys)).alias(HASH)).distinct()

    def changed_groups(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the groups that the epoch wrote, with what they were before (``STORED``) and ``EMITS``; ``files`` are those written."""
        columns = self.groups.columns
        before = [columns[name] for name in (*self._layout.group_columns, ROWS, TIME)]
        beside = (T.StructField(STORED, nullable(T.StructType(before))), T.StructField(EMITS, T.IntegerType()))
        return self._tables.read(files, T.StructType([*columns, *beside]))

    def write_groups(self, pairs: DataFrame, dues: tuple[str, str]) -> list[StateFile]:
        """Write groups that changed; return their files; one Spark job. Arguments as of ``written_groups``."""
        return self.groups.add_ordered(self.written_groups(pairs, dues, (), version=self.version))

    @property
    def version(self) -> int:
        """The number of the versions that input makes in this epoch."""
        return self._version_number(OF_INPUT)

    def written_groups(self, pairs: DataFrame, dues: tuple[str, str], beside: Sequence[str], *, version: int) -> DataFrame:
        """Return groups as files have them.

        Args:
            pairs: the groups with their columns, and ``HASH``.
            dues: SQL of when their state expires, in event and in processing time.
            beside: further columns that are written; they are no part of the state, and merged files do not have them.
            version: the number of the version.
        """
        names = [*self._layout.keys, *self._layout.group_columns, ROWS, TIME]
        rows = pairs.selectExpr(
            *map(quoted, names),
            f"{dues[0]} AS {EVENT_DUE}",
            f"{dues[1]} AS {PROCESSING_DUE}",
            f"{ROWS} = 0 AS {GONE}",
            # Else its code would be compiled again in each epoch.
            f"{runtime_literals(version, varying=HASH)[0]} AS {EPOCH}",
            HASH,
            *beside,
        )
        return self.groups.ordered(rows)

    def write_few_groups(self, pairs: pa.Table) -> None:
        """Write groups that changed, few and read already, whose state has no lifetime; without a Spark job.

        Args:
            pairs: the groups with their columns, and ``HASH``.
        """
        rows = pairs.select([*self._layout.keys, *self._layout.group_columns, ROWS, "__tm_time", HASH])
        count = rows.num_rows
        for due in (EVENT_DUE, PROCESSING_DUE):
            rows = rows.append_column(due, pa.nulls(count, pa.int64()))
        rows = rows.append_column(GONE, pc.equal(rows[ROWS], 0))
        self.groups.add_few(rows.append_column(EPOCH, pa.repeat(self._version_number(OF_INPUT), count)))

    def write_values(self, merged: DataFrame) -> None:
        """Write values whose numbers of rows changed; one Spark job."""
        if self.values is None:
            raise ValueError("no aggregate counts values")
        names = [*self._layout.keys, *self._layout.values, NUMBER]
        changed = merged.where(f"{NUMBER} <> {NUMBER_BEFORE}")
        self.values.add(changed.selectExpr(*map(quoted, names), f"{NUMBER} = 0 AS {GONE}", self._version(OF_INPUT), HASH))

    def write_kept(self, merged: DataFrame) -> None:
        """Write rows that changed; one Spark job."""
        if self.kept is None:
            raise ValueError("no aggregate keeps rows")
        rows = KeptRows(self._layout).state_rows(merged)
        names = [*self._layout.keys, *self._layout.row_keys, *self._layout.partials.columns]
        self.kept.add(rows.selectExpr(*map(quoted, names), f"__tm_is_gone AS {GONE}", self._version(OF_INPUT), HASH))

    def _version(self, part: int) -> str:
        return f"{self._version_number(part)}L AS {EPOCH}"

    def _version_number(self, part: int) -> int:
        return _VERSIONS * self._context.epoch + part

    def expire(self, ttl: StateTtl, clock: int, first: int, part: int) -> Expired:
        """Drop the groups whose deadlines a clock reached, from all tables; a Spark job, and for each table that drops rows one more.

        Args:
            ttl: of the operator.
            clock: the watermark, or the processing time.
            first: the first time of its domain that there was.
            part: whether it comes before or after what input changed.
        """
        due = effective_due(ttl, first)
        groups = self.groups.current().withColumn("__tm_due", F.expr(due))
        keys = [*map(quoted, self._layout.keys), HASH]
        marked = StagedRows(self._context, self._tables, groups.selectExpr(*keys, "__tm_due").where("__tm_due IS NOT NULL"))
        try:
            expired = marked.rows.where(f"__tm_due <= {literal(clock)}").selectExpr(*keys)
            found = marked.rows.selectExpr(
                f"count_if(__tm_due <= {literal(clock)}) AS n", f"min(if(__tm_due > {literal(clock)}, __tm_due, NULL)) AS due"
            ).first()
            count, following = (0, None) if found is None else (found["n"], found["due"])
            if count:
                for contents in filter(None, (self.groups, self.values, self.kept)):
                    if contents.files:
                        self._mark(contents, expired, part)
        finally:
            marked.delete()
        return Expired(count, MAX_WATERMARK if following is None else following)

    def _mark(self, contents: Contents, expired: DataFrame, part: int) -> None:
        """Write marks for all rows of expired groups."""
        rows = contents.current(expired)
        names = [f"__tm_expired_{number}" for number in range(len(self._layout.keys))]
        wanted = expired.select(*(F.col(quoted(key)).alias(name) for key, name in zip(self._layout.keys, names, strict=True)))
        same = [f"{quoted(key)} <=> {name}" for key, name in zip(self._layout.keys, names, strict=True)]
        mine = rows.join(F.broadcast(wanted), F.expr(" AND ".join(same or ["true"])), "left_semi")
        contents.add(mine.selectExpr(*map(quoted, contents.columns.names), f"true AS {GONE}", self._version(part), HASH))

    def compact(self, living: tuple[int, int, int]) -> Callable[[], None] | None:
        """Return the work that merges files, None where there is none; ``living`` are the rows that are there, by table."""
        tables = (self.groups, self.values, self.kept)
        work = [contents.compact(rows) for contents, rows in zip(tables, living, strict=True) if contents is not None]
        some = [each for each in work if each is not None]
        return partial(run_in_order, some) if some else None


def first_counter(ttl: StateTtl | None) -> str:
    """Return the counter that has the first time of a lifetime's domain, empty without a lifetime."""
    return "" if ttl is None else {"event": "first_watermark", "processing": "first_clock"}[ttl.domain]


def effective_due(ttl: StateTtl, first: int) -> str:
    """Return SQL of when a group's state expires, null for never; state without a time lives from the first one.

    Args:
        ttl: of the operator.
        first: the first time of its domain that there was.
    """
    due = EVENT_DUE if ttl.domain == "event" else PROCESSING_DUE
    begun = "NULL" if first == MIN_WATERMARK else literal(min(first, MAX_WATERMARK - ttl.ms) + ttl.ms)
    return f"coalesce(nullif({due}, {literal(MIN_WATERMARK)}), CAST({begun} AS BIGINT))"


def written_dues(ttl: StateTtl | None, clock: int) -> tuple[str, str]:
    """Return SQL of when state expires that is written now, in event and in processing time."""
    never = "CAST(NULL AS BIGINT)"
    if ttl is None:
        return never, never
    due = literal(MIN_WATERMARK if clock == MIN_WATERMARK else min(clock, MAX_WATERMARK - ttl.ms) + ttl.ms)
    return (due, never) if ttl.domain == "event" else (never, due)
