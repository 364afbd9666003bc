"""Savepoints of each format there was, as test data: read for ever, as a savepoint in a job's folder and as an export."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.savepoints.stored_jobs import StoredJob, clock_ahead, live_files
from tidemark.savepoints.importing import import_savepoint
from tidemark.savepoints.restore import Restore
from tidemark.savepoints.savepoint_store import SavepointStore
from tidemark.state.store import JobStore

GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(path.name for path in GOLDEN.iterdir())


def test_there_is_one_of_the_current_format() -> None:
    assert FORMATS == ["1"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_savepoint_in_a_folder_is_read_and_restored(tmp_path: Path, form: str) -> None:
    shutil.copytree(GOLDEN / form / "store", tmp_path / "store")
    root = JobStore.open(str(tmp_path / "store"))
    found = SavepointStore(root, "taxi").get("golden")
    assert (found.info.kind, found.info.note, dict(found.info.labels)) == ("manual", "frozen", {"format": form})
    assert (found.record.epoch, found.info.state_files) == (1, 5)
    assert found.info.tables["hourly"].version == 4
    fork = StoredJob(root, "fork", clock_ahead())
    begun = fork.restore(Restore("golden", job="taxi"))
    assert len(live_files(begun)) == 5
    assert (begun.totals["sources"]["trips"]["read"], begun.sources["trips"].watermark) == (20, 5_000)


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_is_imported_and_restored(tmp_path: Path, form: str) -> None:
    moved = StoredJob(JobStore.open(str(tmp_path / "store")), "moved", clock_ahead())
    found = import_savepoint(moved.savepoints, str(GOLDEN / form / "export"))
    assert (found.name, found.info.note, found.record.epoch) == ("golden", "frozen", 1)
    begun = moved.restore(Restore("golden"))
    assert all(moved.folder.exists(path) for _, path in live_files(begun))
