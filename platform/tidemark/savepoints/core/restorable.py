"""Until when a job can be rewound to its savepoints, by its tables and by its sources' retention. Starts no JVM.

The tables' versions were recorded when the savepoint was taken. Only sources that need no client are inspected: files, by whether those
that were read still exist, and Delta tables, by their settings and logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from tidemark.durations import short_duration
from tidemark.errors import SinkError, TidemarkError
from tidemark.locations import Location
from tidemark.savepoints.core.expiry import Expiry, ReadFile, Restorable, files_expiry
from tidemark.savepoints.core.source_files import FileExistence, require_visible, source_files_read
from tidemark.savepoints.delta.table_versions import commits_back, open_table, retention_ms
from tidemark.savepoints.model.offset_log_sources import offset_log_sources
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.savepoints.model.source_kinds import OF_FILES, kind_of_position
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.offset_log import log_offset, positions
from tidemark.state.log.records import EpochRecord, SourceLogRef
from tidemark.state.status.status import SourceStatus, read_status
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

_VERSION, _TABLE = "reservoirVersion", "reservoirId"
"""Parts of a position in a Delta table."""


class Restorability:
    """Finds out how long the input and tables that a job's savepoints need are kept; inspects nothing twice.

    Args:
        root: the root store.
        job: the job's name.
        now_ms: the time.
    """

    def __init__(self, root: JobStore, job: str, *, now_ms: int) -> None:
        self._root = root
        self._job = job
        self._folder = root.at(job_folder(job))
        self._now = now_ms
        self._there = FileExistence()
        self._seen: dict[SourceLogRef, tuple[ReadFile, ...]] = {}

    def of(self, savepoint: Savepoint) -> Restorable:
        """Return whether and until when one of the job's savepoints can be restored."""
        tables = (
            Expiry("table", name, "kept", f"version {table.version} is kept by the table's settings", table.until)
            for name, table in sorted(savepoint.info.tables.items())
        )
        record = savepoint.record
        now_at = positions(record.offsets)
        inputs = (self._input(name, now_at.get(name), record) for name in offset_log_sources(record.offsets))
        return Restorable((*tables, *inputs))

    def _input(self, name: str, position: object, record: EpochRecord) -> Expiry:
        kind = self._sources.get(name)
        try:
            unread = position is None and kind is not None and kind.kind in OF_FILES
            if unread or kind_of_position(position) == "files":
                return self._files(name, log_offset(position), record)
            if isinstance(position, Mapping) and _VERSION in position and kind is not None and kind.location is not None:
                return self._versions(name, kind.location, position)
        except (TidemarkError, OSError) as error:
            return Expiry("input", name, "unknown", error.what if isinstance(error, TidemarkError) else str(error))
        if kind is not None and kind.kind == "rate":
            return Expiry("input", name, "kept", "its rows are generated again")
        return Expiry("input", name, "unknown", f"how long {kind.kind if kind is not None else 'it'} keeps its input is not known here")

    def _files(self, name: str, offset: int, record: EpochRecord) -> Expiry:
        head = self._head
        later = self._read_by(head, name) if head is not None else ()
        if head is not None and head.lineage == record.lineage and head.epoch >= record.epoch and name in head.source_logs:
            # Files that were read by then are among those read by now, and need not be looked up.
            every, read = later, {file.address for file in later if file.batch <= offset}
        else:
            own = self._read_by(record, name)
            every, read = tuple({file.address: file for file in (*own, *later)}.values()), {file.address for file in own}
        require_visible(every)
        return files_expiry(name, every, read, self._there, now_ms=self._now)

    def _read_by(self, record: EpochRecord, name: str) -> tuple[ReadFile, ...]:
        """Return the files that a source had read by an epoch; none of a source that the job did not have then."""
        log, offset = record.source_logs.get(name, SourceLogRef()), log_offset(positions(record.offsets).get(name))
        if log not in self._seen:
            self._seen[log] = source_files_read(self._folder, log)
        return tuple(file for file in self._seen[log] if file.batch <= offset)

    def _versions(self, name: str, location: str, position: Mapping[str, object]) -> Expiry:
        """Return the expiry of a Delta table that is read, by its next version and the files that this names."""
        try:
            table = open_table(name, location)
        except SinkError:
            return Expiry("input", name, "unknown", f"its table at {location} cannot be read")
        if table is None:
            place, why = Location.parse(location), f"there is no table at {location}"
            if place.scheme == "file" and not Path(place.path).parent.is_dir():
                return Expiry("input", name, "unknown", f"{why}, as seen from here")
            return Expiry("input", name, "lost", why)
        metadata = table.metadata()
        if str(position.get(_TABLE, metadata.id)) != str(metadata.id):
            return Expiry("input", name, "lost", f"the table at {location} is not the one that it has read")
        version, kept = int(str(position[_VERSION])), retention_ms(metadata.configuration)
        since: int | None = self._now
        if version <= table.version():
            commit = next(commits_back(location, version), None)
            if commit is None:
                return Expiry("input", name, "lost", f"version {version} of its table, which comes next, was deleted from the table's log")
            since = commit.at
        # A file cannot have been removed before it was added, so none expires sooner than that.
        return Expiry(
            "input", name, "kept", f"its table keeps removed files for {short_duration(kept)}", None if since is None else since + kept
        )

    @cached_property
    def _head(self) -> EpochRecord | None:
        return JobLog(self._folder, self._job).load().epoch

    @cached_property
    def _sources(self) -> Mapping[str, SourceStatus]:
        try:
            status = read_status(self._root, self._job)
        except TidemarkError:
            # It only says what kinds of sources there are, and is written again at the next start.
            return {}
        return (status.sources if status is not None else None) or {}
