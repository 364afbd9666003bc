"""The state of one operator in one epoch: Parquet files that are added, read, merged and dropped."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from tidemark.errors import StateMismatchError, UserCodeError
from tidemark.graph.operators.state_names import element_name
from tidemark.savepoints.model.stored_types import OLDER
from tidemark.spark.columns.expressions import START
from tidemark.spark.columns.few_rows import FEW_ROWS, in_one_task
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import address_of, read_files, write_few, write_folder
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.state.gc.state_file_check import owner_store
from tidemark.state.log.parquet_files import ParquetSummary, read_parquet
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE_COMPRESSION = "lz4_raw"
"""LZ4 in the framing that Parquet defines: Spark's ``lz4`` is Hadoop's, with larger buffers for each page (ADR 73)."""

HASHING = "hashing "
"""How the hashes of a table's rows were made is one of the operator's counters, by the table's name behind this."""

MAIN = ""
"""The table of an epoch's input; others are derived from it."""


class StateTables:
    """An operator's live files, by table. Nothing refers to written files until the epoch's record names them.

    Args:
        context: of the epoch.
        place: where the operator was declared, for errors.
        time: the column of rows whose bounds are recorded for each file.
    """

    def __init__(self, context: OperatorContext, place: str, time: str = START) -> None:
        self._context = context
        self._place = place
        self._time = time
        self._live = list(context.before.files)
        text = context.before.definition.get("schema")
        self.schema = StructType.fromJson(text) if isinstance(text, dict) else None
        self.added: list[StateFile] = []
        counters = context.before.counters
        self.hashings = {name.removeprefix(HASHING): number for name, number in counters.items() if name.startswith(HASHING)}

    def files(self, part: str = MAIN) -> list[StateFile]:
        """Return the live files of a table."""
        return [file for file in self._live if file.part == part]

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written, so that the state's columns are not known."""
        return self.schema is None

    def write_input(self, rows: DataFrame) -> list[StateFile]:
        """Write an epoch's input, grouped, into the main table; one Spark job.

        Raises:
            StateMismatchError: a column would change its type.
        """
        self.adopt(rows.schema)
        self.added = self.write(rows)
        return self.added

    def write_rows(self, rows: pa.Table, schema: StructType) -> list[StateFile]:
        """Write an epoch's input, grouped and read already, into the main table; without a Spark job.

        Raises:
            StateMismatchError: a column would change its type.
        """
        self.adopt(schema)
        self.added = self.add_rows(rows)
        return self.added

    def add_rows(self, rows: pa.Table, part: str = MAIN) -> list[StateFile]:
        """Write few rows, read already, into a table; without a Spark job. They have the column of time."""
        written = write_few(self._context.store, self.new_folder(), rows, compression=STATE_COMPRESSION, time_column=self._time)
        return self.add(written, part)

    def write(
        self, rows: DataFrame, part: str = MAIN, *, newest: int | None = None, options: Mapping[str, str] = MappingProxyType({})
    ) -> list[StateFile]:
        """Write rows into a table; one Spark job.

        Args:
            rows: with the column of time.
            part: the table.
            newest: the epoch that is recorded for the files, this one by default.
            options: of Spark's writer, such as ``maxRecordsPerFile``.
        """
        context, folder = self._context, self.new_folder()
        written = write_folder(rows, context.store, folder, compression=STATE_COMPRESSION, time_column=self._time, options=options)
        return self.add(written, part, newest=newest)

    def new_folder(self) -> str:
        """Return a new, unique folder of the job."""
        return f"state/{self._context.uid}/{self._context.epoch:012d}-{uuid.uuid4().hex[:12]}"

    def add(self, written: Iterable[ParquetSummary], part: str = MAIN, *, newest: int | None = None) -> list[StateFile]:
        """Add written files to a table; ``newest`` is the epoch recorded for them, this one by default."""
        epoch = self._context.epoch if newest is None else newest
        files = [replace(file.as_state_file(epoch), part=part) for file in written]
        self._live += files
        return files

    def adopt(self, made: StructType) -> None:
        """Set the columns of new rows of the main table.

        Raises:
            StateMismatchError: a column would change its type.
        """
        self.require_types(made)
        # A column that only older files have may be needed again, with the same type.
        self.schema = self._with_older(made)

    def read(self, files: Iterable[StateFile], schema: StructType | None = None) -> DataFrame:
        """Return the rows of files; ``schema`` is that of the main table by default."""
        wanted = schema or self.schema
        if wanted is None:
            raise ValueError("no state was written yet")
        listed = list(files)
        if not listed:
            # Files are read with nullable columns.
            return no_rows(self._context.spark, nullable(wanted))
        rows = read_files(self._context.spark, self._context.store, listed, wanted)
        return in_one_task(rows) if self.are_few(listed) else rows

    def are_few(self, files: Sequence[StateFile]) -> bool:
        """Return whether files have few rows together, which are read in one task."""
        return self._context.native and sum(file.rows for file in files) <= FEW_ROWS

    def few_files(self, files: Sequence[StateFile]) -> tuple[str, ...]:
        """Return the addresses of files that have few rows together, and are read in one task; empty where they have more."""
        return self.addresses(files) if self.are_few(files) else ()

    def addresses(self, files: Sequence[StateFile]) -> tuple[str, ...]:
        """Return the addresses of files."""
        return tuple(address_of(self._context.store, file) for file in files)

    def read_few(self, files: Sequence[StateFile], columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of files, one or more that have few, with some columns, all by default; read by the driver."""
        store = self._context.store
        read = [read_parquet(owner_store(store, file), file.path, columns) for file in files]
        # Merged files have nullable columns, new ones those of their rows.
        return pa.concat_tables(read, promote_options="default")

    def drop(self, files: Iterable[StateFile]) -> None:
        """Drop files from the state; the files themselves stay for earlier epochs."""
        dropped = set(files)
        self._live = [file for file in self._live if file not in dropped]

    def snapshot(self, watermark: int, counters: dict[str, int]) -> OperatorState:
        """Return the operator's entry for the epoch's record."""
        definition = dict(self._context.definition)
        hashings = {f"{HASHING}{part}": number for part, number in self.hashings.items()}
        if self.schema is not None:
            definition["schema"] = self.schema.jsonValue()
        return OperatorState(definition, tuple(self._live), watermark, {**self._context.before.counters, **counters, **hashings})

    def _with_older(self, made: StructType) -> StructType:
        """Return the current columns, and those that only older files have: later epochs may need them again."""
        names = {field.name.lower() for field in made}
        older = [as_older(field) for field in self.schema if field.name.lower() not in names] if self.schema else []
        return StructType([*made.fields, *older]) if older else made

    def refuse_collations(self, columns: Iterable[StructField]) -> None:
        """Check that columns that rows are found by have no collation: Spark's hash of equal texts may differ there.

        Raises:
            UserCodeError: a column has one.
        """
        found = [field for field in columns if " collate " in field.dataType.simpleString()]
        if found:
            named = ", ".join(f"{element_name(field.name) or field.name} ({field.dataType.simpleString()})" for field in found)
            raise UserCodeError(
                f"rows are found by columns with a collation, which is not supported: {named}",
                fix="compare what the collation makes equal, such as .with_columns(name='lower(CAST(name AS STRING COLLATE UTF8_BINARY))')",
                job=self._context.job,
                uid=self._context.uid,
                place=self._place,
            )

    def require_types(self, made: StructType) -> None:
        """Check the types of new state columns: files with different types could not be read together.

        Raises:
            StateMismatchError: a column would change its type.
        """
        stored = {field.name.lower(): field.dataType.simpleString() for field in self.schema} if self.schema else {}
        changed = [f for f in made if f.dataType.simpleString() != stored.get(f.name.lower(), f.dataType.simpleString())]
        if changed:
            found = ", ".join(f"{f.name} was {stored[f.name.lower()]} and is now {f.dataType.simpleString()}" for f in changed)
            raise StateMismatchError(
                f"the stored state has other column types: {found}",
                fix="start the job again: its state is checked against the new types, and widened where that loses nothing",
                uid=self._context.uid,
                place=self._place,
            )


def as_older(field: StructField) -> StructField:
    """Return a column that only older files have."""
    return StructField(field.name, field.dataType, field.nullable, {**field.metadata, OLDER: True})


def is_current(field: StructField) -> bool:
    """Return whether new rows have a column of state, not only older files."""
    return not field.metadata.get(OLDER)


def stagings(files: Sequence[StateFile]) -> list[tuple[int, int]]:
    """Return the time spans of groups of files that were written by one job, in which a key and window occurs once."""
    spans: dict[str, tuple[int, int]] = {}
    for file in files:
        folder = file.path.rpartition("/")[0]
        low = file.min_time if file.min_time is not None else -(2**63)
        high = file.max_time if file.max_time is not None else 2**63 - 1
        before = spans.get(folder, (low, high))
        spans[folder] = (min(before[0], low), max(before[1], high))
    return list(spans.values())


def shared_span(spans: Sequence[tuple[int, int]], low: int, high: int) -> tuple[int, int] | None:
    """Return the least span within [low, high] that includes all times covered twice; None where there are none."""
    first: int | None = None
    last = reached = None
    for start, end in sorted((max(a, low), min(b, high)) for a, b in spans):
        if start > end:
            continue
        if reached is not None and start <= reached:
            first = start if first is None else first
            last = min(end, reached) if last is None else max(last, min(end, reached))
        reached = end if reached is None else max(reached, end)
    return None if first is None or last is None else (first, last)


def count_in_spans(files: Iterable[StateFile], low: int, high: int, step: int) -> int:
    """Return the number of times on a grid in [low, high] between the least and greatest times of files, which are on the grid."""
    count, reached = 0, low - step
    spans = sorted((file.min_time, file.max_time) for file in files if file.min_time is not None and file.max_time is not None)
    for first, last in spans:
        begin, end = max(first, reached + step), min(last, high)
        if begin <= end:
            count += (end - begin) // step + 1
            reached = end
    return count
