"""Which versions of a table a job's savepoints need: maintenance that deletes old versions leaves these.

Most savepoints recorded their versions when they were taken. One that was taken between the commit of an epoch and its publication could
not; its versions are read from the table's log, as a rewind to it would do.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from deltalake import DeltaTable

from tidemark.errors import SinkError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.delta.table_versions import open_table, shows, table_versions
from tidemark.savepoints.model.savepoint import Savepoint, TableVersion
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

RECHECK_MS: Final = 6 * 60 * 60 * 1000
"""How long a version that was found in the table's log is assumed to be still there."""

_ENTRY: Final = re.compile(r"(\d{20})\.(json|checkpoint\..+)")


@dataclass(frozen=True)
class ProtectedVersions:
    """What a job's savepoints need of a table.

    Args:
        versions: those that have to stay readable; None while one is not known yet: nothing may be deleted then.
        lost: savepoints that name a version which the table no longer has, and why, in words.
    """

    versions: frozenset[int] | None
    lost: tuple[str, ...] = ()


class ProtectedVersionsSearch:
    """Finds out what savepoints need of tables, and caches what does not change.

    Args:
        savepoints: the job's.
    """

    def __init__(self, savepoints: SavepointStore) -> None:
        self._savepoints = savepoints
        self._found_versions: dict[tuple[str, int, str], TableVersion | None] = {}
        self._seen: dict[tuple[str, str, int], int] = {}

    def of(self, location: str, savepoints: Sequence[Savepoint], head: EpochRecord) -> ProtectedVersions:
        """Return what savepoints need of a table.

        Args:
            location: the table's.
            savepoints: the job's, listed before the head was read.
            head: the job's newest epoch.

        Raises:
            SinkError: the table cannot be read.
            StoreError: its log cannot be listed.
        """
        table = open_table("", location)
        if table is None:
            return ProtectedVersions(frozenset())
        wanted: list[tuple[str, TableVersion]] = []
        awaited = False
        for savepoint in savepoints:
            noted = savepoint.info.tables
            wanted += [(savepoint.name, version) for version in noted.values() if version.location == location]
            for name, output in savepoint.record.outputs.items():
                if output.sink == "delta" and output.location == location and name not in noted:
                    found = self._version_from_table(table, name, savepoint, head)
                    if found is not None:
                        wanted.append((savepoint.name, found))
                    elif _is_of(savepoint, head) and not shows(table, name, head):
                        awaited = True
        gone = dict(self._missing(location, {version for _, version in wanted}))
        lost = tuple(f"{name!r} (version {version.version}: {gone[version]})" for name, version in wanted if version in gone)
        there = frozenset(version.version for _, version in wanted if version not in gone)
        return ProtectedVersions(None if awaited else there, lost)

    def _version_from_table(self, table: DeltaTable, output: str, savepoint: Savepoint, head: EpochRecord) -> TableVersion | None:
        """Return the version in a table's log for a savepoint that recorded none; None where a rewind to it would find none either."""
        key = savepoint.name, savepoint.taken_at, output
        if key in self._found_versions:
            return self._found_versions[key]
        record = savepoint.record
        later, now = self._savepoints.lineages_after(record), self._savepoints.clock.now_ms()
        found = table_versions(record, later, now_ms=now, only=output).get(output)
        # While no commit shows what came after it, maintenance may move it to a later version.
        if not _is_of(savepoint, head) and (found is None or found.version < table.version()):
            self._found_versions[key] = found
        return found

    def _missing(self, location: str, wanted: set[TableVersion]) -> Iterator[tuple[TableVersion, str]]:
        """Yield the versions that the table does not have now, and why."""
        table = open_table("", location) if wanted else None
        if table is None:
            return
        identity, newest, now = str(table.metadata().id), table.version(), self._savepoints.clock.now_ms()
        entries: _Entries | None = None
        for version in sorted(wanted, key=lambda version: version.version):
            key = location, identity, version.version
            if version.table is not None and version.table != identity:
                yield version, "of a table that was recreated since"
            elif version.version > newest:
                yield version, f"the table is at version {newest}: it was recreated"
            elif not 0 <= now - self._seen.get(key, now - RECHECK_MS) < RECHECK_MS:
                entries = entries or _entries(location)
                if entries.lead_to(version.version):
                    self._seen[key] = now
                else:
                    yield version, "the table's log was cleaned up"


def lost_error(job: str, lost: Sequence[str]) -> SinkError:
    """Return the error that tables no longer have the versions that savepoints need."""
    return SinkError(
        f"tables no longer have versions that savepoints of the job need: {'; '.join(lost)}",
        fix=f"dispose of these savepoints (`tidemark savepoint dispose {job} NAME`), unless their state, which can still be restored, is "
        "wanted without the tables; versions that other savepoints need are kept",
        job=job,
    )


def _is_of(savepoint: Savepoint, head: EpochRecord) -> bool:
    return (savepoint.record.lineage, savepoint.record.epoch) == (head.lineage, head.epoch)


@dataclass(frozen=True)
class _Entries:
    """What a table's log still has: its commits, and the versions that have a checkpoint, sorted."""

    commits: frozenset[int]
    checkpoints: tuple[int, ...]

    def lead_to(self, version: int) -> bool:
        """Return whether a version can be read: all commits since a checkpoint, or since the beginning, are there."""
        at = bisect_right(self.checkpoints, version)
        first = self.checkpoints[at - 1] + 1 if at else 0
        return all(number in self.commits for number in range(first, version + 1))


def _entries(location: str) -> _Entries:
    found = [match for file in JobStore.open(location).at("_delta_log").list() if (match := _ENTRY.fullmatch(file.path))]
    commits = frozenset(int(match[1]) for match in found if match[2] == "json")
    return _Entries(commits, tuple(sorted({int(match[1]) for match in found if match[2] != "json"})))
