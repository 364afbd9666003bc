"""A world in which upgrades happen: fake drivers that commit epochs to a real log and publish rows to a real Delta table.

What an epoch writes says which code wrote it, so that the table shows who had the job when.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.control.worlds import START, FakeLauncher, Hook, Process, WatchedStore, World
from tidemark.control.desired.attempts import read_attempt
from tidemark.control.desired.spec_store import read_generation, require_spec
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.records import ProcessHandle
from tidemark.control.model.spec import JobSpec
from tidemark.control.upgrade.code_check import Maps
from tidemark.control.upgrade.upgrade_coordinator import Upgrading
from tidemark.control.upgrade.upgrade_request import UpgradeRequest, begin_upgrade
from tidemark.errors import EngineError, NotReachedError, TidemarkError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.restore_history import is_restore_due
from tidemark.savepoints.model.rewind_journal import require_no_rewind
from tidemark.savepoints.model.verdict import Verdict
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore
from tidemark.state.delta.delta_tags import EPOCH, LINEAGE
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, OutputRecord, StagedFile, StateFile
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

JOB = "fares"
OLD, NEW = "fares:job", "fares_v2:job"


class _WorkingClock(ManualClock):
    """Lets the drivers do what is due whenever somebody waits."""

    def __init__(self, world: World, now: int) -> None:
        super().__init__(now)
        self._world = world

    def sleep(self, seconds: float) -> None:
        self._world.tick(max(1, int(seconds)))


class UpgradeWorld(World):
    """Drivers of the job ``fares``; ``breaks_at`` is the epoch at which the new code fails.

    The table is a folder; the store is one with ``on_disk``, for commands and other processes to open it.
    """

    def __init__(self, folder: Path, *, now: int = START, breaks_at: int | None = None, on_disk: bool = False) -> None:
        super().__init__(store=JobStore.open(str(folder / "store")) if on_disk else None)
        self.folder = folder
        self.clock = _WorkingClock(self, now)
        self.breaks_at = breaks_at
        self._opened: DeltaTable | None = None

    @property
    def launchers(self) -> dict[str, Launcher]:
        return {"local": FakeLauncher(self, "host-a")}

    @property
    def table(self) -> Path:
        return self.folder / "hourly"

    def find(self, handle: ProcessHandle) -> Process:
        """Return a process; those of a world that died are gone."""
        found = [process for process in self.processes if process.pid == handle.pid and process.handle == handle]
        return found[0] if found else Process(handle.pid or 0, handle.host, JOB, 0, takeover=False, alive=False)

    def started(self, *, epochs: int = 4) -> UpgradeWorld:
        """Submit the job, and let it commit some epochs."""
        self.submit(JOB, code=OLD, trigger_ms=1000)
        reconciler = self.reconciler()
        reconciler.reconcile_all()
        for _ in range(epochs + 1):
            self.tick(1)
            reconciler.reconcile_all()
        return self

    def spec_of(self, process: Process) -> JobSpec:
        attempt = read_attempt(self.store, JOB, process.attempt)
        assert attempt is not None
        made_for = read_generation(self.store, JOB, attempt.generation)
        assert made_for is not None
        return made_for.spec

    def _step(self, process: Process) -> None:
        begins = process.term is None
        try:
            if begins:
                require_no_rewind(self.store.at(JOB), JOB)
            super()._step(process)
            if begins:
                self._begin(process, self.spec_of(process).restore)
        except TidemarkError as error:
            if type(error) is not EngineError:
                raise
            self.say(process, "failed", error)
            self._leave(process, 75)

    def _begin(self, process: Process, restore: Restore | None) -> None:
        assert process.term is not None
        if restore is not None and is_restore_due(self.store.at(JOB), process.term.last, restore):
            savepoint, record = prepare_restore(self.store, process.term, restore)
            begin_lineage(process.term, restore, savepoint, record)
        elif process.term.last is not None:
            self.publish(process.term.last)

    def commit(self, process: Process, *, end_of_input: bool = False) -> None:
        term = process.term
        assert term is not None
        last = term.last
        epoch = last.epoch + 1 if last is not None else 0
        code = self.spec_of(process).code
        if code == NEW and epoch == self.breaks_at:
            raise EngineError("the new code divides by nought", fix="mend it", job=JOB)
        lineage = last.lineage if last is not None else term.log.origin()
        path = f"state/hourly/{term.term}-{epoch}.parquet"
        term.log.store.put(path, b"x")
        uid, definition = self.operator_of(code)
        files = last.operators[uid].files if last is not None else ()
        output = OutputRecord("delta", str(self.table), "{}", (StagedFile("a.parquet", 1, 1),), 1, {"code": code})
        progress = EpochProgress(JOB, lineage, epoch, self.clock.now_ms(), 100, 10, 1, end_of_input=end_of_input)
        record = EpochRecord(
            JOB,
            lineage,
            last.parent if last is not None else None,
            term.term,
            epoch,
            self.clock.now_ms(),
            f'v2\n{{"batchWatermarkMs":0}}\ntrips:{{"logOffset":{epoch}}}',
            progress,
            operators={uid: OperatorState(definition, (*files, StateFile(path, 10, 1, 0, 0, epoch)), epoch)},
            outputs={"hourly": output},
            end_of_input=end_of_input,
            restored=last.restored if last is not None else None,
        )
        term.append(record)
        self.publish(record)
        self.say(process, "running", last=progress)

    def operator_of(self, _code: str) -> tuple[str, dict[str, object]]:
        """Return the uid and the definition of the operator that a code has."""
        return "hourly", {"keys": ["zone"]}

    def publish(self, record: EpochRecord) -> None:
        """Add an epoch's row, unless it is there."""
        output = record.outputs.get("hourly")
        if output is None or not output.files:
            return
        application = f"{record.lineage}/hourly"
        table = self.newest_table() if self.table.exists() else None
        version = None if table is None else table.transaction_version(application)
        if version is not None and version >= record.epoch:
            return
        properties = CommitProperties(
            custom_metadata={LINEAGE: record.lineage, EPOCH: str(record.epoch)},
            app_transactions=[Transaction(application, record.epoch)],
        )
        rows = pa.table({"epoch": [record.epoch], "code": [output.options["code"]]})
        write_deltalake(str(self.table) if table is None else table, rows, mode="append", commit_properties=properties)

    def newest_table(self) -> DeltaTable:
        """Return the table at its newest version; what was read of its log before is not read again."""
        if self._opened is None:
            self._opened = DeltaTable(str(self.table))
        else:
            self._opened.update_incremental()
        return self._opened

    def rows(self) -> list[tuple[int, str]]:
        """Return epoch and code of the table's rows, sorted."""
        found = self.newest_table().to_pyarrow_table().to_pylist()
        return sorted((row["epoch"], row["code"]) for row in found)

    def request(self, **fields: object) -> UpgradeRequest:
        return replace(UpgradeRequest(JOB, NEW, "2", within_ms=60_000), **fields)  # type: ignore[arg-type]

    def begin(self, **fields: object) -> None:
        begin_upgrade(self.store, self.request(**fields), launchers=self.launchers, by="ada", clock=self.clock, judge=fits)

    def upgrading(self, hook: Hook = lambda _: None) -> Upgrading:
        self.said: list[str] = []
        store = WatchedStore(self.store.location, self.store.objects, self.store.prefix, hook)
        return Upgrading(store, self.launchers, self.clock, by="ada", on_progress=self.said.append)

    def watched(self) -> Upgrading:
        """Begin an upgrade, and let it come to where the new code is watched; it stays there."""
        self.begin(good_epochs=10_000)
        upgrading = self.upgrading()
        with pytest.raises(NotReachedError):
            upgrading.resume(JOB, timeout_ms=5_000)
        return upgrading

    def savepoint_names(self) -> list[str]:
        """Return the names of all that is pinned, also of what is no savepoint of anybody's."""
        return list(SavepointStore(self.store, JOB, self.clock).pins.names())

    @property
    def spec(self) -> JobSpec:
        return require_spec(self.store, JOB).spec


def fits(_store: JobStore, spec: JobSpec, _maps: Maps, _against: str, _of: str) -> Verdict:
    """Say that the new code fits."""
    return Verdict(spec.job, "", 0, (), ())


def promote_in_process(folder: str) -> None:
    """Start the job, and upgrade it from an older savepoint; called in a process of its own, which is killed on the way."""
    world = UpgradeWorld(Path(folder), on_disk=True).started()
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    world.begin(back_to="base")
    world.upgrading().resume(JOB, timeout_ms=600_000)


def upgrade_in_process(folder: str, breaks_at: str) -> None:
    """Start the job and upgrade it; called in a process of its own, which is killed on the way."""
    world = UpgradeWorld(Path(folder), breaks_at=int(breaks_at) if breaks_at else None, on_disk=True).started()
    world.begin()
    world.upgrading().resume(JOB, timeout_ms=600_000)
