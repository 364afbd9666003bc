"""Killed on the way, a restore, an export and an import are made as if nothing had been; nothing of the first try is left in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.killed import kill_at
from tests.savepoints.stored_jobs import StoredJob, export_in_process, import_in_process, live_files, on_disk
from tidemark.errors import CorruptStoreError
from tidemark.savepoints.export.export_format import require_index
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.restore_history import is_restore_due, record_restore
from tidemark.savepoints.restore.shared_files import shared_savepoints_of
from tidemark.state.gc.file_references import ABANDONED_MS, FileReferences
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.crash
HERE = "tests.savepoints.stored_jobs"


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    made = on_disk(str(tmp_path))
    made.commit(3)
    made.savepoints.take("a")
    made.commit(1, dropped=2)
    made.driver.release()
    return made


@pytest.mark.parametrize("into", ["taxi", "fork"])
@pytest.mark.parametrize("point", ["files-held", "restored"])
def test_a_restore_is_made_once(job: StoredJob, tmp_path: Path, point: str, into: str) -> None:
    kill_at(f"{HERE}:restore_in_process", point, [str(tmp_path), into, "claim"])
    restored = on_disk(str(tmp_path), into)
    restore = Restore("a", job="taxi", mode="claim", identity="once")
    due = is_restore_due(restored.folder, restored.driver.last, restore)
    assert due == (point == "files-held")
    # As a driver does when it starts: it makes the restore, or marks that it was made.
    record_restore(restored.folder, restored.driver.last)
    begun = restored.restore(restore) if due else restored.driver.last
    assert begun is not None
    restored.keep_house(retained=1)
    assert {path for _, path in live_files(begun)} <= job.state_files()
    assert [item.name for item in job.savepoints.list()] == ["a"]
    assert not is_restore_due(restored.folder, restored.driver.last, restore)
    # In the end nothing is left of either try.
    for _ in range(2):
        restored.commit(0, dropped=9)
    restored.sweep_thoroughly(retained=1)
    owner = restored if into == "taxi" else on_disk(str(tmp_path))
    owner.commit(0, dropped=9)
    owner.sweep_thoroughly(retained=1)
    assert (owner.state_files(), owner.savepoints.list(), FileReferences(owner.folder).list(), shared_savepoints_of(restored.folder)) == (
        set(),
        (),
        (),
        (),
    )


def test_a_savepoint_is_there_or_not(job: StoredJob, tmp_path: Path) -> None:
    kill_at(f"{HERE}:take_in_process", "pin-put", [str(tmp_path)])
    assert job.savepoints.get("b").record.epoch == 1


@pytest.mark.usefixtures("job")
def test_an_export_goes_on_and_an_import_begins_anew(tmp_path: Path) -> None:
    kill_at(f"{HERE}:export_in_process", "export-copied:2", [str(tmp_path)])
    exported = JobStore.open(str(tmp_path / "export"))
    with pytest.raises(CorruptStoreError, match="an unfinished export"):
        require_index(exported)
    export_in_process(str(tmp_path))
    assert require_index(exported).name == "a"
    kill_at(f"{HERE}:import_in_process", "import-copied:2", [str(tmp_path)])
    other = on_disk(str(tmp_path), "other")
    assert other.savepoints.list() == ()
    import_in_process(str(tmp_path))
    found = other.savepoints.get("a").record
    other.sweep_thoroughly()
    assert {path for _, path in live_files(found)} < other.state_files(), "half an import is held as long as it may be under way"
    other.clock.advance(ABANDONED_MS + 1)
    other.sweep_thoroughly()
    assert {path for _, path in live_files(found)} == other.state_files()
