"""A folder of Parquet files. Each file appears exactly once; the files of one epoch appear one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, PublishError, SinkError, StoreError, TidemarkError
from tidemark.locations import Location
from tidemark.savepoints.delta.folder_note import STAGED
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.delta.result_tables import (
    COLUMNS_FILE,
    SPARK_SCHEMA,
    ParquetColumns,
    check_folder,
    parquet_columns,
    visible_files,
)
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.savepoints.model.table_columns import Columns, lists_starts
from tidemark.savepoints.model.verdict import incompatible_outputs_error
from tidemark.spark.sinks.delta.delta_republish import cannot_republish
from tidemark.spark.sinks.parquet_position import ParquetPosition, final_names
from tidemark.spark.sinks.staging.missing import Expected, staged_files_lost
from tidemark.spark.sinks.staging.staging import Occupancy, folder_of
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ParquetSink:
    """One folder. Staged files lie below ``_tidemark``, which readers skip, and are moved to names made of lineage and epoch.

    Args:
        name: of the output.
        path: of the folder.
        job: whose output it is.
        readers_move_files: whether readers take files away, so that missing files prove no loss.
    """

    kind = "parquet"

    def __init__(self, name: str, path: str, *, job: str = "", readers_move_files: bool = False) -> None:
        self._name = name
        self._job = job
        self._location = Location.parse(path)
        self._checked: str | None = None
        self.starts_only = False
        made = not _is_there(self._location)
        self.staging = JobStore.open(self._location)
        self._at = ParquetPosition(name, job, self.staging, made=made, readers_move_files=readers_move_files)

    @property
    def location(self) -> str:
        """The folder's path."""
        return str(self._location)

    @property
    def position(self) -> SinkPosition | None:
        """The folder's position when it was last checked, None before that."""
        return self._at.known

    def expect(self, expected: Expected) -> None:
        """Set what the job's log knows of the folder."""
        self._at.expect(expected)

    def require_whole(self) -> None:
        """Raise MissingEpochsError when the folder is not the one that was published to, an older copy of it, or lost its newest files."""
        self._at.require_whole()

    def require_whole_since(self, position: SinkPosition) -> None:
        """Raise MissingEpochsError when the folder does not hold all that was published up to a position."""
        self._at.require_whole_since(position)

    def adopt(self) -> None:
        """Accept the folder as it is."""
        self._at.adopt()

    def republish(self, retained: Retained) -> tuple[int, ...]:
        """Publish again epochs that an older copy of the folder has no note of, from files that still exist; returns their numbers."""
        missing = self._missing(retained)
        for record in missing:
            self._move(record.outputs[self._name], record.lineage, record.epoch)
            crash_point("output-republished")
        return tuple(record.epoch for record in missing)

    def require_republishable(self, retained: Retained) -> None:
        """Raise MissingEpochsError when files of epochs that an older copy of the folder has no note of do not exist."""
        self._missing(retained)

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        """Return the retained epochs after the newest in the folder's note."""
        newest = self._at.newest
        if newest is None:
            return retained.records
        keys = [(record.lineage, record.epoch) for record in retained.records]
        return retained.records[keys.index(newest) + 1 :] if newest in keys else ()

    def _missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        newest, records = self._at.newest, retained.records
        keys = [(record.lineage, record.epoch) for record in records]
        later = records[keys.index(newest) + 1 :] if newest in keys else ()
        missing = tuple(record for record in later if (record.lineage, record.epoch) not in retained.accepted)
        if not missing:
            why = "there is no other copy of the deleted files" if newest in keys else "the folder has no note of what was published to it"
            raise cannot_republish(self._name, self._job, self.location, why)
        for record in missing:
            output = record.outputs[self._name]
            names = final_names(output, record.lineage, record.epoch)
            for file, name in zip(output.files, names, strict=True):
                if not (self.staging.exists(name) or self.staging.exists(file.path)):
                    why = f"the files of epoch {record.epoch} no longer exist, such as {name}"
                    raise cannot_republish(self._name, self._job, self.location, why)
        return missing

    def staging_folder(self, name: str) -> str:
        """Return a hidden folder."""
        return f"{STAGED}/{name}"

    def check(self, schema: StructType) -> None:
        """Raise SinkError when an existing file has other columns: readers take the columns of one file for those of all."""
        if schema.json() == self._checked:
            return
        try:
            found = parquet_columns(self.staging)
        except (StoreError, CorruptStoreError) as error:
            raise self._unreadable(error) from error
        if found is not None and found.path == COLUMNS_FILE:
            self.create(schema)
        elif found is not None:
            wanted = stored_columns(schema.jsonValue())
            self.starts_only = lists_starts(wanted, found.columns)
            verdict = check_folder(self._name, _types(found, wanted, schema), self.location, wanted)
            if not verdict.fits:
                raise incompatible_outputs_error([verdict], file=found.path)
        self._checked = schema.json()

    @property
    def occupancy(self) -> Occupancy:
        """Whether readers see no file here, or only the one that has the columns and no rows."""
        try:
            found = visible_files(self.staging)
        except StoreError as error:
            raise self._unreadable(error) from error
        return "missing" if not found else "empty" if found == [COLUMNS_FILE] else "taken"

    def create(self, schema: StructType) -> None:
        """Write a file that has the columns and no rows, unless the folder has any other.

        Raises:
            SinkError: it cannot be written.
        """
        if self.occupancy == "taken":
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

        Raises:
            MissingEpochsError: the folder is not the one that was published to before; no file was moved.
            PublishError: it cannot be published now.
        """
        self._move(record, lineage, epoch, check=self.require_whole)

    def _move(self, record: OutputRecord, lineage: str, epoch: int, *, check: Callable[[], None] = lambda: None) -> None:
        folder, names = folder_of(record), final_names(record, lineage, epoch)
        try:
            check()
            staged = {file.path for file in self.staging.list(folder)}
            self._require_there(record, staged, lineage, epoch)
            done = next((number for number, file in enumerate(record.files) if file.path in staged), len(record.files))
            if done < len(record.files):
                self._at.publishing(lineage, epoch)
            for number, file in enumerate(record.files[done:], start=done):
                self.staging.move(file.path, names[number])
                crash_point("output-file-moved")
            self._at.published(lineage, epoch)
            self.staging.remove_folder(folder)
        except (StoreError, OSError) as error:
            raise PublishError(
                f"output {self._name!r} of a committed epoch could not be published: {error}",
                fix="repair the folder (space, permission, network) and start the job again: it finishes this epoch first",
                uid=self._name,
                epoch=epoch,
                place=self.location,
            ) from error

    def _require_there(self, record: OutputRecord, staged: Collection[str], lineage: str, epoch: int) -> None:
        """Make sure that an epoch's files are staged, or were moved; readers may have taken those of earlier releases' epochs."""
        if any(file.path in staged for file in record.files) or record.before is None:
            return
        if self._at.is_noted(lineage, epoch):
            self._at.require_files((lineage, epoch))
        elif not any(self.staging.exists(name) for name in final_names(record, lineage, epoch)):
            raise staged_files_lost(self._name, self._job, self.location, epoch)

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
            fix="repair the folder, or write to another path",
            uid=self._name,
            place=self.location,
        )

    def visible_files(self) -> frozenset[str]:
        """Return nothing: readers see other files than the staged ones."""
        return frozenset()


def _is_there(location: Location) -> bool:
    """Return whether the folder exists; on an object store, which has no empty folders, the note is used instead."""
    return location.scheme != "file" or Path(location.path).is_dir()


def _types(found: ParquetColumns, wanted: Columns, schema: StructType) -> Columns:
    """Return the types of a file's columns; where the file lacks Spark's, the wanted ones if both are the same to Arrow."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    types = {}
    for name, kind in found.columns.items():
        stored = found.schema.field(name).type
        same = name in wanted and stored == arrow.field(name).type
        types[name] = kind if kind is not None else wanted[name] if same else str(stored)
    return types
