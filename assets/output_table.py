"""The table an output was written to, read back without a JVM."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidemark.errors import SinkError
from tidemark.graph.nodes import DeltaSpec, Output, ParquetSpec
from tidemark.locations import Location

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as pads


@dataclass(frozen=True)
class OutputTable:
    """A Delta table or a folder of Parquet files.

    A table that does not exist yet (nothing was ever written) has no files and no rows.

    Args:
        format: how the table keeps its list of files.
        location: where it is.
    """

    format: Literal["delta", "parquet"]
    location: Location

    @classmethod
    def of(cls, output: Output, *, location: str | None = None, job: str | None = None) -> OutputTable:
        """Return the table of an output.

        Args:
            output: the output.
            location: where the job's status says it is; as declared by default, relative to the working directory.
            job: the job's name, for the error.

        Raises:
            SinkError: the output's sink keeps no rows that could be read back.
        """
        match output.sink:
            case DeltaSpec(path=path):
                return cls("delta", Location.parse(location or path))
            case ParquetSpec(path=path):
                return cls("parquet", Location.parse(location or path))
            case sink:
                raise SinkError(
                    f"{type(sink).__name__} keeps no table that a check could read",
                    fix="check an output with a delta or parquet sink",
                    job=job,
                    place=output.place or None,
                )

    def files(self) -> frozenset[str]:
        """Return the names of the table's files, as they are now."""
        dataset = self._dataset()
        return frozenset() if dataset is None else frozenset(dataset.files)

    def rows(self) -> int:
        """Return the number of rows, from file metadata alone."""
        dataset = self._dataset()
        return 0 if dataset is None else int(dataset.count_rows())

    def read(self, columns: Sequence[str] | None = None, *, files: Collection[str] | None = None) -> pa.Table | None:
        """Return the rows; none where the table does not exist.

        Args:
            columns: the columns wanted; all by default.
            files: only rows of these files.
        """
        import pyarrow.dataset as pads

        dataset = self._dataset()
        if dataset is None:
            return None
        if files is not None:
            wanted = [fragment for fragment in dataset.get_fragments() if fragment.path in files]
            dataset = pads.FileSystemDataset(wanted, dataset.schema, dataset.format, dataset.filesystem)
        return dataset.to_table(columns=list(columns) if columns is not None else None)

    def _dataset(self) -> pads.FileSystemDataset | None:
        return self._delta_dataset() if self.format == "delta" else self._parquet_dataset()

    def _delta_dataset(self) -> pads.FileSystemDataset | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.location.uri).to_pyarrow_dataset()
        except TableNotFoundError:
            return None
        except Exception as error:  # deltalake has many error classes, of which none says "cannot be read"
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
