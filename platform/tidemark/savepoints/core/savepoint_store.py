"""The savepoints of a job: taken, listed, compared, disposed of. Small files only, of a running job or a stopped one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import InvalidNameError, SavepointInUseError, SinkError, TakenNameError, UnknownSavepointError
from tidemark.names import validate_name
from tidemark.savepoints.core.differences import SavepointDifference, difference
from tidemark.savepoints.core.disposals import announced_disposals, is_disposal, remove_abandoned_disposals
from tidemark.savepoints.core.expiry import Restorable
from tidemark.savepoints.core.restorable import Restorability
from tidemark.savepoints.core.retention import SavepointRetention, plan_disposal
from tidemark.savepoints.delta.table_versions import table_versions
from tidemark.savepoints.model.rewind_journal import how_to_end, read_rewind
from tidemark.savepoints.model.savepoint import Kind, Savepoint, SavepointInfo, TableVersion, info_of, savepoint_of
from tidemark.savepoints.model.upgrade_lock import read_upgrade_lock
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.gc.file_references import FileReference, FileReferences
from tidemark.state.gc.pins import LaterLineages, Pins, RetainedEpoch
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import job_folder, pin_path
from tidemark.state.store.store import JobStore

_TRIES: Final = 100
_POLLS: Final = 10
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class SavepointStore:
    """The savepoints of one job.

    Args:
        store: the root store.
        job: the job's name.
        clock: the time.
    """

    store: JobStore
    job: str
    clock: Clock = SYSTEM_CLOCK

    @cached_property
    def folder(self) -> JobStore:
        """The store at the job's folder."""
        return self.store.at(job_folder(self.job))

    @cached_property
    def pins(self) -> Pins:
        """The pins that the savepoints are."""
        return Pins(JobLog(self.folder, self.job, self.clock))

    def take(
        self,
        name: str | None = None,
        *,
        epoch: int | None = None,
        lineage: str | None = None,
        kind: Kind = "manual",
        by: str = "",
        note: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Savepoint:
        """Take a savepoint; once this returns, everything that it needs is kept until it is disposed of.

        Args:
            name: its name; by default ``sp-<epoch>-<time>``.
            epoch: a retained epoch; the newest by default.
            lineage: of the epoch; the newest that has it by default.
            kind: what it is taken for.
            by: the user who takes it.
            note: what for, in words.
            labels: free key-value pairs.

        Raises:
            InvalidNameError: the name is not allowed, or is taken.
            DefinitionError: a text holds a secret.
            CorruptStoreError: the epoch is not retained, or the job has none yet.
        """
        pairs = [f"{key}={value}" for key, value in (labels or {}).items()]
        given = {f"label {number}": text for number, text in enumerate(pairs, start=1)}
        require_no_secret(self.job, by=by, note=note, **given)
        if name is not None:
            require_name(name, self.job)
        found = self.pins.find(epoch, lineage=lineage)
        info = replace(info_of(found.record), kind=kind, by=by, note=note, labels=dict(labels or {}), tables=self._tables(found))
        if name is not None:
            return savepoint_of(self.job, self.pins.pin(name, found, about=to_jsonable(info)))
        return self._take_unnamed(found, info)

    def require_free(self, name: str) -> None:
        """Check a name before work that ends with a savepoint of that name.

        Raises:
            InvalidNameError: it is not allowed, or is taken.
        """
        require_name(name, self.job)
        if name in self.pins.names():
            raise TakenNameError(
                f"there is a savepoint {name!r} already, and nothing was done", fix="choose another name, or leave it out", job=self.job
            )

    def get(self, name: str) -> Savepoint:
        """Return a savepoint.

        Raises:
            UnknownSavepointError: there is none of that name.
            CorruptStoreError: it is damaged.
        """
        if not self.folder.exists(pin_path(name)):
            known = ", ".join(self.pins.names()) or "none"
            raise UnknownSavepointError(
                f"job {self.job!r} has no savepoint {name!r}",
                fix=f"name an existing one ({known}), or take one: `tidemark savepoint trigger {self.job}`",
                job=self.job,
            )
        return savepoint_of(self.job, self.pins.get(name))

    def list(self) -> tuple[Savepoint, ...]:
        """Return all savepoints, oldest first, without the pins of a rewind that is under way.

        Raises:
            CorruptStoreError: one is damaged.
        """
        found, rewind = self.all_protected(), read_rewind(self.folder)
        return tuple(savepoint for savepoint in found if rewind is None or savepoint.name != rewind.pin)

    def newest_files(self, limit: int) -> tuple[tuple[tuple[str, int], ...], int]:
        """Return name and time of writing (milliseconds) of the newest savepoints' files, newest first, and how many there are in all.

        Opens none of them; the pins of a rewind that is under way are left out.
        """
        files, rewind = self.pins.files(), read_rewind(self.folder)
        written = [(name, at) for name, at in files.items() if rewind is None or name != rewind.pin]
        return tuple(sorted(written, key=lambda item: (item[1], item[0]), reverse=True)[:limit]), len(written)

    def newest(self, limit: int) -> tuple[tuple[Savepoint, ...], int]:
        """Return the newest savepoints, oldest first, and how many there are in all; reads only these.

        Raises:
            CorruptStoreError: one is damaged.
        """
        files, in_all = self.newest_files(limit)
        found = []
        for name, _ in files:
            with suppress(UnknownSavepointError):  # disposed of just now
                found.append(self.get(name))
        return tuple(sorted(found, key=lambda savepoint: (savepoint.taken_at, savepoint.name))), in_all

    def all_protected(self) -> tuple[Savepoint, ...]:
        """Return all savepoints whose files and table versions must be kept, oldest first, with the pins of a rewind that is under way.

        Raises:
            CorruptStoreError: one is damaged.
        """
        found = (savepoint_of(self.job, pin) for pin in self.pins.list())
        return tuple(sorted(found, key=lambda savepoint: (savepoint.taken_at, savepoint.name)))

    def lineages_after(self, record: EpochRecord) -> LaterLineages:
        """Return the lineages that came after an epoch; also the one that an unfinished rewind is going to begin."""
        # In this order: the journal is deleted once its lineage is in the log.
        journal, later = read_rewind(self.folder), self.pins.lineages_after(record)
        begins = {journal.lineage} - {record.lineage} if journal is not None else set()
        return replace(later, names=later.names | begins)

    def records_after(self, record: EpochRecord) -> Iterator[EpochRecord]:
        """Yield the job's epochs that came after one, newest first, as far as they are retained or savepoints."""
        names = self.lineages_after(record).names
        for each in (*self.pins.log.epochs(), *(savepoint.record for savepoint in reversed(self.list()))):
            if each.lineage in names or (each.lineage == record.lineage and each.epoch > record.epoch):
                yield each

    def restorable(self, *savepoints: Savepoint) -> tuple[Restorable, ...]:
        """Return until when the job can be rewound to some of its savepoints, and what that follows from.

        Inspects the files and tables that the job reads; anything that cannot be inspected is reported as unknown.
        """
        found = self.restorability()
        return tuple(found.of(savepoint) for savepoint in savepoints)

    def restorability(self) -> Restorability:
        """Return an inspector for one savepoint after the other, as of now, that inspects nothing twice."""
        return Restorability(self.store, self.job, now_ms=self.clock.now_ms())

    def file_references(self, name: str) -> tuple[FileReference, ...]:
        """Return the file references to a savepoint, held by the jobs that were restored from it and still read its files."""
        references = FileReferences(self.folder).list()
        return tuple(reference for reference in references if reference.savepoint == name and not is_disposal(reference))

    def dispose(self, name: str) -> Savepoint:
        """Dispose of a savepoint and return it. A later sweep deletes the files that only it kept; files that other jobs read stay.

        Raises:
            UnknownSavepointError: there is none of that name.
            SavepointInUseError: a rewind to it, or an upgrade that may go back to it, is under way.
            LinkedPathError: it lies behind a symbolic link.
        """
        savepoint = self.get(name)
        in_use = self._in_use().get(name)
        if in_use is not None:
            raise in_use
        self.folder.require_no_link(pin_path(name))
        self.pins.remove(name)
        return savepoint

    def retire(self, retention: SavepointRetention | None = None) -> tuple[Savepoint, ...]:
        """Dispose of the savepoints that retention expires, and return them; those that lie behind symbolic links are left.

        Raises:
            CorruptStoreError: a savepoint or a file reference is damaged; nothing was disposed of.
        """
        savepoints, now = self.all_protected(), self.clock.now_ms()
        planned = plan_disposal(savepoints, retention or SavepointRetention(), used=self._used(), now_ms=now)
        if not planned:
            return ()
        remove_abandoned_disposals(self.folder, now_ms=now)
        with announced_disposals(self.folder, self.job, [savepoint.name for savepoint in planned], clock=self.clock):
            used = self._used()
            return tuple(each for each in planned if each.name not in used and self.pins.remove(each.name))

    def diff(self, name: str, other: str) -> SavepointDifference:
        """Return what changed from one savepoint to another.

        Raises:
            UnknownSavepointError: there is none of one of the names.
        """
        return difference(self.get(name), self.get(other))

    def _used(self) -> frozenset[str]:
        """Return the savepoints that retention leaves: those in use, and those with file references."""
        references = FileReferences(self.folder).list()
        return frozenset((*self._in_use(), *(each.savepoint for each in references if not is_disposal(each))))

    def _in_use(self) -> Mapping[str, SavepointInUseError]:
        """Return the savepoints that an unfinished rewind or upgrade needs, with the error that says so, by name."""
        found, rewind, upgrade = {}, read_rewind(self.folder), read_upgrade_lock(self.folder)
        for name in upgrade.savepoints if upgrade is not None else ():
            what = f"an upgrade that may go back to savepoint {name!r} is under way"
            found[name] = SavepointInUseError(what, fix=f"finish it first: `tidemark upgrade {self.job}`", job=self.job)
        if rewind is not None:
            what, fix = f"a rewind to savepoint {rewind.savepoint!r} is under way", how_to_end(self.folder, self.job, rewind)
            found |= {name: SavepointInUseError(what, fix=fix, job=self.job) for name in (rewind.savepoint, rewind.pin)}
        return found

    def _tables(self, found: RetainedEpoch) -> Mapping[str, TableVersion]:
        """Return the versions of an epoch's tables; waits a moment for one that a driver is about to publish."""
        record = found.record
        staged = {name for name, output in record.outputs.items() if output.sink == "delta" and output.files}
        later, polls = self.lineages_after(record), 0
        try:
            while True:
                tables, polls = table_versions(record, later, now_ms=self.clock.now_ms()), polls + 1
                before, later = later, self.lineages_after(record)
                if later != before:
                    # A rewind that was begun since may have reverted some of the tables.
                    continue
                if staged <= set(tables) or polls == _POLLS or not self.pins.log.is_driven():
                    return tables
                self.clock.sleep(_POLL_SECONDS)
        except SinkError:
            # A savepoint needs its state above all; a rewind looks for the version again, and reports what is wrong.
            return {}

    def _take_unnamed(self, found: RetainedEpoch, info: SavepointInfo) -> Savepoint:
        stamp = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        first = f"sp-{found.record.epoch}-{stamp:%Y%m%dT%H%M%SZ}"
        for number in range(1, _TRIES):
            try:
                return savepoint_of(self.job, self.pins.pin(first if number == 1 else f"{first}-{number}", found, about=to_jsonable(info)))
            except InvalidNameError:
                continue
        raise InvalidNameError(f"{_TRIES} savepoints {first!r} were taken in one second", fix="give a name", job=self.job)


def require_name(name: str, job: str) -> str:
    """Return a savepoint's name if it may be used for a new one.

    Raises:
        InvalidNameError: it is not allowed.
        DefinitionError: it looks like a secret.
    """
    require_no_secret(job, name=name)
    return validate_name("savepoint", name)
