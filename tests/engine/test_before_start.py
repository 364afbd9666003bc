"""What is found before Spark starts for a run, and what is not asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements
from tidemark.errors import DefinitionError, RewindError, SourceError, StateMismatchError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model import rewind_journal
from tidemark.state.store.store import JobStore
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = [(1_000, "a", 1)]
STARTED = "tidemark.spark.loop.run.session_and_engine"


def job(folder: Path, uid: str = "sums", epochs: int = 1) -> tm.Job:
    stream = elements(*[ROW] * epochs, schema="t BIGINT, k STRING, n BIGINT").key_by("k")
    sums = stream.window(tm.tumbling("1 second")).aggregate(n=tm.count()).uid(uid)
    return tm.Job("before", outputs={"sums": tm.memory(sums, f"{folder}/sums")}, store=str(folder / "store"))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    files = tm.source("in", tm.files(f"{tmp_path}/in", format="text"), watermarks=tm.ingestion_time())
    with mock.patch(STARTED) as started, pytest.raises(SourceError, match=r"in' of source 'in' does not exist.*job 'texts'"):
        tm.run(tm.Job("texts", outputs={"out": tm.memory(files, "texts")}, store=str(tmp_path / "store")))
    started.assert_not_called()


def test_a_module_that_runs_its_job_while_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs_at_once.py").write_text(
        "from pathlib import Path\nfrom tests.engine.test_before_start import job\nimport tidemark as tm\ntm.run(job(Path('.')))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    what = r"tm\.run is called while the module 'runs_at_once' is imported.*job 'before', at .*/runs_at_once\.py:4\).*Fix: .*__main__"
    with mock.patch(STARTED) as started, pytest.raises(DefinitionError, match=what):
        importlib.import_module("runs_at_once")
    started.assert_not_called()


@pytest.mark.spark
def test_state_that_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    tm.run(job(tmp_path), spark=spark, clock=ManualClock(NOW), handle_signals=False)
    with mock.patch(STARTED) as started, pytest.raises(StateMismatchError, match="'sums'"):
        tm.run(job(tmp_path, "others", 2))
    with (
        mock.patch.object(rewind_journal, "read_rewind", return_value=mock.MagicMock()),
        mock.patch(STARTED) as started_again,
        pytest.raises(RewindError),
    ):
        tm.run(job(tmp_path, "others", 2))
    started.assert_not_called()
    started_again.assert_not_called()


@pytest.mark.spark
def test_a_restore_that_was_made_needs_no_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    tm.run(job(tmp_path), spark=spark, clock=ManualClock(NOW), handle_signals=False)
    store = SavepointStore(JobStore.open(str(tmp_path / "store")), "before")
    store.take("one")
    once = tm.Restore("one", identity="once", uids={"sums": "others"})
    with mock.patch(STARTED, return_value=spark):
        tm.run(job(tmp_path, "others", 2), restore=once, clock=ManualClock(NOW), handle_signals=False)
        store.dispose("one")
        found = tm.run(job(tmp_path, "others", 3), restore=once, clock=ManualClock(NOW), handle_signals=False)
    assert found.rows_in == 1
