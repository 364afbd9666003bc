"""A table of rows that operators over changelogs keep: what is there after an epoch, found by the columns that rows are looked up by.

An epoch appends the rows that it changed, and marks for those that are gone; of the rows with one identity the newest is valid, in one
epoch the one that is not a mark. Each row has the hash of the columns that it is looked up by, and files are sorted by it: for a few
keys only the pages are read that may have them, for more all rows, of which those without such a hash are dropped at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from zlib import crc32

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.spark.columns.changes import ADDS
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.columns.schemas import has_fixed_width
from tidemark.spark.operators.base.tables import StateTables
from tidemark.state.gc.compaction import LARGEST_FILE, plan_compaction
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

HASH: Final = "__tm_hash"
GONE: Final = "__tm_gone"
EPOCH: Final = "__tm_epoch"
STORED: Final = "__tm_stored"
"""What a row was before the epoch that wrote it, as a struct: only for that epoch, and no part of the state."""

MANY_ROWS: Final = 200_000
"""Up to so many stored rows, reading all of them costs less than looking up some."""

LARGE_TABLE: Final = 2_000_000
"""From so many stored rows on, reading only some pages saves more than asking which ones costs: a Spark job."""

FEW_KEYS: Final = 100
"""Of so many keys the hashes are compared with the bounds of each page; more would need most pages."""

PAGES: Final = MappingProxyType({"parquet.page.row.count.limit": "2000"})
"""Rows of a page: fewer than Parquet's 20,000, of which a key would need all."""

MAX_GARBAGE: Final = 10_000
"""Where rows are more than twice those that are there, and more than so many, outdated ones are dropped."""

ENGINE_FIELDS: Final = (
    T.StructField(GONE, T.BooleanType()),
    T.StructField(EPOCH, T.LongType()),
    T.StructField(HASH, T.LongType()),
)


_MIXED: Final = 0


def lookup_hash(columns: Sequence[str], struct: str = "") -> str:
    """Return SQL of the hash of the values of columns; a null has another hash than any value, as far as hashes differ.

    Args:
        columns: their names.
        struct: the struct that they are fields of, with a dot behind it.
    """
    values = ", ".join(f"{struct}{quoted(name)}, {struct}{quoted(name)} IS NULL" for name in columns)
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

    def __post_init__(self) -> None:
        """Refuse columns that rows cannot be found by."""
        self.tables.refuse_collations(self.columns[name] for name in self.key if name in self.columns.names)

    @property
    def files(self) -> list[StateFile]:
        """The live files."""
        return self.tables.files(self.part)

    @property
    def stored_rows(self) -> int:
        """The number of stored rows, including outdated ones and marks."""
        return sum(file.rows for file in self.files)

    def current(
        self,
        hashes: DataFrame | None = None,
        *,
        keys: int | None = None,
        before: int | None = None,
        of: Sequence[StateFile] | None = None,
        once: bool = False,
    ) -> DataFrame:
        """Return the rows that are there, with ``columns`` and ``HASH``.

        Args:
            hashes: a frame with the column ``HASH``: rows with other hashes may be left out. All by default.
            keys: about how many hashes there are, where that is known.
            before: an epoch: rows that it or a later one wrote are left out.
            of: the files that are read, the live ones by default.
            once: whether each row is known to be in the files once, so that none of them is outdated.
        """
        stored = self.read(self.files if of is None else of)
        if hashes is not None and self.stored_rows > MANY_ROWS:
            pages = None if keys is None else self.pages(stored, hashes, keys)
            stored = stored.join(F.broadcast(hashes.select(HASH).distinct()), HASH, "left_semi") if pages is None else pages
        valid = f"NOT {GONE}" if before is None else f"NOT {GONE} AND {EPOCH} < {before}"
        newest = stored if once else _newest(stored, self.key)
        return newest.where(valid).select(*map(quoted, self.columns.names), HASH)

    def pages(self, stored: DataFrame, hashes: DataFrame, keys: int) -> DataFrame | None:
        """Return the stored rows with some hashes, of which Spark reads only the pages that may have them; a Spark job.

        Args:
            stored: as ``read`` returns it, of large tables.
            hashes: a frame with the column ``HASH``.
            keys: about how many there are.

        Returns:
            None where reading all rows costs less: there are few, or many keys.
        """
        if keys > FEW_KEYS or self.stored_rows < LARGE_TABLE or not self.has_hashes:
            return None
        # Parquet compares each equality with the bounds of pages, but of an IN only the least and the greatest value.
        wanted = [F.col(HASH) == row[HASH] for row in hashes.select(HASH).distinct().limit(FEW_KEYS + 1).collect()]
        return stored.where(reduce(or_, wanted, F.lit(False))) if len(wanted) <= FEW_KEYS else None

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
        return self.add_ordered(self.ordered(rows))

    @staticmethod
    def ordered(rows: DataFrame) -> DataFrame:
        """Return rows as files have them: with the column by which they are sorted."""
        return rows.withColumn(START, F.col(HASH)).sortWithinPartitions(HASH)

    def add_ordered(self, rows: DataFrame) -> list[StateFile]:
        """Append rows as ``ordered`` returns them; one Spark job."""
        self.note_hashes()
        return self.tables.write(rows, self.part, options=PAGES)

    def add_few(self, rows: pa.Table) -> list[StateFile]:
        """Append few rows, read already, as ``add`` does; without a Spark job."""
        self.note_hashes()
        return self.tables.add_rows(rows.append_column(START, rows[HASH]).sort_by(HASH), self.part)

    def note_hashes(self) -> None:
        """Note how the hashes of rows that are to be added were made."""
        self.tables.hashings[self.part] = self._hashing if self.has_hashes else _MIXED

    def compact(self, living: int) -> Callable[[], None] | None:
        """Drop all rows where none is left; return the work that merges files, None where there is nothing to merge.

        Args:
            living: the number of rows that are there.
        """
        if not living:
            self.tables.drop(self.files)
            return None
        if self.stored_rows > 2 * living + MAX_GARBAGE or not self.has_hashes:
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
        return stored if self.has_hashes else stored.withColumn(HASH, F.expr(self._hash))

    @property
    def _hash(self) -> str:
        return self.hash or lookup_hash(self.lookup)

    @property
    def _hashing(self) -> int:
        """A number for the way that hashes are made: another one where a key was widened or renamed, or keys are in another order."""
        types = [f"{name} {self.columns[name].dataType.simpleString()}" for name in self.key if name in self.columns.names]
        return crc32("\n".join([self._hash, *types]).encode()) + 1

    @property
    def has_hashes(self) -> bool:
        """Whether all stored rows have the hashes that they would get now."""
        return not self.files or self.tables.hashings.get(self.part) == self._hashing

    def _merge(self, groups: Sequence[Sequence[StateFile]], *, whole: bool) -> None:
        """Merge files; where all of them are merged, marks of rows that are gone are dropped."""
        for group in groups:
            merged = _newest(self.read(group), self.key)
            if whole:
                merged = merged.where(f"NOT {GONE}")
            if sum(file.bytes for file in group) < LARGEST_FILE:
                merged = merged.coalesce(1)
            ordered = merged.withColumn(START, F.col(HASH)).sortWithinPartitions(HASH)
            self.tables.write(ordered, self.part, newest=max(file.epoch for file in group), options=PAGES)
            self.tables.drop(group)
            if whole:
                self.tables.hashings[self.part] = self._hashing
            crash_point("compaction-staged")


def _newest(stored: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the newest of the rows with each identity."""
    others = [name for name in stored.columns if name not in key and name != EPOCH]
    kinds = {field.name: field.dataType for field in stored.schema}
    if all(has_fixed_width(kinds[name]) for name in others):
        return _newest_values(stored, key, others)
    whole = f"struct({', '.join(map(quoted, others))})"
    grouped = stored.groupBy(*map(quoted, key)).agg(
        F.expr(f"max_by({whole}, struct({EPOCH}, NOT {GONE}))").alias("__tm_row"), F.max(EPOCH).alias(EPOCH)
    )
    return grouped.select(*map(quoted, key), *(F.col(f"__tm_row.{quoted(name)}").alias(name) for name in others), EPOCH)


def _newest_values(stored: DataFrame, key: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return the same, column by column: Spark hashes rows by their key where it would sort them to keep a struct."""
    version = "__tm_version"
    marked = stored.withColumn(version, F.expr(f"2L * {EPOCH} + if({GONE}, 0L, 1L)"))
    values = [name for name in others if name not in (GONE, HASH)]
    # Of the rows with one identity only the newest has the greatest version, and all have the same hash.
    newest = [F.expr(f"max_by({quoted(name)}, {version})").alias(name) for name in values]
    grouped = marked.groupBy(*map(quoted, key)).agg(*newest, F.max(version).alias(version), F.max(HASH).alias(HASH))
    made = {GONE: f"{version} % 2L = 0L AS {GONE}"}
    return grouped.selectExpr(*map(quoted, key), *(made.get(name, quoted(name)) for name in others), f"{version} DIV 2L AS {EPOCH}")


def changed_hashes(changes: DataFrame, lookup: Sequence[str]) -> DataFrame:
    """Return the hashes of the columns that changes are looked up by, each once."""
    return changes.select(F.expr(lookup_hash(lookup)).alias(HASH)).distinct()
