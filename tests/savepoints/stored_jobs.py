"""Jobs that exist only as files of a job store in memory: epochs are committed by hand, with state files of one byte each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from obstore.store import MemoryStore

from tidemark.locations import Location
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.exporting import export_savepoint
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.savepoints.model.restore import Mode, Restore, RestoreTargets
from tidemark.savepoints.restore.restore_history_retention import expire_restore_history
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore
from tidemark.savepoints.restore.shared_files import release_unused
from tidemark.semantics.watermarks.watermarks import SourceState, SplitState
from tidemark.spark.sinks.local_sinks import ConsoleSink
from tidemark.spark.sinks.sink_sweep import sweep_outputs
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.gc.retention import retire
from tidemark.state.gc.sweep import SweepReport, kept_epochs, sweep
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress, OperatorProgress, OutputProgress, SourceProgress
from tidemark.state.log.records import EpochRecord, OperatorState, OutputRecord, SourceLogFile, SourceLogRef, StagedFile, StateFile
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

LEASE = 30_000
ROWS = "rows"
"""The output whose rows are staged; nothing publishes them."""
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of no bytes."""


def store_in_memory() -> JobStore:
    """Return the root of an empty store."""
    return JobStore(Location.parse(str(Path.cwd())), MemoryStore()).at("jobs")


def clock_ahead() -> ManualClock:
    """Return a clock far ahead of the one that dates files, so that they count as old."""
    return ManualClock(4_000_000_000_000)


@dataclass
class StoredJob:
    """A job, and the driver that has it."""

    root: JobStore
    name: str = "taxi"
    clock: ManualClock = field(default_factory=clock_ahead)
    uids: tuple[str, ...] = ("hourly",)
    outputs: dict[str, OutputRecord] = field(default_factory=dict)
    number: int = 0
    counted: bool = False
    """Whether the rows of outputs are counted, as a driver does it."""

    def __post_init__(self) -> None:
        self.log = JobLog(self.root.at(self.name), self.name, self.clock)
        self.driver: Driver = self.log.acquire(current_owner(), takeover=True)

    @property
    def folder(self) -> JobStore:
        return self.log.store

    @property
    def sink(self) -> ConsoleSink:
        return ConsoleSink(ROWS, 0, self.folder)

    @property
    def savepoints(self) -> SavepointStore:
        return SavepointStore(self.root, self.name, self.clock)

    def restart(self) -> None:
        self.driver = self.log.acquire(current_owner(), takeover=True)

    def stage(self, uid: str, epoch: int) -> StateFile:
        self.number += 1
        path = f"state/{uid}/{self.name}-{self.driver.term}-{self.number:06d}.parquet"
        self.folder.put(path, b"x")
        return StateFile(path, 10, 1, 0, 0, epoch)

    def stage_rows(self) -> OutputRecord:
        """Stage rows of the next epoch, as an attempt at it does."""
        last = self.driver.last
        epoch, lineage = (0, self.log.origin()) if last is None else (last.epoch + 1, last.lineage)
        path = f"{self.sink.staging_folder(new_staging(lineage, epoch))}/part-00000.parquet"
        self.folder.put(path, b"x")
        return OutputRecord(self.sink.kind, None, files=(StagedFile(path, 1, 1),), rows=1)

    def commit(self, added: int = 1, dropped: int = 0, *, rows: OutputRecord | None = None) -> EpochRecord:
        """Commit an epoch in which each operator adds files and drops its oldest ones, and with staged rows, if any are given."""
        last = self.driver.last
        epoch = 0 if last is None else last.epoch + 1
        lineage = self.log.origin() if last is None else last.lineage
        operators = {}
        for uid in self.uids:
            live = last.operators[uid].files if last is not None and uid in last.operators else ()
            operators[uid] = OperatorState({"keys": ["zone"]}, live[dropped:] + tuple(self.stage(uid, epoch) for _ in range(added)), epoch)
        self.number += 1
        log_file = f"sources/trips/{self.driver.term}-{self.number}"
        self.folder.put(log_file, b"")
        progress = EpochProgress(
            self.name,
            lineage,
            epoch,
            epoch,
            250,
            10,
            3,
            sources={"trips": SourceProgress(10, 9, 1, 5_000, 1_000, None)},
            operators={uid: OperatorProgress(9, 8, 1, 5_000, 2, 1, 10, 1, 1) for uid in self.uids},
            outputs={name: OutputProgress(item.rows, len(item.files), 1, item.sink) for name, item in self.outputs.items() if self.counted},
        )
        record = EpochRecord(
            self.name,
            lineage,
            last.parent if last is not None else None,
            self.driver.term,
            epoch,
            epoch,
            f'v2\n{{"batchWatermarkMs":0}}\ntrips:{{"logOffset":{epoch}}}\nzones:-',
            progress,
            source_logs={"trips": SourceLogRef((SourceLogFile(str(epoch), log_file, 0, EMPTY),))},
            sources={"trips": SourceState({"p0": SplitState(5_000, 6_000, 1_700_000_000_000, rows=9)}, 5_000)},
            operators=operators,
            outputs=self.outputs if rows is None else {ROWS: rows},
            totals=add_epoch(last.totals if last is not None else empty_totals(), progress),
            code_version="c0ffee",
            restored=last.restored if last is not None else None,
            topics={"trips": {"fares": "c/1"}},
        )
        self.driver.append(record)
        return record

    def restore(self, restore: Restore, *, targets: RestoreTargets | None = None) -> EpochRecord:
        savepoint, record = prepare_restore(self.root, self.driver, restore, targets=targets)
        return begin_lineage(self.driver, restore, savepoint, record)

    def keep_house(self, *, retained: int = 100) -> SweepReport:
        """Retire old epochs, settle loans, sweep: as a driver does between epochs."""
        retire(self.driver, retained_epochs=retained)
        kept = kept_epochs(self.log)
        release_unused(self.driver, kept)
        expire_restore_history(self.driver, kept)
        lineage = self.log.origin() if self.driver.last is None else self.driver.last.lineage
        sweep_outputs(self.driver, {ROWS: BoundSink(ROWS, self.sink)}, lineage, lease_ms=LEASE, kept=kept)
        return sweep(self.driver, lease_ms=LEASE, kept=kept)

    def sweep_thoroughly(self, *, retained: int = 100) -> None:
        for _ in range(2):
            self.clock.advance(LEASE + 1)
            self.keep_house(retained=retained)

    def staged_files(self) -> set[str]:
        return {file.path for file in self.folder.list("staging")}

    def state_files(self) -> set[str]:
        return {file.path for file in self.folder.list("state")}


def live_files(record: EpochRecord) -> set[tuple[str, str]]:
    """Return the state files of a record, as (owner, path)."""
    return {(file.owner, file.path) for state in record.operators.values() for file in state.files}


def on_disk(folder: str, name: str = "taxi") -> StoredJob:
    """Return a job in a store on disk; begins a term."""
    return StoredJob(JobStore.open(f"{folder}/store"), name)


def restore_in_process(folder: str, into: str, mode: Mode) -> None:
    """Restore a job from ``taxi``'s savepoint ``a``; called in a process of its own, which is killed on the way."""
    on_disk(folder, into).restore(Restore("a", job="taxi", mode=mode, identity="once"))


def take_in_process(folder: str) -> None:
    """Take a savepoint in a process of its own."""
    SavepointStore(JobStore.open(f"{folder}/store"), "taxi", clock_ahead()).take("b")


def export_in_process(folder: str) -> None:
    """Export the savepoint in a process of its own."""
    savepoints = SavepointStore(JobStore.open(f"{folder}/store"), "taxi", clock_ahead())
    export_savepoint(savepoints.folder, savepoints.get("a"), f"{folder}/export")


def import_in_process(folder: str) -> None:
    """Import the export in a process of its own."""
    import_savepoint(SavepointStore(JobStore.open(f"{folder}/store"), "other", clock_ahead()), f"{folder}/export")
