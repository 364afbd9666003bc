"""Symbolic links in stores and tables: nothing that deletes follows one, whatever it leads to; the links stay, and are named."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from examples.taxi.demo import prepare_home
from tests.control.test_forks import forked
from tests.savepoints.delta_jobs import TABLES, job_with_tables, maintain, run_epoch
from tests.savepoints.stored_jobs import StoredJob
from tidemark.control.alerts.engine.alert_silences import Silence, add_silence, delete_expired, end_silence
from tidemark.control.desired.attempts import delete_attempts
from tidemark.control.forks.discarding import discard
from tidemark.control.launch.logs import limit_size
from tidemark.control.launch.run_folder import RunFolder
from tidemark.control.model.paths import ATTEMPTS, numbered
from tidemark.control.observed.leases import take_lease
from tidemark.errors import DefinitionError, LinkedPathError, TidemarkError
from tidemark.savepoints.api.maintenance import vacuum_tables
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.export.exporting import export_savepoint
from tidemark.savepoints.model.rewind_journal import remove_rewind
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.spark.sinks.delta.delta_maintenance import Maintenance
from tidemark.spark.sinks.delta.delta_rewrite import APPENDED_BYTES, SparkRewriter
from tidemark.spark.sinks.local_sinks import MemorySink
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.state.gc.file_references import FileReferences
from tidemark.state.log.records import OutputRecord, StagedFile
from tidemark.state.store import local_files
from tidemark.state.store.store import JobStore

AGES = "interval 0 seconds"
TABLE = TABLES[0]


class Yard:
    """A job of some epochs with savepoints, two tables and a fork, and a folder that nothing of theirs is in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.outside = folder, folder / "outside"
        (self.outside / "deep").mkdir(parents=True)
        for place in (self.outside, self.outside / "deep"):
            for name in ("file.parquet", "00000000000000000000.json", "part-00000.parquet"):
                (place / name).write_text("somebody else's")
                os.utime(place / name, (1, 1))
        self.job = job_with_tables(folder)
        for number in range(4):
            run_epoch(self.job)
            if number % 2:
                self.job.savepoints.take(f"sp-{number}")
                maintain(str(folder / TABLE))
        settings = {"delta.logRetentionDuration": AGES, "delta.deletedFileRetentionDuration": AGES}
        DeltaTable(str(folder / TABLE)).alter.set_table_properties(settings)
        self.job.stage("hourly", 9)
        self.job.commit(rows=self.job.stage_rows())
        self.job.stage_rows()
        self.job.driver.release()
        self.fork = forked(self.job, "what-if", savepoint="sp-1", outputs=folder / "apart")
        for number in (1, 2, 3):
            self.job.folder.put(numbered(ATTEMPTS, number), b"{}")
        add_silence(self.job.root, Silence("quiet", 1, by="ada"))
        (folder / "raw" / "_tidemark" / "e").mkdir(parents=True)
        (folder / "raw" / "_tidemark" / "e" / "p.parquet").write_text("x")
        (folder / "run" / "a").mkdir(parents=True)
        (folder / "demo").mkdir()
        prepare_home(folder / "demo")

    def strew(self) -> None:
        """Put links of all kinds into every folder, under names of what is deleted there."""
        for place, _, _ in list(os.walk(self.folder)):
            here = Path(place)
            if here.is_relative_to(self.outside):
                continue
            (here / "stray.parquet").symlink_to(self.outside / "file.parquet")
            (here / "stray").symlink_to(self.outside)
            (here / "nowhere").symlink_to(self.folder / "not-there")
            if here.name != "_delta_log":  # deltalake itself reads no such log
                (here / "loop").symlink_to(here)
                (here / "itself").symlink_to(here / "itself")

    def move_out(self, *within: str) -> None:
        """Move each folder in some folders out, and put a link in its place."""
        for place in within:
            for entry in sorted((self.folder / place).iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    target = self.outside / f"{place.replace('/', '-')}-{entry.name}"
                    shutil.move(entry, target)
                    entry.symlink_to(target)

    def links(self) -> set[Path]:
        names = (Path(place, name) for place, folders, files in os.walk(self.folder) for name in (*folders, *files))
        return {path for path in names if path.is_symlink()}

    def there(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.outside.rglob("*") if path.is_file() and not path.is_symlink()}

    def staged(self, path: str) -> OutputRecord:
        return OutputRecord("parquet", str(self.folder / "raw"), "{}", (StagedFile(path, 1, 1),), 1)

    def maintenance(self) -> None:
        store = JobStore.open(str(self.folder / TABLE))
        keeper = Maintenance(TABLE, store, SparkRewriter(store, APPENDED_BYTES), frozenset())
        keeper.after_publication(DeltaTable(str(self.folder / TABLE)), "tidemark-x")

    def let_go(self) -> None:
        for reference in FileReferences(self.job.folder).list():
            FileReferences(self.job.folder).remove(reference.name)

    def take_leases(self) -> None:
        for number in range(6):
            take_lease(self.job.root, "taxi", holder=f"h{number}", now=number * 10_000_000)


def _sweep(yard: Yard) -> None:
    yard.job.restart()
    yard.job.sweep_thoroughly(retained=1)


DELETING: dict[str, Callable[[Yard], object]] = {
    "the sweeps and retention of a driver": _sweep,
    "retention of savepoints": lambda yard: yard.job.savepoints.retire(SavepointRetention(count=0)),
    "a savepoint is disposed of": lambda yard: yard.job.savepoints.dispose("sp-1"),
    "a vacuum": lambda yard: vacuum_tables(yard.job.root, "taxi"),
    "maintenance of a table": Yard.maintenance,
    "a rewind": lambda yard: rewind(yard.job.root, "taxi", "sp-1", clock=yard.job.clock, although_unpublished=True),
    "a rewind's note": lambda yard: remove_rewind(yard.job.folder, "none"),
    "a fork is discarded": lambda yard: discard(yard.job.root, "what-if", clock=yard.job.clock),
    "old attempts": lambda yard: delete_attempts(yard.job.root, "taxi", 99),
    "leases": Yard.take_leases,
    "holds": Yard.let_go,
    "a silence is ended": lambda yard: end_silence(yard.job.root, "quiet"),
    "old silences": lambda yard: delete_expired(yard.job.root, 10**12),
    "an export": lambda yard: export_savepoint(yard.job.folder, yard.job.savepoints.get("sp-1"), str(yard.folder / "export")),
    "rows of memory": lambda yard: MemorySink("m", "t", yard.job.folder).publish(yard.staged("staging/rows/x/p.parquet"), "l", 0),
    "rows of a folder": lambda yard: ParquetSink("raw", str(yard.folder / "raw")).publish(yard.staged("_tidemark/e/p.parquet"), "l", 0),
    "a job's folder": lambda yard: yard.job.root.remove_folder("taxi"),
    "scratch files of a driver": lambda yard: RunFolder(yard.folder, yard.folder / "run" / "a" / "b").new_scratch(1),
    "the demo's folder": lambda yard: prepare_home(yard.folder / "demo"),
}


@pytest.mark.parametrize("moved", [False, True], ids=["strewn with links", "folders behind links"])
@pytest.mark.parametrize("what", DELETING)
def test_what_lies_behind_links_stays(what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, moved: bool) -> None:
    yard = Yard(tmp_path)
    if moved:
        yard.move_out("store/taxi", "store/what-if", TABLE, "apart/hourly", "raw", "store", "run", "demo")
    else:
        yard.strew()
    before, links = yard.there(), yard.links()
    assert links
    with suppress(TidemarkError), caplog.at_level(logging.WARNING, "tidemark"):
        DELETING[what](yard)
    after = yard.there()
    # Writing follows links: only where folders lie behind them may files be new or others.
    assert {path for path in before if path not in after} == set()
    assert moved or after == before
    # The demo's own folder it empties whole.
    assert {path for path in links - yard.links() if not path.is_relative_to(tmp_path / "demo")} == set()


def test_a_link_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "_named", set())
    yard = Yard(tmp_path)
    yard.move_out("store/taxi/state")
    yard.job.restart()
    with caplog.at_level(logging.WARNING, "tidemark"):
        for _ in range(3):
            yard.job.sweep_thoroughly(retained=1)
    link = tmp_path / "store" / "taxi" / "state" / "hourly"
    assert [line for line in caplog.messages if "symbolic link" in line] == [
        f"{link} is a symbolic link: neither it nor what lies behind it is deleted"
    ]


def test_a_fork_with_links_is_not_discarded(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    table = tmp_path / "apart" / TABLE
    shutil.move(table, yard.outside / "table")
    table.symlink_to(yard.outside / "table")
    with pytest.raises(LinkedPathError, match=rf"\[TM405\] {table} is a symbolic link.*Fix: remove the link"):
        discard(yard.job.root, "what-if", clock=yard.job.clock)
    assert (yard.outside / "table" / "_delta_log").is_dir()
    assert "own" in yard.fork.savepoints.pins.names(), "nothing was deleted"
    table.unlink()
    discard(yard.job.root, "what-if", clock=yard.job.clock)
    assert "what-if" not in yard.job.root.folders()


@pytest.mark.parametrize("place", ["{folder}/apart/../victim", "{folder}/apart/..", "{folder}/apart/"])
def test_a_record_that_was_changed_has_nothing_else_discarded(tmp_path: Path, place: str) -> None:
    yard = Yard(tmp_path)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("x")
    fork = yard.fork
    fork.restart()
    fork.outputs = {"hourly": replace(fork.outputs[TABLE], location=place.format(folder=tmp_path))}
    fork.commit()
    fork.driver.release()
    with suppress(DefinitionError):
        discard(yard.job.root, "what-if", clock=yard.job.clock)
    assert (tmp_path / "victim" / "file").exists()
    assert (tmp_path / "store" / "taxi" / "log").is_dir()


def test_a_savepoint_behind_a_link_is_not_disposed_of(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.move_out("store/taxi")
    with pytest.raises(LinkedPathError, match="refs is a symbolic link"):
        yard.job.savepoints.dispose("sp-1")
    assert yard.job.savepoints.retire(SavepointRetention(count=0)) == ()


def test_what_a_log_links_to_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("x" * 100)
    (tmp_path / "old").write_text("y")
    (tmp_path / "driver.out").symlink_to(tmp_path / "theirs")
    limit_size(tmp_path / "driver.out", 10)
    assert (tmp_path / "theirs").read_text() == "x" * 100
    (tmp_path / "other.out").write_text("z" * 100)
    (tmp_path / "other.out.1").symlink_to(tmp_path / "old")
    limit_size(tmp_path / "other.out", 10)
    assert ((tmp_path / "old").read_text(), (tmp_path / "other.out").read_text()) == ("y", "")
    assert (tmp_path / "other.out.1").read_text() == "z" * 100


def test_a_store_behind_a_link_is_a_store(tmp_path: Path) -> None:
    """A root that is a link, and one below a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "disk")
    for root in (tmp_path / "way", tmp_path / "way" / "deeper"):
        job = StoredJob(JobStore.open(str(root)))
        job.stage("hourly", 0)
        job.commit()
        job.sweep_thoroughly()
        assert len(job.state_files()) == 1
        job.root.remove_folder("taxi")
        assert job.root.folders() == (("deeper",) if root.name == "way" and (root / "deeper").exists() else ())
