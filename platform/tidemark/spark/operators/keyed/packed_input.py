"""The packed rows that an epoch passes to the tasks: its elements, and the state of keys that need a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.arrow_batches import POSITION_PARTS, batches_of, has_python_step, position_parts, unwatched
from tidemark.spark.columns.expressions import POSITION, quoted
from tidemark.spark.columns.state_files import address_of, read_files, write_folder
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.keyed.columns import HASH, NEW, TAG, VERSION
from tidemark.spark.operators.keyed.input import FEW_ROWS, NO_OTHER_KEYS, Fed
from tidemark.spark.operators.keyed.key_table import KeyTable, union_of
from tidemark.spark.operators.keyed.packed_rows import CLOCK, DATA, HASHES, PACKED, PART, ROWS, PackTask
from tidemark.spark.operators.keyed.task_run import hashes_of, have_small_rows, with_hashes
from tidemark.spark.prepared.prepared_plan import WrittenRows
from tidemark.spark.prepared.runtime_literals import literal
from tidemark.state.log.parquet_files import ParquetSummary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FEW_BYTES: Final = 64 * 1024 * 1024
"""Up to so many bytes of packed rows may go to a worker at once."""

_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Of more, so many do."""

_FILES: Final = {
    # The values are compressed already, and none is like another.
    "parquet.enable.dictionary": "false",
    # Otherwise a hundred values are in memory before Parquet looks at their sizes.
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "1",
    "parquet.block.size.row.check.min": "1",
    "parquet.block.size.row.check.max": "1",
    "parquet.block.size": str(32 * 1024 * 1024),
}

_FIXED: Final = (T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType)


class Staged(NamedTuple):
    """An epoch's elements: their files, their number, and that of the tasks which they are packed for."""

    files: tuple[ParquetSummary, ...] = ()
    rows: int = 0
    parts: int | None = None


class PackedInput:
    """Packs an epoch's rows.

    Args:
        context: of the epoch.
        keys: the key columns.
        table: of the keys.
    """

    def __init__(self, context: OperatorContext, keys: Sequence[str], table: KeyTable) -> None:
        self._context = context
        self._keys = keys
        self._table = table
        # Rows of no key are one key.
        self._parts = int(context.spark.conf.get("spark.sql.shuffle.partitions") or 1) if keys else 1

    @property
    def shape(self) -> str:
        """What of the frames of ``elements`` and ``rows`` differs between epochs, besides files and numbers."""
        return f"{self._parts} {'few' if self._has_few else 'many'}"

    @property
    def _has_few(self) -> bool:
        return self._table.rows <= FEW_ROWS

    def elements(self, rows: DataFrame, counts: Observation, *, in_one: bool) -> DataFrame:
        """Return the epoch's elements, packed, in one task or several, and counted."""
        packed = self._packed(rows, NEW, self._parts, list_hashes=not self._has_few, in_one=in_one)
        return FrameSteps(packed).observe(counts, f"coalesce(sum({ROWS}), 0) AS rows").frame()

    def stage(self, packed: WrittenRows, tables: StateTables) -> Staged:
        """Write the epoch's elements, which are packed, and counted first; one Spark job."""
        files = write_folder(packed.frame, self._context.store, tables.new_folder(), compression="uncompressed", options=_FILES)
        rows = packed.observed[0]["rows"]
        return Staged(tuple(files), rows if isinstance(rows, int) else 0, self._parts)

    def scans(self, staged: Staged) -> tuple[tuple[str, ...], ...]:
        """Return the files of each scan of ``rows``; none where these are made by more than their files and the clock."""
        stored = self._table.files
        if not stored or not self._passes_all(staged):
            return ()
        store, given = self._context.store, [file.as_state_file(self._context.epoch) for file in staged.files]
        return tuple(tuple(address_of(store, file) for file in files) for files in (given, stored) if files)

    def _passes_all(self, staged: Staged) -> bool:
        """Whether all stored keys are passed, which costs less than to look up most of them."""
        return self._table.rows <= max(FEW_ROWS, staged.rows)

    def rows(self, staged: Staged, versions: T.StructType, clock: OperatorClock, times: Sequence[int]) -> Fed:
        """Return packed elements and versions, each in its task; and the least deadlines and the oldest time of keys that are not passed.

        Args:
            staged: the epoch's elements.
            versions: the columns of keys' versions.
            clock: of the operator.
            times: what is passed on of it (``times_of``), or what takes its place.
        """
        context, table = self._context, self._table
        parts, others = [], NO_OTHER_KEYS
        # Others in the session may change its number in the meantime, and keys of another would not meet their elements.
        count = self._parts if staged.parts is None else staged.parts
        if staged.files:
            files = [file.as_state_file(context.epoch) for file in staged.files]
            parts.append(read_files(context.spark, context.store, files, PACKED))
        if table.files:
            read = table.read(versions)
            if not self._passes_all(staged):
                read, others = self._needed(with_hashes(read, self._keys), parts, clock)
            # A second task in Python to pack few of them would take longer than they do.
            parts.append(self._packed(read, VERSION, count, in_one=self._has_few))
        return union_of(parts).repartitionById(count, F.col(PART)).select(TAG, DATA, _clock(times)), others

    @contextmanager
    def batch_limit(self, staged: Staged) -> Iterator[None]:
        """Limit what goes to workers at once, while a job over ``rows`` runs."""
        spark, files = self._context.spark, self._table.files
        few = sum(file.bytes for file in staged.files) + sum(file.bytes for file in files) <= _FEW_BYTES and have_small_rows(files)
        # To watch the size takes long for each row that is packed, so it is done only where there are many.
        with unwatched(spark, small_rows=True) if few else batches_of(spark, _BATCH_BYTES):
            yield

    def _needed(self, stored: DataFrame, staged: Sequence[DataFrame], clock: OperatorClock) -> Fed:
        """Return the versions of keys that have elements or are due."""
        wanted = [rows.select(F.explode(HASHES).alias(HASH)) for rows in staged]
        due, others = self._table.due_now(stored, self._context.before.watermark, clock)
        if due is not None:
            wanted.append(due.select(HASH))
        if not wanted:
            return stored.where("false"), others
        return stored.join(union_of(wanted), HASH, "left_semi"), others

    def _packed(self, rows: DataFrame, tag: int, parts: int, *, list_hashes: bool = False, in_one: bool = False) -> DataFrame:
        names = rows.schema.names
        hashes = () if HASH in names else hashes_of(rows.schema, self._keys)
        positions = position_parts() if POSITION in names else ()
        repeated = tuple(name for name, field in POSITION_PARTS.items() if positions and field.dataType == T.StringType())
        steps = FrameSteps(rows).in_one_task() if in_one else FrameSteps(rows)
        hashed = steps.select(*(quoted(name) for name in names if name != POSITION), *hashes, *positions).frame()
        return hashed.mapInArrow(PackTask(tag, parts, list_hashes, repeated), PACKED)


def times_of(clock: OperatorClock) -> tuple[int, int, int, int]:
    """Return the numbers of a clock, as tasks take them."""
    return clock.epoch, clock.before, clock.watermark, clock.processing_time


def _clock(times: Sequence[int]) -> Column:
    return F.expr(f"array({', '.join(map(literal, times))})").alias(CLOCK)


def are_small(rows: DataFrame) -> bool:
    """Return whether rows have values of fixed size only, besides their position, and no step in Python before takes larger ones."""
    fixed = all(isinstance(field.dataType, _FIXED) or field.name == POSITION for field in rows.schema)
    return fixed and not has_python_step(rows)
