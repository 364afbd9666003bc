"""A table of rows that operators over changelogs keep: what is there after an epoch, found by the columns that rows are looked up by.

An epoch appends the rows that it changed, and marks for those that are gone; of the rows with one identity the newest is valid, in one
epoch the one that is not a mark. Each row has the hash of the columns that it is looked up by, and files are sorted by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.spark.columns.changes import ADDS
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.operators.base.tables import StateTables
from tidemark.state.gc.compaction import LARGEST_FILE, plan_compaction
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HASH: Final = "__tm_hash"
GONE: Final = "__tm_gone"
EPOCH: Final = "__tm_epoch"

MANY_ROWS: Final = 200_000
"""Up to so many stored rows, reading all of them costs less than looking up some."""

MAX_GARBAGE: Final = 10_000
"""Where rows are more than twice those that are there, and more than so many, outdated ones are dropped."""

ENGINE_FIELDS: Final = (
    T.StructField(GONE, T.BooleanType()),
    T.StructField(EPOCH, T.LongType()),
    T.StructField(HASH, T.LongType()),
)


def lookup_hash(columns: Sequence[str]) -> str:
    """Return SQL of the hash of the values of columns; a null has another hash than any value, as far as hashes differ."""
    values = ", ".join(f"{quoted(name)}, {quoted(name)} IS NULL" for name in columns)
    return f"xxhash64({values})" if columns else "0L"


@dataclass(frozen=True)
class Contents:
    """The rows of one table.

    Args:
        tables: the operator's files.
        part: the name of the table among them.
        columns: the columns of rows, all nullable, the engine's time and position among them.
        identity: the columns that identify a row, beside those that it is looked up by.
        lookup: the columns that rows are looked up by.
        hash: SQL of their hash, that of ``lookup_hash`` by default.
    """

    tables: StateTables
    part: str
    columns: T.StructType
    identity: tuple[str, ...]
    lookup: tuple[str, ...]
    hash: str | None = None

    @property
    def files(self) -> list[StateFile]:
        """The live files."""
        return self.tables.files(self.part)

    @property
    def stored_rows(self) -> int:
        """The number of stored rows, including outdated ones and marks."""
        return sum(file.rows for file in self.files)

    def current(self, hashes: DataFrame | None = None, *, before: int | None = None, of: Sequence[StateFile] | None = None) -> DataFrame:
        """Return the rows that are there, with ``columns`` and ``HASH``.

        Args:
            hashes: a frame with the column ``HASH``: rows with other hashes may be left out. All by default.
            before: an epoch: rows that it or a later one wrote are left out.
            of: the files that are read, the live ones by default.
        """
        stored = self.read(self.files if of is None else of)
        if hashes is not None and self.stored_rows > MANY_ROWS:
            stored = stored.join(F.broadcast(hashes.select(HASH).distinct()), HASH, "left_semi")
        valid = f"NOT {GONE}" if before is None else f"NOT {GONE} AND {EPOCH} < {before}"
        return _newest(stored, self.key).where(valid).select(*map(quoted, self.columns.names), HASH)

    def write(self, changes: DataFrame, epoch: int) -> list[StateFile]:
        """Append an epoch's changes; one Spark job.

        Args:
            changes: with ``columns`` and the kinds of rows; of each identity at most one row that is gone, and one that is new.
            epoch: the current one.
        """
        whole = f"struct({', '.join(map(quoted, self.columns.names))})"
        hashed = changes.withColumn(HASH, F.expr(self.hash or lookup_hash(self.lookup)))
        kept = [f"any_value(if({ADDS}, {whole}, NULL), true) AS new", f"any_value({whole}) AS old", f"first({HASH}) AS {HASH}"]
        grouped = hashed.groupBy(*map(quoted, self.key)).agg(*map(F.expr, kept))
        names = [f"if(new IS NULL, old, new).{quoted(name)} AS {quoted(name)}" for name in self.columns.names]
        return self.add(grouped.selectExpr(*names, f"new IS NULL AS {GONE}", f"{epoch}L AS {EPOCH}", HASH))

    def add(self, rows: DataFrame) -> list[StateFile]:
        """Append rows that have ``columns``, and ``GONE``, ``EPOCH`` and ``HASH``; one Spark job."""
        sorted_rows = rows.withColumn(START, F.col(HASH)).sortWithinPartitions(HASH)
        return self.tables.write(sorted_rows, self.part)

    def compact(self, living: int) -> Callable[[], None] | None:
        """Drop all rows where none is left; return the work that merges files, None where there is nothing to merge.

        Args:
            living: the number of rows that are there.
        """
        if not living:
            self.tables.drop(self.files)
            return None
        if self.stored_rows > 2 * living + MAX_GARBAGE:
            return partial(self._merge, [self.files], whole=True)
        groups = plan_compaction(self.files).merge
        return partial(self._merge, groups, whole=False) if groups else None

    @property
    def key(self) -> list[str]:
        """The columns that identify a row: ``identity``, and those that it is looked up by."""
        return list(dict.fromkeys((*self.identity, *self.lookup)))

    def read(self, files: Sequence[StateFile]) -> DataFrame:
        """Return all rows of files, outdated ones and marks among them: ``columns``, ``GONE``, ``EPOCH`` and ``HASH``."""
        stored = self.tables.read(files, T.StructType([*self.columns, *ENGINE_FIELDS]))
        # A stored hash is another one where a key was widened since, or the keys are in another order.
        return stored.withColumn(HASH, F.expr(self.hash or lookup_hash(self.lookup)))

    def _merge(self, groups: Sequence[Sequence[StateFile]], *, whole: bool) -> None:
        """Merge files; where all of them are merged, marks of rows that are gone are dropped."""
        for group in groups:
            merged = _newest(self.read(group), self.key)
            if whole:
                merged = merged.where(f"NOT {GONE}")
            if sum(file.bytes for file in group) < LARGEST_FILE:
                merged = merged.coalesce(1)
            ordered = merged.withColumn(START, F.col(HASH)).sortWithinPartitions(HASH)
            self.tables.write(ordered, self.part, newest=max(file.epoch for file in group))
            self.tables.drop(group)
            crash_point("compaction-staged")


def _newest(stored: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the newest of the rows with each identity."""
    others = [name for name in stored.columns if name not in key and name != EPOCH]
    whole = f"struct({', '.join(map(quoted, others))})"
    grouped = stored.groupBy(*map(quoted, key)).agg(
        F.expr(f"max_by({whole}, struct({EPOCH}, NOT {GONE}))").alias("__tm_row"), F.max(EPOCH).alias(EPOCH)
    )
    return grouped.select(*map(quoted, key), *(F.col(f"__tm_row.{quoted(name)}").alias(name) for name in others), EPOCH)


def changed_hashes(changes: DataFrame, lookup: Sequence[str]) -> DataFrame:
    """Return the hashes of the columns that changes are looked up by, each once."""
    return changes.select(F.expr(lookup_hash(lookup)).alias(HASH)).distinct()
