"""A folder of Parquet files that is lost under a job: neither a restore of the state nor a rewind takes that for nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import elements
from tidemark.errors import MissingEpochsError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind
from tidemark.spark.loop.late_publication import late_publisher
from tidemark.state.log.progress import MissingEpochs
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Job:
    """One epoch per row; the first two have rows for the folder, all have rows for the table."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root

    def run(self, epochs: int, missing_epochs: MissingEpochs | None = None, restore: Restore | None = None) -> tm.RunResult:
        rows = elements(*([(f"k{number}", number)] for number in range(epochs)), schema="k STRING, t BIGINT").select("k", "t")
        outputs = {"files": tm.parquet(rows.filter("t < 2 OR t > 6"), str(self.folder)), "table": tm.delta(rows, f"{self.root}/table")}
        job = tm.Job("losing", outputs=outputs, store=f"{self.root}/store")
        return tm.run(job, spark=self.spark, handle_signals=False, missing_epochs=missing_epochs, restore=restore)

    @property
    def folder(self) -> Path:
        return self.root / "files"

    @property
    def store(self) -> JobStore:
        return JobStore.open(f"{self.root}/store")

    @property
    def files(self) -> int:
        return len(list(self.folder.glob("part-*-*-*.parquet")))


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    """A job that ran and has a savepoint, and a copy of all that it made."""
    folder = tmp_path_factory.mktemp("losing")
    found = Job(spark, folder / "place")
    found.run(4)
    SavepointStore(found.store, "losing").take("then", epoch=2)
    shutil.copytree(found.root, folder / "kept")
    return found, folder / "kept"


@pytest.fixture
def job(kept: tuple[Job, Path]) -> Job:
    found, copy = kept
    shutil.rmtree(found.root)
    shutil.copytree(copy, found.root)
    return found


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def files_deleted(folder: Path) -> None:
    for file in folder.glob("*.parquet"):
        file.unlink()


LOSSES = {removed: "has no note", files_deleted: "no longer holds any file"}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_restore_of_the_state_alone_refuses_it(job: Job, loss: object) -> None:
    what = LOSSES[loss]  # type: ignore[index]
    loss(job.folder)  # type: ignore[operator]
    with pytest.raises(MissingEpochsError, match=f"output 'files' was published up to epoch 1.*{what}.*job 'losing'"):
        job.run(5, restore=Restore("then"))
    begun = job.run(8, "accept", Restore("then"))
    assert begun.epochs[0].outputs["files"].repair is not None
    assert "accepted" in str(begun.epochs[0].outputs["files"].repair)
    job.run(9)


def test_the_start_after_a_rewind_refuses_it(job: Job) -> None:
    removed(job.folder)
    with pytest.raises(MissingEpochsError):
        job.run(5)
    left = preview_rewind(job.store, "losing", "then").left["files"]
    assert f"the folder {job.folder} no longer holds all that was published to it up to epoch 2" in left
    rewind(job.store, "losing", "then", publish=late_publisher())
    for _ in range(2):
        with pytest.raises(MissingEpochsError, match=r"up to epoch 1(, or later)?, at version 2, and no longer holds any of that: it"):
            job.run(6)
    repaired = job.run(8, "accept")
    assert repaired.epochs[0].outputs["files"].repair is not None
    job.run(9)
    assert job.files == 2


def test_a_rewind_with_the_folder_as_it_was_goes_on(job: Job) -> None:
    job.run(8)
    assert job.files == 3
    assert "no longer" not in preview_rewind(job.store, "losing", "then").left["files"]
    rewind(job.store, "losing", "then", publish=late_publisher())
    job.run(9)
    # The file that was written since stays, and its rows come again.
    assert job.files == 5
    removed(job.folder)
    with pytest.raises(MissingEpochsError):
        job.run(10)


def test_a_rewind_to_the_first_rows_knows_the_folder(job: Job) -> None:
    SavepointStore(job.store, "losing").take("first", epoch=0)
    rewind(job.store, "losing", "first", publish=late_publisher())
    removed(job.folder)
    with pytest.raises(MissingEpochsError, match="output 'files' was published up to epoch 0"):
        job.run(4)
