"""The log of a Delta table that is a source: its entries, its newest version, and whether it is still the log that was read before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.clock import format_ms
from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec
from tidemark.locations import Location
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.sources.delta_tables.logged_versions import LoggedVersion, TableMetadata, logged_version
from tidemark.spark.sources.delta_tables.positions import TablePosition
from tidemark.state.encoding.envelope import sha256
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.store.store import JobStore

LOST_FIX: Final = (
    "restore the table's folder from a backup; or read the table again under another name of the source; and keep more of it: "
    "delta.logRetentionDuration, delta.deletedFileRetentionDuration"
)
_OTHER_FIX: Final = "give the source another name, so that the table is read from its beginning; or restore the table, or correct the path"
_THREADS: Final = 16
_READ_AT_ONCE: Final = 64


class TableLog:
    """The log of a table.

    Args:
        source: that reads it.
        spec: of the source.

    Raises:
        SourceError: there is no such table, or it cannot be read.
    """

    def __init__(self, source: SourceNode, spec: DeltaTableSpec) -> None:
        self._source = source
        self._path = spec.path
        self._table = self.open(None)
        self._last: tuple[int, str | None] = (-1, None)
        self.newest = self._table.version()
        self.id = str(self._table.metadata().id)

    @cached_property
    def store(self) -> JobStore:
        """The table's folder."""
        return JobStore.open(self._path, make=False)

    @property
    def last(self) -> tuple[int, str | None]:
        """The last version that ``read_next`` returned, or that the source resumes after, with the digest of its entry."""
        return self._last

    def resume_after(self, position: TablePosition) -> None:
        """Continue after a position: the next entry follows the one that was read last."""
        self._last = (position.last_read, position.digest or self.digest(position.last_read))

    def refresh(self) -> int:
        """Return the table's newest version of now.

        Raises:
            SourceError: it is another table than before, or an older state of it.
        """
        self._table = self.open(None)
        self.require_id(str(self._table.metadata().id))
        newest = self._table.version()
        if newest < self.newest:
            raise self.older_state(newest, self.newest)
        self.newest = newest
        return newest

    def require_id(self, found: str) -> None:
        """Make sure that an id is the table's.

        Raises:
            SourceError: it is not.
        """
        if found != self.id:
            raise self.error(f"is another one than the job has read so far: its id is {found}, and was {self.id}", _OTHER_FIX)

    def require_position(self, position: TablePosition) -> None:
        """Make sure that a stored position is one in this table, as far as the log shows it.

        Raises:
            SourceError: the table is another one, or an older state of it.
        """
        if position.table != self.id:
            raise self.error(f"is another one than the job has read so far: its id is {self.id}, and was {position.table}", _OTHER_FIX)
        if position.last_read > self.newest:
            raise self.older_state(self.newest, position.last_read)
        self.require_same(position.last_read, position.digest)

    def require_same(self, version: int, digest: str | None) -> bool:
        """Make sure that a version's entry is the one that was read; returns whether it is there.

        Raises:
            SourceError: it is another one.
        """
        found = self.digest(version)
        if found is not None and digest is not None and found != digest:
            raise self.error(
                f"is not the one that the job has read so far: version {version} is another one, as after the table was created again, "
                "or replaced by a backup and written since",
                _OTHER_FIX,
            )
        return found is not None

    def read_next(self, version: int) -> LoggedVersion | None:
        """Return a version that follows the last one, None where there is none yet.

        Raises:
            SourceError: its entry is damaged or was removed, or the table is another one than before.
        """
        entry = self.entry(version)
        # A log is cleaned up from its beginning: where the last entry is still there, no later one was removed.
        if entry is None and (version != self._last[0] + 1 or not self._exists(version - 1)):
            if self.refresh() < version:
                return None
            entry = self.entry(version)
            if entry is None:
                raise self.error(f"no longer has version {version}, which comes next: its log was cleaned up", LOST_FIX)
        if entry is not None:
            self.newest = max(self.newest, version)
            self._last = (version, entry.digest)
        return entry

    def entry(self, version: int) -> LoggedVersion | None:
        """Return what a version did, None if the log has no entry of it.

        Raises:
            SourceError: the entry is damaged, or the time of the version is not known.
        """
        path = _path_of(version)
        try:
            data = self.store.get(path)
            entry = logged_version(version, data)
            if entry.at is None:
                entry = logged_version(version, data, modified=self.store.modified_ms(path))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            name = path.rpartition("/")[2]
            raise self.error(f"has a damaged entry in its log: {name}", "restore that file from a backup of the table") from error
        if entry.at is None:
            raise self.error(f"does not say when version {version} was written", LOST_FIX)
        return entry

    def digest(self, version: int) -> str | None:
        """Return the checksum of a version's entry, None if the log has none."""
        if version < 0:
            return None
        try:
            return sha256(self.store.get(_path_of(version)))
        except FileNotFoundError:
            return None

    def first_at(self, ms: int) -> int:
        """Return the first version that is not older than a time, one more than the newest where all are older.

        A version counts as later than the one before, whatever the clocks of their writers, as in Delta.

        Raises:
            SourceError: the log does not reach back to that time.
        """
        times = list(self._times_back())
        first = times[-1][0] if times else self.newest + 1
        latest: int | None = None
        for version, at in reversed(times):
            latest = at if latest is None or at > latest else latest + 1
            if latest >= ms:
                if version == first and version > 0:
                    break
                return version
        else:
            if times:
                return self.newest + 1
        raise self.error(
            f"has no log before version {first}, which is later than {format_ms(ms)}: what came first after that is not known",
            "begin with a later time, or with the rows that the table has: start='snapshot'",
        )

    def metadata_at(self, version: int) -> tuple[TableMetadata, tuple[str, ...]]:
        """Return a table's metadata and what it requires of readers, as of a version; as of now where that version cannot be read."""
        table = self._table
        if version < self.newest:
            try:
                table = self.open(version)
            except SourceError:
                # Its log before that version was cleaned up.
                table = self._table
        found = table.metadata()
        metadata = TableMetadata(str(found.id), table.schema().to_json(), tuple(found.partition_columns), found.configuration)
        return metadata, tuple(table.protocol().reader_features or ())

    def open(self, version: int | None) -> DeltaTable:
        """Return the table at a version, None for the newest.

        Raises:
            SourceError: it cannot be read.
        """
        try:
            return DeltaTable(Location.parse(self._path).uri, version=version)
        except (DeltaError, OSError) as error:
            if version is None and isinstance(error, TableNotFoundError):
                what, fix = "does not exist", "create it before the job runs, or correct the path"
            elif version is None:
                what, fix = "cannot be read", "repair the table, or check its place and the credentials in the environment"
            else:
                what, fix = f"can no longer be read in version {version}", LOST_FIX
            raise self.error(f"{what}: {first_line(error)}", fix) from without_secrets(error)

    def older_state(self, newest: int, read: int) -> SourceError:
        """Return the error of a table that is in an older state than it was."""
        return self.error(
            f"was reset to an older state: its newest version is {newest}, and version {read} was read before",
            "restore the table as it was; or give the source another name, so that the table is read from its beginning",
        )

    def error(self, what: str, fix: str) -> SourceError:
        """Return an error of the table."""
        return SourceError(
            f"the Delta table {self._path!r} of source {self._source.name!r} {what}",
            fix=fix,
            uid=self._source.name,
            place=self._source.place,
        )

    def _exists(self, version: int) -> bool:
        return version >= 0 and self.store.exists(_path_of(version))

    def _times_back(self) -> Iterator[tuple[int, int]]:
        """Yield versions with their times, newest first, as far as the log goes."""
        with ThreadPoolExecutor(_THREADS) as threads:
            for upper in range(self.newest, -1, -_READ_AT_ONCE):
                for entry in threads.map(self.entry, range(upper, max(-1, upper - _READ_AT_ONCE), -1)):
                    if entry is None or entry.at is None:
                        return
                    yield entry.version, entry.at


def _path_of(version: int) -> str:
    return f"_delta_log/{version:020d}.json"
