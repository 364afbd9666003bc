from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.savepoints.stored_jobs import StoredJob, clock_ahead, live_files
from tidemark.errors import CorruptStoreError, DefinitionError, InvalidNameError
from tidemark.savepoints.export.export_format import (
    INDEX,
    RECORD,
    CopyProgress,
    ExportedFile,
    ExportIndex,
    encode_record,
    require_index,
    write_index,
)
from tidemark.savepoints.export.exporting import export_savepoint
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.savepoint import SavepointInfo
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.encoding.envelope import sha256
from tidemark.state.gc.file_references import FileReferences
from tidemark.state.log.records import EpochRecord, OperatorState, SourceLogFile, SourceLogRef, StateFile
from tidemark.state.store.store import JobStore

Change = Callable[[EpochRecord], EpochRecord]
X = sha256(b"x")


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    made = StoredJob(JobStore.open(str(tmp_path / "store")), uids=("hourly", "daily"))
    made.commit(200)
    made.commit(2)
    return made


def other_store(tmp_path: Path) -> StoredJob:
    return StoredJob(JobStore.open(str(tmp_path / "other")), "moved", clock_ahead())


def export(job: StoredJob, name: str, to: Path) -> list[CopyProgress]:
    told: list[CopyProgress] = []
    export_savepoint(job.folder, job.savepoints.get(name), str(to), on_copy=told.append)
    return told


def test_what_is_exported_comes_back_in_another_store(job: StoredJob, tmp_path: Path) -> None:
    taken = job.savepoints.take("a", note="before the move", labels={"ticket": "7"})
    told = export(job, "a", tmp_path / "export")
    assert told[-1] == CopyProgress(405, 405, 404, 404)
    (tmp_path / "export").rename(tmp_path / "elsewhere")
    moved = other_store(tmp_path)
    found = import_savepoint(moved.savepoints, str(tmp_path / "elsewhere"), by="me")
    assert (found.name, found.info.kind, found.info.by) == ("a", "imported", "me")
    assert (found.info.note, dict(found.info.labels)) == ("before the move", {"ticket": "7"})
    for uid, state in taken.record.operators.items():
        assert [replace(file, path="") for file in found.record.operators[uid].files] == [replace(file, path="") for file in state.files]
    assert found.record.totals == taken.record.totals
    assert FileReferences(moved.folder).list() == ()
    moved.sweep_thoroughly()
    begun = moved.restore(Restore("a"))
    assert (begun.epoch, begun.job) == (1, "moved")
    assert all(moved.folder.exists(path) for _, path in live_files(begun))
    # The import is used up like any state: what nothing names any more goes.
    moved.savepoints.dispose("a")
    moved.uids = ("hourly", "daily")
    moved.commit(1, dropped=999)
    moved.sweep_thoroughly(retained=1)
    assert len(moved.state_files()) == 2


def test_files_of_two_jobs_are_exported_together(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("a")
    fork = StoredJob(job.root, "fork", job.clock, uids=("hourly", "daily"))
    fork.restore(Restore("a", job="taxi"))
    fork.commit(1)
    fork.savepoints.take("b")
    export(fork, "b", tmp_path / "export")
    moved = other_store(tmp_path)
    found = import_savepoint(moved.savepoints, str(tmp_path / "export"), name="c")
    assert {owner for owner, _ in live_files(found.record)} == {""}
    assert len(moved.state_files()) == len(live_files(found.record)) == 406


def test_an_export_that_was_broken_off_is_none_and_goes_on_where_it_stopped(job: StoredJob, tmp_path: Path) -> None:
    taken = job.savepoints.take("a")
    files = sorted(path for _, path in live_files(taken.record))
    content = job.folder.get(files[0])
    job.folder.delete(files[:1])
    with pytest.raises(CorruptStoreError, match="is missing"):
        export(job, "a", tmp_path / "export")
    with pytest.raises(CorruptStoreError, match=r"holds an unfinished export \(index\.json is missing\)"):
        require_index(JobStore.open(str(tmp_path / "export")))
    with pytest.raises(CorruptStoreError, match="an unfinished export"):
        import_savepoint(other_store(tmp_path).savepoints, str(tmp_path / "export"))
    job.folder.put(files[0], content)
    copied = {path: path.stat().st_mtime_ns for path in (tmp_path / "export" / "state").rglob("*.parquet")}
    noted = len(list((tmp_path / "export" / "partial").iterdir())) - 1
    export(job, "a", tmp_path / "export")
    again = [path for path, at in copied.items() if path.stat().st_mtime_ns != at]
    assert len(again) <= len(copied) - noted
    assert not (tmp_path / "export" / "partial").exists()
    # Once more does nothing.
    assert export(job, "a", tmp_path / "export") == []


def test_a_folder_with_something_else_is_left_alone(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("a", epoch=0)
    job.savepoints.take("b")
    export(job, "a", tmp_path / "export")
    with pytest.raises(DefinitionError, match="holds savepoint 'a' of job 'taxi'"):
        export(job, "b", tmp_path / "export")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(DefinitionError, match="holds other files"):
        export(job, "b", tmp_path / "mine")
    with pytest.raises(CorruptStoreError, match="holds no exported savepoint"):
        import_savepoint(job.savepoints, str(tmp_path / "mine"))


@pytest.mark.parametrize("whole", [True, False])
def test_a_changed_savepoint_of_the_same_epoch_is_another(job: StoredJob, tmp_path: Path, *, whole: bool) -> None:
    taken = job.savepoints.take("a")
    job.clock.advance(1)
    job.savepoints.pins.adopt("b", encode_record(replace(taken.record, operators={}))[0], about=to_jsonable(SavepointInfo("imported")))
    if whole:
        export(job, "a", tmp_path / "export")
    else:
        job.folder.delete([taken.record.operators["hourly"].files[0].path])
        with pytest.raises(CorruptStoreError, match="is missing"):
            export(job, "a", tmp_path / "export")
    says = "holds savepoint 'a' of job 'taxi'" if whole else "holds an unfinished export of job 'taxi', epoch 1"
    with pytest.raises(DefinitionError, match=says):
        export(job, "b", tmp_path / "export")
    export(job, "b", tmp_path / "another")


@pytest.mark.parametrize("victim", ["state", "segments", "sources", "record.json", INDEX])
def test_damage_anywhere_is_found_and_nothing_is_imported(job: StoredJob, tmp_path: Path, victim: str) -> None:
    job.savepoints.take("a")
    export(job, "a", tmp_path / "export")
    place = tmp_path / "export" / victim
    path = next(file for file in sorted(place.rglob("*")) if file.is_file()) if place.is_dir() else place
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if data else b"more")
    moved = other_store(tmp_path)
    with pytest.raises(CorruptStoreError):
        import_savepoint(moved.savepoints, str(tmp_path / "export"))
    assert moved.savepoints.list() == ()
    assert FileReferences(moved.folder).list() == ()
    moved.sweep_thoroughly()
    assert moved.state_files() == set()


def test_a_name_that_is_taken_is_refused_before_anything_is_copied(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("a")
    export(job, "a", tmp_path / "export")
    before = job.folder.list()
    with pytest.raises(InvalidNameError, match="has a savepoint 'a' already"):
        import_savepoint(job.savepoints, str(tmp_path / "export"))
    assert job.folder.list() == before


def other_logs(*files: SourceLogFile) -> Change:
    return lambda record: replace(record, source_logs={"trips": SourceLogRef(files)})


def other_state(*files: StateFile) -> Change:
    return lambda record: replace(record, operators={"hourly": OperatorState({}, files)})


FORGED: dict[str, Change] = {
    "a name that leads elsewhere": other_logs(SourceLogFile("/home/me/sitecustomize.py", "sources/trips/p", 1, X)),
    "a name above": other_logs(SourceLogFile("../../7", "sources/trips/p", 1, X)),
    "one log twice": other_logs(SourceLogFile("7", "sources/trips/p", 1, X), SourceLogFile("8", "sources/trips/p", 1, X)),
    "a log elsewhere": other_logs(SourceLogFile("7", "sources/../../p", 1, X)),
    "state elsewhere": other_state(StateFile("state/../../p", 1, 1, 0, 0, 0)),
    "state among logs": other_state(StateFile("sources/trips/p", 1, 1, 0, 0, 0)),
    "state twice": lambda record: replace(
        record, operators={uid: OperatorState({}, (StateFile("state/p", 1, 1, 0, 0, 0),)) for uid in ("hourly", "daily")}
    ),
    "another job's state": other_state(StateFile("state/p", 1, 1, 0, 0, 0, owner="taxi")),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_a_record_that_names_what_no_export_has_is_refused(job: StoredJob, tmp_path: Path, change: Change) -> None:
    taken = job.savepoints.take("a")
    record = change(replace(taken.record, operators={}, source_logs={}))
    data, _ = encode_record(record)
    forged = JobStore.open(str(tmp_path / "forged"))
    for path in ("sources/trips/p", "state/p"):
        forged.put(path, b"x")
    forged.put(RECORD, data)
    files = tuple(ExportedFile(path, len(forged.get(path)), sha256(forged.get(path))) for path in ("sources/trips/p", "state/p", RECORD))
    write_index(forged, ExportIndex("taxi", "a", 0, record.lineage, record.epoch, taken.info, files))
    with pytest.raises(CorruptStoreError, match=r"record\.json names .*, which no export of Tidemark's does"):
        import_savepoint(other_store(tmp_path).savepoints, str(tmp_path / "forged"))


def test_a_driver_writes_no_log_of_a_name_that_is_not_sparks(job: StoredJob, tmp_path: Path) -> None:
    job.folder.put("sources/trips/p", b"x")
    last = job.driver.last
    assert last is not None
    for name in (str(tmp_path / "home" / "sitecustomize.py"), "../x", "7.txt"):
        with closing(SparkCheckpoint(job.folder, 1)) as checkpoint, pytest.raises(CorruptStoreError, match="not a name that Spark gives"):
            checkpoint.seed(other_logs(SourceLogFile(name, "sources/trips/p", 1, X))(last))
    assert not (tmp_path / "home").exists()
