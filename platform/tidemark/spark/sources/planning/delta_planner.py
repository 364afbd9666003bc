"""Plans a source that is a Delta table: versions by its log, and the files of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec
from tidemark.spark.sources.delta_tables.logged_versions import DataFile
from tidemark.spark.sources.delta_tables.positions import TablePosition, UnreadVersion, take
from tidemark.spark.sources.delta_tables.table_reader import TableReader
from tidemark.spark.sources.delta_tables.table_rows import table_rows
from tidemark.spark.sources.intake_limits import DEFAULT_BYTES_PER_EPOCH
from tidemark.spark.sources.planning.source_planner import Taken
from tidemark.spark.sources.sources import escaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AHEAD: Final = 64
"""Versions that are read ahead of the epochs. Of so many without rows an epoch is made, so that the position follows the table."""


class DeltaPlanner:
    """Plans one source.

    Args:
        spark: the session.
        source: that reads a Delta table.
        spec: of the source.
        position: after the newest epoch, None before the first.

    Raises:
        SourceError: the table cannot be read, or not from there.
    """

    def __init__(self, spark: SparkSession, source: SourceNode, spec: DeltaTableSpec, position: object) -> None:
        self._spark = spark
        self._reader = TableReader(source, spec)
        self._position = self._reader.beginning() if position is None else self._reader.resumed(position)
        self._unread: tuple[UnreadVersion, ...] = ()
        self._next = self._position.version
        self._first = self._position.index + 1
        self._end: int | None = None
        self._rows: int | None = None
        self._blocked: SourceError | None = None
        # Otherwise the rows that come between a first run without any and the next one would be left out.
        self._begins_later = position is None and spec.start == "latest"
        self._reader.begin(self._position)
        if self._position.snapshot:
            self._unread = (self._reader.snapshot(self._position),)
            self._next, self._first = self._next + 1, 0

    @property
    def has_unread(self) -> bool:
        """Whether an epoch is due: versions with rows are known, or one that cannot be read, or the beginning is to be recorded."""
        return self._blocked is not None or self._has_rows

    @property
    def _has_rows(self) -> bool:
        return self._begins_later or any(version.files for version in self._unread) or len(self._unread) >= _AHEAD

    def look(self) -> None:
        """Look for newer versions in the table's log, where none is known to be unread.

        Raises:
            SourceError: the next version can no longer be read, or changes the table so that the source cannot read it; or the table was
                replaced, or reset to an older state.
        """
        if not self.has_unread:
            self._look_ahead()
        self._raise_if_next()

    def fix_end(self) -> None:
        """Let the source end at the table's newest version."""
        self._end = self._reader.refresh()

    def take(self, source: SourceNode, before: object) -> Taken | None:
        """Return the files of the next epoch.

        Raises:
            SourceError: one of them no longer exists.
        """
        del before  # the position that it follows is known
        spec = source.spec
        if not isinstance(spec, DeltaTableSpec):
            raise TypeError(type(spec).__name__)
        self._raise_if_next()
        if not self._has_rows:
            return None
        most = spec.max_bytes_per_epoch or DEFAULT_BYTES_PER_EPOCH
        taken = take(self._unread, self._position, max_bytes=most, max_versions=spec.max_versions_per_epoch, whole_versions=spec.changes)
        self._reader.require(taken.files)
        self._position, self._unread, self._begins_later = taken.after, taken.left, False
        self._look_ahead()
        self._rows = _rows_of(taken.files)
        read = partial(_rows, self._spark, self._reader, taken.files)
        return Taken(taken.after.as_stored(), read=read, rows=self._rows, caught_up=not self.has_unread)

    def committed(self, position: object) -> None:
        """Do nothing."""

    def metrics(self) -> Mapping[str, object]:
        """Return the rows of the last epoch, and the unread files of the versions that were read ahead."""
        files = [file for version in self._unread for file in version.files]
        size = sum(file.bytes for file in files)
        return {
            "numInputRows": self._rows or 0,
            "metrics": {"numFilesOutstanding": str(len(files)), "numBytesOutstanding": str(size)},
        }

    def close(self) -> None:
        """Do nothing."""

    def _raise_if_next(self) -> None:
        """Raise the error of a version that cannot be read, once all before it were."""
        if self._blocked is not None and not self._has_rows:
            raise self._blocked

    def _look_ahead(self) -> None:
        """Read entries of the log that follow those known; none counts if the table is not the one that was read before."""
        last, known = self._reader.last, self._unread
        self._read_ahead()
        if self._reader.last != last or self._blocked is not None:
            try:
                self._reader.require_same(last)
            except SourceError as error:
                self._unread, self._blocked = known, error

    def _read_ahead(self) -> None:
        while self._blocked is None and len(self._unread) < _AHEAD and (self._end is None or self._next <= self._end):
            try:
                found = self._reader.version(self._next, self._first)
            except SourceError as error:
                self._blocked = error
                return
            if found is None:
                return
            self._next, self._first = self._next + 1, 0
            if found.before_start:
                self._position = TablePosition(self._position.table, self._next, digest=found.digest)
            else:
                self._unread = (*self._unread, found)


def rows_between(spark: SparkSession, source: SourceNode, spec: DeltaTableSpec, before: object, after: object) -> DataFrame:
    """Return the rows that a source read between two positions, as its epoch read them.

    Args:
        spark: the session.
        source: the source.
        spec: of the source.
        before: the position before the epoch, None for the first.
        after: the position after it.

    Raises:
        SourceError: they can no longer be read.
    """
    reader = TableReader(source, spec)
    end = reader.resumed(after)
    if before is not None:
        start = reader.resumed(before)
    elif spec.start == "snapshot" and spec.from_version is None and spec.from_ms is None:
        start = TablePosition(end.table, end.version if end.snapshot else end.version - 1, snapshot=True)
    else:
        start = reader.beginning()
    reader.begin(start)
    files = tuple(reader.between(start, end))
    reader.require(files)
    return _rows(spark, reader, files)


def _rows(spark: SparkSession, reader: TableReader, files: Sequence[DataFile]) -> DataFrame:
    return table_rows(spark, reader.spec, files, [escaped(reader.address(file)) for file in files])


def _rows_of(files: Sequence[DataFile]) -> int | None:
    known = [file.rows for file in files if file.rows is not None]
    return sum(known) if len(known) == len(files) else None
