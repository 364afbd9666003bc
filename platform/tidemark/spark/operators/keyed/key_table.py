"""The table of an operator's keys: one row per key and epoch that changed it, of which the newest is valid.

A row has the state's text, null where the state was removed; the deadlines at which the key is processed even without elements; and the
oldest time of rows that it needs. Deadlines of a key's newest row are in the future: a key is processed in the first epoch that reaches
one. So in an epoch only rows whose deadlines are between the clocks of the epoch before and its own can be due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.keyed.columns import DUE, EPOCH, OLDEST, STATE, TIMER
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import LARGEST_FILE, plan_compaction
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

MAX_GARBAGE = 10_000
"""Where rows are more than twice the keys and more than so many, outdated rows are dropped."""

FIRES = "__tm_fires"
_NEVER = MAX_WATERMARK


@dataclass(frozen=True)
class Counters:
    """Counters after an epoch: the number of keys, the least deadlines, the oldest time; the greatest time means none.

    ``clock`` is the processing time of the epoch. Deadlines and the oldest time may be earlier than the real ones, never later.
    """

    keys: int = 0
    due: int = _NEVER
    timer: int = _NEVER
    oldest: int = _NEVER
    clock: int = MIN_WATERMARK

    @staticmethod
    def of(counters: Mapping[str, int], prefix: str = "") -> Counters:
        """Return them from an operator's counters."""
        names = ("keys", "due", "timer", "oldest", "clock")
        return Counters(**{name: counters[f"{prefix}{name}"] for name in names if f"{prefix}{name}" in counters})

    def named(self, prefix: str = "") -> dict[str, int]:
        """Return them as an operator's counters."""
        found = {"keys": self.keys, "due": self.due, "timer": self.timer, "oldest": self.oldest, "clock": self.clock}
        return {f"{prefix}{name}": value for name, value in found.items()}

    @property
    def next_due(self) -> int | None:
        """The least watermark at which a key is due, None for never; the end of input does not count."""
        return None if self.due >= _NEVER else self.due

    @property
    def next_timer(self) -> int | None:
        """The least processing time at which a key is due, None for never."""
        return None if self.timer >= _NEVER else self.timer

    def reached(self, clock: OperatorClock) -> bool:
        """Return whether some key may be due."""
        return self.due <= clock.watermark or self.timer <= clock.timers_due_until


class KeyTable:
    """The rows of an operator's keys in one epoch.

    Args:
        tables: the operator's files.
        part: the name of the table among them.
        before: the counters after the epoch before.
        deadline: SQL of the time of a row whose bounds are recorded for its file.
    """

    def __init__(self, tables: StateTables, part: str, before: Counters, deadline: str = DUE) -> None:
        self._tables = tables
        self._part = part
        self._deadline = deadline
        self.before = before

    @property
    def files(self) -> list[StateFile]:
        """The live files."""
        return self._tables.files(self._part)

    @property
    def rows(self) -> int:
        """The number of rows, including outdated ones."""
        return sum(file.rows for file in self.files)

    def read(self, schema: T.StructType) -> DataFrame:
        """Return all rows, with the columns of ``schema``."""
        return self._tables.read(self.files, schema)

    def due(self, versions: DataFrame, watermark: int, clock: OperatorClock) -> DataFrame:
        """Return the rows whose deadlines were reached since the epoch before; ``watermark`` is its own."""
        low, high, earlier, now = runtime_literals(watermark, clock.watermark, self.before.clock, clock.timers_due_until, varying=EPOCH)
        return versions.where(f"({DUE} > {low} AND {DUE} <= {high}) OR ({TIMER} > {earlier} AND {TIMER} <= {now})")

    def due_now(self, versions: DataFrame, watermark: int, clock: OperatorClock) -> tuple[DataFrame | None, tuple[int, int, int]]:
        """Return the rows that are due, None where none can be; and the least future deadlines, and the oldest time of rows."""
        before = self.before
        if not before.reached(clock):
            return None, (before.due, before.timer, before.oldest)
        return self.due(versions, watermark, clock), self.next_deadlines(versions, clock)

    def next_deadlines(self, versions: DataFrame, clock: OperatorClock) -> tuple[int, int, int]:
        """Return the least future deadlines, and the oldest time of the rows that may be valid; one Spark job."""
        high, now = runtime_literals(clock.watermark, clock.timers_due_until, varying=EPOCH)
        found = versions.agg(
            F.expr(f"min(CASE WHEN {DUE} > {high} THEN {DUE} END) AS due"),
            F.expr(f"min(CASE WHEN {TIMER} > {now} THEN {TIMER} END) AS timer"),
            F.expr(f"min(CASE WHEN {DUE} IS NULL OR {DUE} > {high} THEN {OLDEST} END) AS oldest"),
        ).first()
        if found is None:
            raise ValueError("an aggregation without a row")
        due, timer, oldest = (_NEVER if value is None else value for value in found)
        return due, timer, oldest

    def compact(self, layout_versions: T.StructType, keys: Sequence[str], living: int) -> Callable[[], None] | None:
        """Drop all rows where no key is left; return the work that merges files, None where there is nothing to merge."""
        files = self.files
        if not living:
            self._tables.drop(files)
            return None
        if self.rows > 2 * living + MAX_GARBAGE:
            return partial(self._merge, [files], layout_versions, keys, whole=True)
        groups = plan_compaction(files).merge
        return partial(self._merge, groups, layout_versions, keys, whole=False) if groups else None

    def _merge(self, groups: Sequence[Sequence[StateFile]], schema: T.StructType, keys: Sequence[str], *, whole: bool) -> None:
        """Merge files; where all of them are merged, rows of removed keys are dropped."""
        for group in groups:
            rows = self._tables.read(group, T.StructType([*schema, T.StructField(START, T.LongType())]))
            others = [field.name for field in schema if field.name not in keys and field.name != EPOCH]
            newest = [f"max_by({quoted(name)}, {EPOCH}) AS {quoted(name)}" for name in others]
            merged = rows.groupBy(*map(quoted, keys)).agg(*map(F.expr, newest), F.max(EPOCH).alias(EPOCH))
            if whole:
                merged = merged.where(f"{STATE} IS NOT NULL")
            merged = merged.select("*", F.expr(self._deadline).alias(START))
            if sum(file.bytes for file in group) < LARGEST_FILE:
                merged = merged.coalesce(1)
            self._tables.write(merged, self._part, newest=max(file.epoch for file in group))
            self._tables.drop(group)
            crash_point("compaction-staged")


def rows_of_keys(rows: DataFrame, wanted: DataFrame, keys: Sequence[str], also: str = "true") -> DataFrame:
    """Return rows with one of these keys, including a null key.

    Args:
        rows: with key columns.
        wanted: with the same key columns, and the columns of the condition.
        keys: the key columns.
        also: a further condition.
    """
    names = [f"__tm_wanted_{number}" for number in range(len(keys))]
    others = [name for name in wanted.columns if name not in keys]
    asked = wanted.select(*(F.col(quoted(key)).alias(name) for key, name in zip(keys, names, strict=True)), *others)
    same = [f"{quoted(key)} <=> {name}" for key, name in zip(keys, names, strict=True)]
    return rows.join(asked, F.expr(" AND ".join([*same, also])), "left_semi")


def union_of(parts: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of several frames; a column that one lacks is null there."""
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
