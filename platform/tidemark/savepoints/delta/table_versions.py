"""Which version of a Delta table shows an epoch and nothing later, by the tags of the table's commits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.locations import Location
from tidemark.savepoints.delta.delta_log_damage import require_no_empty_entry, unreadable
from tidemark.savepoints.delta.table_entries import Entry, read_entry
from tidemark.savepoints.delta.version_search import version_of
from tidemark.savepoints.model.savepoint import Savepoint, TableVersion
from tidemark.state.delta.delta_tags import COLUMNS_FOR, EPOCH, JOB, LINEAGE, MAINTENANCE, REPUBLISHED
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord, OutputRecord
from tidemark.state.store.store import JobStore

_DAY_MS: Final = 24 * 60 * 60 * 1000
_KEPT: Final = {"delta.logRetentionDuration": 30 * _DAY_MS, "delta.deletedFileRetentionDuration": 7 * _DAY_MS}
"""Settings for how long an older version can be read, with Delta's defaults."""

_UNITS: Final = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": _DAY_MS, "week": 7 * _DAY_MS}
_INTERVAL: Final = re.compile(r"(?:interval\s+)?(\d+)\s*([a-z]+?)s?", re.IGNORECASE)
_BATCHES: Final = (1, 8, 32)
_THREADS: Final = 16


@dataclass(frozen=True)
class Commit:
    """A version of a table, by its entry in the table's log."""

    entry: Entry

    @property
    def version(self) -> int:
        """The table's version."""
        return self.entry.version

    @property
    def at(self) -> int | None:
        """When it was made, in milliseconds; None if the entry does not say."""
        return self.entry.at

    @property
    def operation(self) -> str:
        """Its operation, as its writer calls it."""
        return self.entry.operation

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags that Tidemark gave it."""
        return self.entry.tags

    @property
    def restores(self) -> bool:
        """Whether it is a RESTORE, by any writer."""
        return self.entry.restores

    @property
    def target(self) -> int | None:
        """The version that it restores, None if it is no RESTORE, or names a time."""
        return self.entry.restored_version if self.restores else None

    @property
    def restored(self) -> int | None:
        """The version that another writer restored by it, None if it is no RESTORE of another writer's, or names a time."""
        return self.target if self.entry.foreign else None

    @property
    def empties(self) -> bool:
        """Whether another writer removed all rows by it."""
        return self.entry.foreign and self.entry.replaces_all

    @property
    def lineage(self) -> str | None:
        """The lineage whose epoch it shows, None for a commit that shows none."""
        return self.tags.get(LINEAGE)

    @property
    def prepares(self) -> tuple[str, int] | None:
        """Lineage and epoch of the rows for which it adds columns to the table, None for a commit that adds none."""
        lineage, _, epoch = self.tags.get(COLUMNS_FOR, "").partition("/")
        return (lineage, int(epoch)) if epoch else None

    @property
    def epoch(self) -> tuple[str, int] | None:
        """Lineage and epoch that it shows or prepares; an epoch that it does not state is -1."""
        shown = None if self.lineage is None else (self.lineage, int(self.tags.get(EPOCH, "-1")))
        return shown or self.prepares

    @property
    def foreign(self) -> bool:
        """Whether another writer made it."""
        return LINEAGE not in self.tags and MAINTENANCE not in self.tags

    @property
    def disorders(self) -> bool:
        """Whether the epochs that it shows may differ from those before it in the log, or in their order."""
        return self.empties or REPUBLISHED in self.tags or (self.restores and self.foreign)

    def keeps(self, version: int) -> bool:
        """Whether it is another writer's RESTORE that kept a version's rows: reverting to that version undoes no change of theirs."""
        return self.restored is not None and self.restored >= version

    def of_other(self, job: str) -> bool:
        """Whether it has rows of another job's."""
        return MAINTENANCE not in self.tags and self.tags.get(JOB, job) != job


def open_table(output: str, location: str) -> DeltaTable | None:
    """Return a table at its newest version, None if there is none yet.

    Raises:
        SinkError: it cannot be read.
        StoreError: its log cannot be listed.
    """
    try:
        table = DeltaTable(Location.parse(location).uri)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        fix = "repair the table, or check its place and the credentials in the environment"
        raise unreadable(output, location, error, fix=fix) from without_secrets(error)
    require_no_empty_entry(output, location)
    return table


def commits_back(location: str, newest: int) -> Iterator[Commit]:
    """Yield a table's commits from a version back, as far as its log goes; read lazily, several at a time.

    Raises:
        SinkError: an entry is damaged, or has no content.
    """
    table = JobStore.open(location)
    upper, round_ = newest, 0
    with ThreadPoolExecutor(_THREADS) as threads:
        while upper >= 0:
            count = _BATCHES[min(round_, len(_BATCHES) - 1)]
            versions = range(upper, max(-1, upper - count), -1)
            for entry in threads.map(lambda version: read_entry(table, version), versions):
                if entry is None:
                    return
                yield Commit(entry)
            upper, round_ = versions[-1] - 1, round_ + 1


def table_versions(record: EpochRecord, later: LaterLineages, *, now_ms: int, only: str | None = None) -> dict[str, TableVersion]:
    """Return the versions of an epoch's tables, by output; omits tables that do not show the epoch yet, or no longer.

    Args:
        record: of the epoch.
        later: lineages of the job that came after that epoch.
        now_ms: the time.
        only: the only output to return; all of them by default.

    Raises:
        SinkError: a table cannot be read.
    """
    found = {}
    for name, output in record.outputs.items():
        if output.sink == "delta" and output.location is not None and only in (None, name):
            version = _version(name, output.location, record, later, staged=bool(output.files), now_ms=now_ms)
            if version is not None:
                found[name] = version
    return found


def savepoint_versions(
    savepoint: Savepoint, outputs: Mapping[str, OutputRecord], later: LaterLineages, *, now_ms: int
) -> dict[str, TableVersion]:
    """Return the versions of tables at a savepoint: as recorded when it was taken, or else as found in the tables' logs.

    Args:
        savepoint: the job's.
        outputs: as the job has them now.
        later: lineages of the job that came after the savepoint's epoch.
        now_ms: the time.

    Raises:
        SinkError: a table cannot be read.
    """
    stored, noted = savepoint.record, savepoint.info.tables
    unknown = {
        name: _as_of(stored.outputs.get(name), output)
        for name, output in outputs.items()
        if output.sink == "delta" and name not in noted and output.location
    }
    return {**table_versions(replace(stored, outputs=unknown), later, now_ms=now_ms), **noted}


def _as_of(stored: OutputRecord | None, now: OutputRecord) -> OutputRecord:
    """Return an output as of an older epoch; one that was no table of the job's then had no rows."""
    return stored if stored is not None and stored.sink == "delta" and stored.location else replace(now, files=())


def shows(table: DeltaTable, output: str, record: EpochRecord) -> bool:
    """Return whether an epoch was published to the table of an output, by its transaction; true for one without rows for it."""
    if output not in record.outputs or not record.outputs[output].files:
        return True
    done = table.transaction_version(f"{record.lineage}/{output}")
    return done is not None and done >= record.epoch


def _version(name: str, location: str, record: EpochRecord, later: LaterLineages, *, staged: bool, now_ms: int) -> TableVersion | None:
    table = open_table(name, location)
    if table is None:
        return None
    version, follower = table.version(), None
    shown: Commit | None = None
    # At that version the job checked, before it committed the epoch, that the table was complete.
    looked = _as_checked(record.outputs[name])
    before = {record.lineage, record.parent.lineage if record.parent is not None else None}
    for commit in commits_back(location, version):
        if commit.disorders:
            return _searched(table, name, location, record, later, staged=staged, now_ms=now_ms)
        if shown is not None and (looked is None or commit.version <= looked):
            break
        if shown is not None or commit.epoch is None or commit.of_other(record.job):
            continue
        lineage, epoch = commit.epoch
        if lineage in later.names or (lineage == record.lineage and epoch > record.epoch):
            version, follower = commit.version - 1, commit
        elif not later.all and lineage not in before:
            # It may be of a lineage that came later and was retired.
            return None
        elif commit.prepares is None:
            shown = commit
    # Committed and not published yet: the driver is about to publish it, or the next one will.
    if version < 0 or (staged and not _shows(shown, record)):
        return None
    return _table_version(table, location, version, follower, now_ms)


def _as_checked(output: OutputRecord) -> int | None:
    return output.before.version if output.before is not None else None


def _searched(
    table: DeltaTable, name: str, location: str, record: EpochRecord, later: LaterLineages, *, staged: bool, now_ms: int
) -> TableVersion | None:
    """Do as ``_version``, but read the table's log as far back as it goes."""
    commits = {commit.version: commit for commit in commits_back(location, table.version())}
    version = version_of(commits.values(), record, name, later, staged=staged)
    return None if version is None else _table_version(table, location, version, commits.get(version + 1), now_ms)


def _table_version(table: DeltaTable, location: str, version: int, follower: Commit | None, now_ms: int) -> TableVersion:
    since = now_ms if follower is None or follower.at is None else follower.at
    metadata = table.metadata()
    return TableVersion(location, version, since + retention_ms(metadata.configuration), str(metadata.id))


def _shows(commit: Commit | None, record: EpochRecord) -> bool:
    return commit is not None and commit.lineage == record.lineage and commit.tags.get(EPOCH) == str(record.epoch)


def retention_ms(configuration: Mapping[str, str | None]) -> int:
    """Return for how long (milliseconds) a table's settings keep the files and log entries of an older version."""
    return min(_interval_ms(configuration.get(key), default) for key, default in _KEPT.items())


def _interval_ms(text: str | None, default: int) -> int:
    found = _INTERVAL.fullmatch(text.strip()) if text else None
    unit = _UNITS.get(found[2].lower()) if found else None
    return default if found is None or unit is None else int(found[1]) * unit
