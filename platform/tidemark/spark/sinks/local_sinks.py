"""Sinks within this process: the console (at least once) and memory (exactly once as long as the process lives)."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.errors import SinkError
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.staging import folder_of
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.layout import STAGING
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("tidemark")

_tables: dict[str, dict[tuple[str, int], pa.Table]] = {}
_owners: dict[str, str] = {}
"""The job whose rows a table holds: the address of its folder in the store."""
_columns: dict[str, Callable[[], StructType | None]] = {}
"""Of tables without rows: what returns their columns, or None where these are not known."""


class _StagedInJob:
    """Stages in the job's own folder, and reads back what was staged."""

    starts_only = False

    def __init__(self, name: str, job: JobStore) -> None:
        self._name = name
        self.staging = job

    @property
    def location(self) -> None:
        """Nowhere that another process could read."""
        return

    def staging_folder(self, name: str) -> str:
        """Return a folder below the job's."""
        return f"{STAGING}/{self._name}/{name}"

    def check(self, schema: StructType) -> None:
        """Take rows of any type."""

    def newest(self, lineage: str) -> None:  # noqa: ARG002 - the protocol's
        """Return nothing: what was shown is not kept."""
        return

    position: SinkPosition | None = None

    def expect(self, expected: Expected) -> None:
        """Expect nothing: what was shown is not kept, so nothing of it can be missing."""

    def require_whole(self) -> None:
        """Find nothing missing: what was shown is not kept."""

    def adopt(self) -> None:
        """Accept it as it is."""

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:  # noqa: ARG002 - the protocol's
        """Return nothing: no epoch is kept."""
        return ()

    def require_republishable(self, retained: Retained) -> None:
        """Take it as it is."""

    def republish(self, retained: Retained) -> tuple[int, ...]:  # noqa: ARG002 - the protocol's
        """Publish nothing again."""
        return ()

    def visible_files(self) -> frozenset[str]:
        """Return nothing: what is staged is shown as a copy."""
        return frozenset()

    def _read(self, record: OutputRecord) -> pa.Table | None:
        """Return the staged rows, None where they were shown and deleted already."""
        # A missing file means that their removal had begun, after they were shown.
        if not all(self.staging.exists(file.path) for file in record.files):
            return None
        parts = [pq.read_table(io.BytesIO(self.staging.get(file.path))) for file in record.files]
        return pa.concat_tables(parts, promote_options="permissive")


class ConsoleSink(_StagedInJob):
    """Prints an epoch's rows to standard output. At least once: a crash right after printing prints again."""

    kind = "console"

    def __init__(self, name: str, rows: int, job: JobStore) -> None:
        super().__init__(name, job)
        self._limit = rows

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:  # noqa: ARG002 - the protocol's
        """Print the first rows."""
        table = self._read(record)
        if table is not None:
            shown = table.slice(0, self._limit).to_pandas().to_string(index=False)
            more = f"\n… {table.num_rows - self._limit} more" if table.num_rows > self._limit else ""
            sys.stdout.write(f"── {self._name}, epoch {epoch}: {record.rows} rows ──\n{shown}{more}\n")
            sys.stdout.flush()
        self.staging.remove_folder(folder_of(record))


class MemorySink(_StagedInJob):
    """Keeps rows under a name for ``memory_table``. Exactly once while the process lives, and lost with it.

    A table holds the rows of one job. A run of another job, or of a job of that name in another store, removes them when it begins.
    """

    kind = "memory"

    def __init__(self, name: str, table: str, job: JobStore) -> None:
        super().__init__(name, job)
        self._table = table
        self._has_taken = False

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Keep the rows, unless this epoch's are kept already.

        Raises:
            SinkError: another job has replaced the table since this run wrote to it.
        """
        table = self._read(record)
        if table is not None:
            self._take_table()
            _tables.setdefault(self._table, {}).setdefault((lineage, epoch), table)
            _columns.pop(self._table, None)
        self.staging.remove_folder(folder_of(record))

    def begin(self, columns: Callable[[], StructType | None]) -> None:
        """Begin a run: until there are rows, the table has these columns, which are asked for when somebody reads it."""
        self._has_taken = False
        self._take_table()
        if self._table not in _tables:
            _columns[self._table] = columns

    def _take_table(self) -> None:
        owner = _owners.setdefault(self._table, self.staging.uri)
        if owner != self.staging.uri:
            if self._has_taken:
                raise SinkError(
                    f"the memory table {self._table!r} of output {self._name!r} has been replaced by that of another job, {owner}",
                    fix=f"give each job of a process a table of its own: tm.memory(stream, '{self._table}-of-this-job')",
                    uid=self._name,
                )
            if _tables.pop(self._table, None):
                logger.warning("the memory table %r holds the rows of this job now, and no longer those of %s", self._table, owner)
            _owners[self._table] = self.staging.uri
        self._has_taken = True


def memory_table(name: str) -> pa.Table | None:
    """Return all rows that memory sinks of this process keep under a name, in the order of their epochs.

    A table that has had no rows yet is empty, with the columns of its output. None if no job of this process has run with a table of that
    name, or its columns are not known: its code fails on input without rows, or the Spark session has ended.
    """
    kept = _tables.get(name)
    if kept:
        return pa.concat_tables(list(kept.values()), promote_options="permissive")
    columns = _columns[name]() if name in _columns else None
    return None if columns is None else _without_rows(columns)


def _without_rows(columns: StructType) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(columns, timezone="UTC").empty_table()


def clear_memory(name: str) -> None:
    """Delete the rows kept under a name."""
    _tables.pop(name, None)
    _owners.pop(name, None)
    _columns.pop(name, None)
