"""A folder of Parquet files. Each file appears exactly once; the files of one epoch appear one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, PublishError, SinkError, StoreError, TidemarkError
from tidemark.locations import Location
from tidemark.savepoints.result_tables import (
    COLUMNS_FILE,
    SPARK_SCHEMA,
    ParquetColumns,
    judge_folder,
    parquet_columns,
    visible_files,
)
from tidemark.savepoints.stored_types import stored_columns
from tidemark.savepoints.table_columns import Columns, lists_starts
from tidemark.savepoints.verdict import refusal
from tidemark.spark.staging import Vacancy, folder_of
from tidemark.state.records import OutputRecord
from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_STAGED = "_tidemark"


class ParquetSink:
    """One folder. Staged files lie below ``_tidemark``, which readers skip, and are moved to names made of lineage and epoch.

    Args:
        name: of the output.
        path: of the folder.
    """

    kind = "parquet"

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._location = Location.parse(path)
        self._checked: str | None = None
        self.starts_only = False
        self.staging = JobStore.open(self._location)

    @property
    def location(self) -> str:
        """The folder's path."""
        return str(self._location)

    def staging_folder(self, name: str) -> str:
        """Return a hidden folder."""
        return f"{_STAGED}/{name}"

    def check(self, schema: StructType) -> None:
        """Raise SinkError when a file that is there has other columns: readers take those of one file for those of all."""
        if schema.json() == self._checked:
            return
        try:
            found = parquet_columns(self.staging)
        except (StoreError, CorruptStoreError) as error:
            raise self._unreadable(error) from error
        if found is not None and found.path == COLUMNS_FILE:
            self.make(schema)
        elif found is not None:
            wanted = stored_columns(schema.jsonValue())
            self.starts_only = lists_starts(wanted, found.columns)
            verdict = judge_folder(self._name, _types(found, wanted, schema), self.location, wanted)
            if not verdict.fits:
                raise refusal([verdict], file=found.path)
        self._checked = schema.json()

    @property
    def vacancy(self) -> Vacancy:
        """Whether readers see no file here, or only the one that tells them the columns."""
        try:
            found = visible_files(self.staging)
        except StoreError as error:
            raise self._unreadable(error) from error
        return "missing" if not found else "empty" if found == [COLUMNS_FILE] else "taken"

    def make(self, schema: StructType) -> None:
        """Write a file that has the columns and no rows, unless there is any other.

        Raises:
            SinkError: it cannot be written.
        """
        if self.vacancy == "taken":
            return
        columns = to_arrow_schema(schema, timezone="UTC").with_metadata({SPARK_SCHEMA: schema.json()})
        written = pa.BufferOutputStream()
        pq.write_table(columns.empty_table(), written)
        try:
            self.staging.put(COLUMNS_FILE, written.getvalue().to_pybytes())
        except StoreError as error:
            raise self._unreadable(error) from error
        crash_point("table-created")

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Move the staged files, in their order, to their final names.

        Those before the first that is still staged were moved by an earlier attempt; readers may have taken them away since.
        """
        folder = folder_of(record)
        try:
            staged = {file.path for file in self.staging.list(folder)}
            done = next((number for number, file in enumerate(record.files) if file.path in staged), len(record.files))
            for number, file in enumerate(record.files[done:], start=done):
                self.staging.move(file.path, f"part-{lineage}-{epoch:012d}-{number:05d}.parquet")
                crash_point("output-file-moved")
            self.staging.remove_folder(folder)
        except (StoreError, OSError) as error:
            raise PublishError(
                f"output {self._name!r} of a committed epoch could not be published: {error}",
                fix="mend the folder (space, permission, network) and start the job again: it finishes this epoch first",
                uid=self._name,
                epoch=epoch,
                place=self.location,
            ) from error

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that has files here; readers may have taken files away.

        Raises:
            SinkError: the folder cannot be listed.
        """
        ours = f"part-{lineage}-"
        try:
            names = [file.path.removeprefix(ours) for file in self.staging.list() if file.path.startswith(ours)]
        except StoreError as error:
            raise self._unreadable(error) from error
        return max((int(name.partition("-")[0]) for name in names if name[:12].isdecimal()), default=None)

    def _unreadable(self, error: TidemarkError) -> SinkError:
        return SinkError(
            f"the folder of output {self._name!r} cannot be read: {error.what}",
            fix="mend the folder, or write to another path",
            uid=self._name,
            place=self.location,
        )

    def shown(self) -> frozenset[str]:
        """Return nothing: what readers see lies elsewhere than what is staged."""
        return frozenset()


def _types(found: ParquetColumns, wanted: Columns, schema: StructType) -> Columns:
    """Return the types of a file's columns; where the file does not tell Spark's, the wanted ones if both are the same to Arrow."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    types = {}
    for name, kind in found.columns.items():
        stored = found.schema.field(name).type
        same = name in wanted and stored == arrow.field(name).type
        types[name] = kind if kind is not None else wanted[name] if same else str(stored)
    return types
