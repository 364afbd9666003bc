"""Reads the table that an output was written to, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from tidemark.errors import SinkError
from tidemark.graph import DeltaSpec, Output, ParquetSpec
from tidemark.locations import Location
from tidemark.state import REWRITE_FOLDER, JobStore

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as pads
    from deltalake import DeltaTable


@dataclass(frozen=True)
class TableState:
    """The state of a table: the version of a Delta table, -1 if there was none; for a folder, its files."""

    version: int = -1
    files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OutputTable:
    """A Delta table or a folder of Parquet files.

    A table that does not exist yet (nothing was ever written) has no files and no rows.

    Args:
        format: the table format.
        location: its location.
    """

    format: Literal["delta", "parquet"]
    location: Location

    @classmethod
    def of(cls, output: Output, *, location: str | None = None, job: str | None = None) -> OutputTable:
        """Return the table of an output.

        Args:
            output: the output.
            location: its location by the job's status; as declared by default, relative to the working directory.
            job: the job's name, for the error.

        Raises:
            SinkError: the output's sink keeps no rows that can be read.
        """
        match output.sink:
            case DeltaSpec(path=path):
                return cls("delta", Location.parse(location or path))
            case ParquetSpec(path=path):
                return cls("parquet", Location.parse(location or path))
            case sink:
                raise SinkError(
                    f"{type(sink).__name__} keeps no table that a check can read",
                    fix="check an output with a delta or parquet sink",
                    job=job,
                    place=output.place or None,
                )

    def state(self) -> TableState:
        """Return the table's state; ``read_since`` returns the rows written after it."""
        if self.format == "delta":
            table = self._delta_table()
            return TableState() if table is None else TableState(version=table.version())
        dataset = self._dataset()
        return TableState() if dataset is None else TableState(files=frozenset(dataset.files))

    def rows(self) -> int:
        """Return the number of rows, from file metadata alone."""
        dataset = self._dataset()
        return 0 if dataset is None else int(dataset.count_rows())

    def read(self, columns: Sequence[str] | None = None) -> pa.Table | None:
        """Return the rows; None if the table does not exist.

        Args:
            columns: the columns to read; all by default.
        """
        dataset = self._dataset()
        return None if dataset is None else dataset.to_table(columns=list(columns) if columns is not None else None)

    def read_since(self, before: TableState) -> pa.Table | None:
        """Return the rows that were written since, also those that were merged into other files or replaced; None without a table."""
        if self.format == "parquet":
            dataset = self._dataset()
            return None if dataset is None else _rows_of(dataset, frozenset(dataset.files) - before.files)
        import pyarrow as pa

        table = self._delta_table()
        if table is None:
            return None
        missing, parts = self._added_after(before.version), [_rows_of(table.to_pyarrow_dataset(), frozenset())]
        # A file is in the newest version, or was merged into others: then it is in the version that added it.
        for version in (table.version(), *sorted(set(missing.values()), reverse=True)):
            dataset = self._delta_dataset(version) if missing else None
            if dataset is not None:
                there = missing.keys() & set(dataset.files)
                parts.append(_rows_of(dataset, there))
                missing = {file: added for file, added in missing.items() if file not in there}
        return pa.concat_tables(parts, promote_options="permissive")

    def _added_after(self, version: int) -> dict[str, int]:
        """Return the files that added rows to a Delta table after a version, with the version that added each.

        Files with only rewritten rows of other files are left out.
        """
        log, found = JobStore.open(self.location).at("_delta_log"), dict[str, int]()
        for number in count(version + 1):
            try:
                actions = [json.loads(line) for line in log.get(f"{number:020d}.json").decode().splitlines() if line.strip()]
            except FileNotFoundError:
                return found
            rewritten = next((action["commitInfo"].get(REWRITE_FOLDER) for action in actions if "commitInfo" in action), None)
            added = [unquote(action["add"]["path"]) for action in actions if "add" in action and action["add"]["dataChange"]]
            found |= {path: number for path in added if rewritten is None or not path.startswith(f"{rewritten}/")}
        return found

    def _dataset(self) -> pads.FileSystemDataset | None:
        return self._delta_dataset() if self.format == "delta" else self._parquet_dataset()

    def _delta_dataset(self, version: int | None = None) -> pads.FileSystemDataset | None:
        table = self._delta_table(version)
        return None if table is None else table.to_pyarrow_dataset()

    def _delta_table(self, version: int | None = None) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.location.uri, version=version)
        except TableNotFoundError:
            return None
        except Exception as error:  # deltalake has many error classes, none of which means "cannot be read"
            raise SinkError(
                f"the Delta table cannot be read: {error}",
                fix="check that the location is right and that this process may read it",
                place=str(self.location),
            ) from error

    def _parquet_dataset(self) -> pads.FileSystemDataset | None:
        import pyarrow as pa
        import pyarrow.dataset as pads
        import pyarrow.fs as pafs

        try:
            filesystem, path = pafs.FileSystem.from_uri(self.location.uri)
            if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
                return None
            dataset = pads.dataset(path, filesystem=filesystem, format="parquet")
        except (pa.ArrowException, OSError) as error:
            raise SinkError(
                f"the Parquet folder cannot be read: {error}",
                fix="check that the location is right and that this process may read it",
                place=str(self.location),
            ) from error
        return dataset if dataset.files else None


def _rows_of(dataset: pads.FileSystemDataset, files: Collection[str]) -> pa.Table:
    """Return the rows of some files of a dataset."""
    import pyarrow.dataset as pads

    wanted = [fragment for fragment in dataset.get_fragments() if fragment.path in files]
    return pads.FileSystemDataset(wanted, dataset.schema, dataset.format, dataset.filesystem).to_table()
