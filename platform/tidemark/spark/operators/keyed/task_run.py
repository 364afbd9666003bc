"""One run over the keys of an operator: rows are passed to the tasks sorted, and the output is written once, each tag separately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Observation, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.columns.arrow_batches import SMALL_ROW, unwatched
from tidemark.spark.columns.expressions import POSITION, START, nulls_in, quoted
from tidemark.spark.columns.few_rows import UNPACKED_BYTES, driver_can_read, driver_can_unpack
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.columns.state_files import address_of, read_files, write_folder
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables
from tidemark.spark.operators.keyed.columns import (
    ACCEPTED,
    DUE,
    EPOCH,
    HASH,
    HASH_AGAIN,
    NOTE,
    OLDEST,
    OPENED,
    ORDER,
    REFUSED,
    SORT,
    TAG,
    TIMER,
    VERSION,
)
from tidemark.spark.operators.keyed.key_table import Counters
from tidemark.spark.operators.keyed.packed_rows import DATA, ROWS, VALUE_FIELDS, UnpackTask, unpacked
from tidemark.spark.prepared.prepared_plan import PassRows, WrittenRows, is_writable
from tidemark.state.log.parquet_files import ParquetSummary, read_parquet
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Task = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

_FEW_BYTES: Final = 64 * 1024

_COUNTS = (
    f"sum({ACCEPTED}) AS accepted",
    f"sum({REFUSED}) AS late",
    f"sum({OPENED}) AS opened",
    *(
        f"min(CASE WHEN {TAG} = {NOTE} THEN {deadline} END) AS {name}"
        for deadline, name in ((DUE, "due"), (TIMER, "timer"), (OLDEST, "oldest"))
    ),
)

_ALL_COUNTS: Final = "counts"

_VALUES: Final = T.StructType([each for each in VALUE_FIELDS if each.name == DATA])


@dataclass(frozen=True)
class TaskOutput:
    """The files that a run over the keys wrote, by tag, and its counts.

    ``columns`` are the columns of the files, and ``packed`` those of rows that are packed in them, by tag.
    """

    files: Mapping[int, tuple[ParquetSummary, ...]]
    found: Mapping[str, object]
    columns: T.StructType
    packed: Mapping[int, T.StructType] = field(default_factory=dict)

    def rows(self, tag: int) -> int:
        """Return the number of rows of a tag."""
        if tag in self.packed:
            return self.count(_rows_of(tag))
        return sum(file.rows for file in self.files.get(tag, ()))

    def read(self, context: OperatorContext, tag: int) -> DataFrame:
        """Return the rows of a tag."""
        packed, columns = self.packed.get(tag), T.StructType([each for each in self.columns if each.name != TAG])
        files = [file.as_state_file(context.epoch) for file in self.files.get(tag, ())]
        if not files:
            return no_rows(context.spark, columns if packed is None else packed)
        if packed is None:
            return read_files(context.spark, context.store, files, columns)
        return read_files(context.spark, context.store, files, _VALUES).mapInArrow(UnpackTask(), packed)

    def few_files(self, context: OperatorContext, tag: int) -> tuple[str, ...]:
        """Return the addresses of the files of a tag, where these have few rows and the driver could hold them; else none."""
        files = self.files.get(tag, ())
        few = driver_can_read(self.rows(tag), sum(file.bytes for file in files))
        return tuple(address_of(context.store, file.as_state_file(context.epoch)) for file in files) if few else ()

    def read_few(self, context: OperatorContext, tag: int, names: Mapping[str, str]) -> PassRows | None:
        """Return packed rows, read by the driver; None where they are too many, or Arrow does not write them as Spark does.

        Args:
            context: of the epoch.
            tag: of the rows.
            names: of the columns in the result, by those of the stored ones.
        """
        packed = self.packed[tag]
        schema = T.StructType([T.StructField(name, packed[stored].dataType) for stored, name in names.items()])
        files = self.files.get(tag, ())
        if not files or not driver_can_unpack(self.rows(tag), sum(file.bytes for file in files)) or not is_writable(schema):
            return None
        parts, size = [], 0
        for file in files:
            for value in read_parquet(context.store, file.path, [DATA]).column(DATA):
                parts.append(unpacked(value).select(list(names)).rename_columns(list(names.values())))
                size += parts[-1].nbytes
                if size > UNPACKED_BYTES:
                    return None
        return PassRows(pa.concat_tables(parts), schema, ())

    def count(self, name: str) -> int:
        """Return a count, 0 where nothing was counted."""
        value = self.found.get(name)
        return value if isinstance(value, int) else 0

    def counters(self, before: Counters, clock: int, others: tuple[int, int, int] = (MAX_WATERMARK,) * 3) -> Counters:
        """Return the counters after the epoch.

        Args:
            before: the counters after the epoch before.
            clock: the epoch's processing time.
            others: the least deadlines and the oldest time of keys that were not passed to the tasks.
        """
        least = [self.found[name] for name in ("due", "timer", "oldest")]
        due, timer, oldest = (min(value, other) if isinstance(value, int) else other for value, other in zip(least, others, strict=True))
        return Counters(before.keys + self.count("opened"), due, timer, oldest, clock)


def run_task(
    fed: DataFrame,
    task: Task,
    columns: T.StructType,
    *,
    keys: Sequence[str],
    context: OperatorContext,
    tables: StateTables,
    counts: Sequence[str] = (),
    small_rows: bool = False,
) -> TaskOutput:
    """Pass rows to the tasks, key by key, and write the output; one Spark job.

    Args:
        fed: rows with ``TAG`` and ``SORT``; per key and tag they are passed in order of ``SORT``, ``ORDER`` and ``POSITION``.
        task: processes them.
        columns: of the output.
        keys: the key columns.
        context: of the epoch.
        tables: whose folder the output is written to.
        counts: additional aggregates over the output, as SQL.
        small_rows: whether so many rows as a batch may have fit into memory, so that their sizes need not be watched.
    """
    ordered = sorted_by_key(fed, keys)
    handed = ordered.select(*(quoted(name) for name in ordered.columns if name not in (SORT, EPOCH))).mapInArrow(task, columns)
    observation = Observation()
    frame = output_frame(handed, observation, counts=counts).withColumn(START, F.expr(f"if({TAG} = {VERSION}, {DUE}, {START})"))
    with unwatched(context.spark, small_rows=small_rows):
        return written_output(WrittenRows(frame, lambda: [observation.get]), columns, context=context, tables=tables)


def output_frame(handed: DataFrame, observation: Observation, *, counts: Sequence[str] = (), packed: Iterable[int] = ()) -> DataFrame:
    """Return the rows that tasks return without their notes, counted.

    Args:
        handed: the rows.
        observation: takes the counts.
        counts: additional aggregates over the output, as SQL.
        packed: the tags of rows that are packed.
    """
    numbers = [f"sum(CASE WHEN {TAG} = {tag} THEN {ROWS} END) AS {_rows_of(tag)}" for tag in packed]
    # As one value: each would be parsed, and passed to the JVM, on its own.
    together = f"struct({', '.join((*_COUNTS, *counts, *numbers))}) AS {_ALL_COUNTS}"
    return FrameSteps(handed).observe(observation, together).where(f"{TAG} < {NOTE}").frame()


def written_output(
    rows: WrittenRows,
    columns: T.StructType,
    *,
    context: OperatorContext,
    tables: StateTables,
    packed: Mapping[int, T.StructType] = MappingProxyType({}),
) -> TaskOutput:
    """Write what ``output_frame`` returned, each tag separately, with ``START`` as the time of files; one Spark job.

    The arguments are those of ``run_task``; ``packed`` are the columns of rows that are packed, by tag.
    """
    folder = tables.new_folder()
    written = write_folder(rows.frame, context.store, folder, compression=STATE_COMPRESSION, time_column=START, apart=[TAG])
    crash_point("state-staged")
    files: dict[int, list[ParquetSummary]] = {}
    for file in written:
        tag = file.path.removeprefix(f"{folder}/").partition("/")[0].removeprefix(f"{TAG}=")
        files.setdefault(int(tag), []).append(file)
    return TaskOutput({tag: tuple(found) for tag, found in files.items()}, _counts_of(rows), columns, packed)


def _counts_of(rows: WrittenRows) -> Mapping[str, object]:
    found = rows.observed[0][_ALL_COUNTS]
    return found.asDict() if isinstance(found, Row) else {}


def _rows_of(tag: int) -> str:
    return f"rows_{tag}"


def have_small_rows(files: Sequence[ParquetSummary | StateFile]) -> bool:
    """Return whether rows of files are small on average, so that a batch of them needs no limit but their number."""
    return sum(file.bytes for file in files) <= SMALL_ROW * sum(file.rows for file in files) + _FEW_BYTES


def sorted_by_key(fed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return rows with all rows of a key together, in one task."""
    hashed = with_hashes(fed, keys)
    apart = hashed.repartition(HASH) if keys else hashed.repartition(1)
    further = [name for name in (ORDER, POSITION) if name in fed.columns]
    return apart.sortWithinPartitions(HASH, HASH_AGAIN, TAG, SORT, *further)


def with_hashes(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return rows with two hashes of their keys."""
    return FrameSteps(rows).select("*", *hashes_of(rows.schema, keys)).frame()


def hashes_of(schema: T.StructType, keys: Sequence[str]) -> tuple[str, str]:
    """Return SQL of two hashes of the keys of rows."""
    # A hash ignores nulls: without their places (null, 1) and (1, null) would be one key.
    named = ", ".join(part for key in keys for part in (quoted(key), *nulls_in(quoted(key), schema[key].dataType)))
    first, second = (f"xxhash64({named})", f"hash({named})") if keys else ("0L", "0")
    return f"{first} AS {HASH}", f"{second} AS {HASH_AGAIN}"
