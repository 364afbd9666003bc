"""Whatever is done to tables whose settings give everything up at once, a savepoint that a job can be put back to stays one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.savepoints.delta_jobs import TABLES, job_with_tables, maintain, rows, run_epoch
from tests.savepoints.stored_jobs import StoredJob
from tidemark.clock import SYSTEM_CLOCK
from tidemark.savepoints.api.maintenance import vacuum_tables
from tidemark.savepoints.core.protected_versions import ProtectedVersionsSearch
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind
from tidemark.spark.sinks.delta.delta_maintenance import Maintenance
from tidemark.spark.sinks.delta.delta_rewrite import SparkRewriter
from tidemark.state.store.store import JobStore

GIVEN_UP_AT_ONCE = {
    "delta.logRetentionDuration": "interval 0 seconds",
    "delta.deletedFileRetentionDuration": "interval 0 seconds",
    "delta.checkpointInterval": "3",
}
STEPS = ("epoch", "epoch", "epoch", "merge", "save", "dispose", "vacuum", "driver", "rewind")


class Tables:
    """A job with two tables; it knows what each savepoint's tables showed when it was taken."""

    def __init__(self, folder: Path) -> None:
        for name in TABLES:
            DeltaTable.create(str(folder / name), pa.schema([("epoch", pa.int64())]), configuration=dict(GIVEN_UP_AT_ONCE))
        self.folder = folder
        self.job: StoredJob = job_with_tables(folder)
        self.shown: dict[str, list[int]] = {}
        run_epoch(self.job)

    def step(self, what: str) -> None:
        """Do something that may happen to a job."""
        match what:
            case "epoch":
                run_epoch(self.job)
            case "merge":
                for name in TABLES:
                    maintain(str(self.folder / name))
            case "save":
                name = f"s{len(self.shown)}"
                self.job.savepoints.take(name)
                self.shown[name] = rows(self.folder / "hourly")
            case "dispose":
                self.dispose(next(iter(self.shown), None))
            case "vacuum":
                vacuum_tables(self.job.root, "taxi", clock=self.job.clock)
            case "driver":
                self.upkeep()
            case "rewind":
                self.rewind(next(iter(self.shown), None))

    def dispose(self, name: str | None) -> None:
        """Dispose of a savepoint, if it is still there."""
        if name in self.job.savepoints.pins.names():
            self.job.savepoints.dispose(name)

    def upkeep(self) -> None:
        """Look after the tables as a driver that has just begun to publish."""
        head = self.job.log.load().epoch
        assert head is not None
        for name in TABLES:
            store = JobStore.open(str(self.folder / name))
            found = ProtectedVersionsSearch(self.job.savepoints).of(str(self.folder / name), self.job.savepoints.all_protected(), head)
            keeping = Maintenance(name, store, SparkRewriter(store, 1), protected_versions=found.versions)
            keeping.after_publication(DeltaTable(str(self.folder / name)), "tidemark-x")

    def rewind(self, name: str | None) -> None:
        """Put the job back, if the savepoint is still there."""
        if name not in self.job.savepoints.pins.names():
            return
        self.job.driver.release()
        rewind(self.job.root, "taxi", name, clock=self.job.clock)
        assert [rows(self.folder / table) for table in TABLES] == [self.shown[name]] * 2
        self.job.restart()

    def check(self) -> None:
        """Every savepoint can be gone back to."""
        for name in self.shown:
            if name in self.job.savepoints.pins.names():
                assert preview_rewind(self.job.root, "taxi", name, clock=self.job.clock).refusals == (), name


@settings(max_examples=15)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=8, max_size=24))
def test_nothing_that_a_savepoint_needs_goes(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    tables = Tables(tmp_path_factory.mktemp("tables"))
    tables.step("save")
    for what in (*steps, "epoch", "vacuum", "driver"):
        # What is lost stays lost: it is looked for before a savepoint may go, or be gone back to.
        if what in {"dispose", "rewind"}:
            tables.check()
        tables.step(what)
    tables.check()
    for name in reversed(tables.shown):
        tables.rewind(name)


def test_what_no_savepoint_needs_is_given_up(tmp_path: Path) -> None:
    """Else the property above would say nothing."""
    tables = Tables(tmp_path)
    tables.step("save")
    for what in (*["epoch"] * 6, "merge", "epoch"):
        tables.step(what)
    before = SYSTEM_CLOCK.now_ms()
    tables.step("vacuum")
    tables.step("driver")
    log = tmp_path / "hourly" / "_delta_log"
    assert (log / f"{0:020d}.json").exists(), "a savepoint needs it"
    tables.step("dispose")
    tables.step("driver")
    assert not (log / f"{0:020d}.json").exists()
    tables.step("merge")
    assert vacuum_tables(tables.job.root, "taxi", clock=tables.job.clock)["hourly"] > 0
    assert SYSTEM_CLOCK.now_ms() >= before
