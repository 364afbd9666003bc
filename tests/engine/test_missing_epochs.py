"""Outputs that lose epochs under a job: every sink refuses, between two runs and while the driver runs; and each way out.

Each case begins with the same stored job of four epochs, which is copied into its place.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.engine.damaged_outputs import (
    LOSSES,
    Loss,
    World,
    data_file_deleted,
    expected,
    files_deleted,
    folder_put_back,
    table_emptied,
    table_replaced,
    table_restored,
)
from tests.seeds import only_long, some
from tidemark.cli.show.tables import history_table, progress_lines
from tidemark.errors import EngineError, MissingEpochsError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.state.log.accepted_gaps import write_accepted
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history import read_history
from tidemark.state.status.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(spark, tmp_path_factory.mktemp("losing"))


class Crashed(Exception):  # noqa: N818 - it ends a process here
    """Ends a run where a crash would."""


@pytest.mark.parametrize("output", LOSSES)
def test_a_start_refuses(world: World, output: str) -> None:
    for loss in LOSSES[output]:
        with world.again():
            loss(world.place / output)
            with pytest.raises(
                MissingEpochsError, match=f"output '{output}'.*epoch(?=.*tidemark rewind losing --to)(?=.*--missing-epochs accept)"
            ) as told:
                world.run(5)
            assert (told.value.transient, world.epoch) == (False, 3), loss
            # A place that is deleted is not made a table again.
            assert (world.place / output / "_delta_log").exists() is (output != "files" and loss is not shutil.rmtree)
            status = read_status(world.store, "losing")
            assert status is not None
            assert (status.state, status.error_code) == ("failed", "TM302")


@pytest.mark.parametrize("output", LOSSES)
def test_a_driver_that_runs_refuses_before_it_commits(world: World, output: str) -> None:
    # A table that is added to and one that is upserted lose their epochs in the same ways: each way is shown on one of them.
    for loss in some(LOSSES[output], 2, first=1 if output == "upsert" else 0):
        with world.again():

            def lose(progress: EpochProgress, loss: Loss = loss) -> None:
                if progress.epoch == 4:
                    loss(world.place / output)

            with pytest.raises(MissingEpochsError, match=f"output '{output}' was published up to epoch 4"):
                world.run(7, on_epoch=lose)
            assert world.epoch == 4, loss
            # Nor is it there at the next start as if nothing had been.
            with pytest.raises(MissingEpochsError):
                world.run(7)


def test_missing_epochs_are_published_again(world: World) -> None:
    def entries_deleted(table: Path) -> None:
        for entry in sorted((table / "_delta_log").glob("*.json"))[-2:]:
            entry.unlink()

    newer, all_of_them = (2, 3), (0, 1, 2, 3)
    # Each way to lose epochs is shown on one of the tables that are written in the same way.
    for losses in (
        {"append": (table_restored, newer), "upsert": (table_emptied, all_of_them)},
        {"append": (table_emptied, all_of_them), "upsert": (entries_deleted, newer)},
    ):
        with world.again():
            for output, (loss, _) in losses.items():
                loss(world.place / output)
            ran = world.run(6, missing_epochs="republish")
            noted = ran.epochs[0]
            assert (noted.epoch, noted.rows_in, len(ran.epochs)) == (4, 0, 3)
            for output, (_, again) in losses.items():
                repair = noted.outputs[output].repair
                assert repair is not None
                assert (repair.how, repair.epochs) == ("republished", again)
            assert noted.outputs["files"].repair is None
            for output in LOSSES:
                assert world.rows(output) == expected(output, 6), (losses, output)
            # And it goes on.
            world.run(7)
            assert world.rows("append") == expected("append", 7)


def test_what_is_deleted_cannot_be_published_again(world: World) -> None:
    losses: tuple[tuple[str, Loss], ...] = (
        ("append", shutil.rmtree),
        ("upsert", table_replaced),
        ("files", shutil.rmtree),
        ("files", files_deleted),
        ("files", folder_put_back),
    )
    for output, loss in losses:
        with world.again():
            loss(world.place / output)
            with pytest.raises(MissingEpochsError, match=r"cannot be published again: .*--missing-epochs accept"):
                world.run(5, missing_epochs="republish")
            assert world.epoch == 3


def test_a_gap_that_is_accepted_is_kept_in_the_log(world: World) -> None:
    with world.again():
        table_restored(world.place / "append")
        shutil.rmtree(world.place / "upsert")
        shutil.rmtree(world.place / "files")
        ran = world.run(5, missing_epochs="accept")
        assert [epoch.epoch for epoch in ran.epochs] == [4, 5]
        assert world.rows("append") == sorted([*expected("append", 2), ("k4", 4), ("same", 4)])
        assert world.rows("upsert") == world.rows("files") == [("k4", 4), ("same", 4)]
        world.run(6)
        head = JobLog(world.store.at("losing"), "losing").load().epoch
        assert head is not None
        assert {name: len(output.repairs) for name, output in head.outputs.items()} == {"append": 1, "upsert": 1, "files": 1, "memory": 0}
        status = read_status(world.store, "losing")
        assert status is not None
        said = "gap accepted in epoch 4: output 'append' was published up to epoch 2"
        assert any(said in line for line in progress_lines(status))
        assert said in history_table(read_history(world.store, "losing"))
        # What is lost from now on is refused as ever.
        table_restored(world.place / "append")
        with pytest.raises(MissingEpochsError):
            world.run(7)


@pytest.mark.parametrize(
    ("loss", "where"),
    [
        (table_restored, "missing_epochs.write_accepted"),
        (data_file_deleted, "driver.make_tables"),
        pytest.param(table_restored, "driver.make_tables", marks=only_long),
        pytest.param(data_file_deleted, "missing_epochs.write_accepted", marks=only_long),
    ],
)
def test_a_gap_that_is_accepted_is_not_asked_for_again_after_a_crash(
    world: World, monkeypatch: pytest.MonkeyPatch, loss: Loss, where: str
) -> None:
    """The process ends before anything is done about the gap, or before the job's log notes it."""

    def crash(*given: Any, **_: object) -> None:
        if where == "missing_epochs.write_accepted":
            write_accepted(*given)
        raise Crashed

    with world.again():
        loss(world.place / "append")
        with monkeypatch.context() as patch:
            patch.setattr(f"tidemark.spark.loop.{where}", crash)
            with pytest.raises(EngineError, match="Crashed"):
                world.run(5, missing_epochs="accept")
        assert world.epoch == 3
        # What another output has lost since was accepted by nobody.
        table_restored(world.place / "upsert")
        with pytest.raises(MissingEpochsError, match="output 'upsert'"):
            world.run(5)
        shutil.rmtree(world.place / "upsert")
        shutil.copytree(world.kept / "upsert", world.place / "upsert")
        ran = world.run(5)
        assert [epoch.rows_in for epoch in ran.epochs] == [0, 2]
        repair = ran.epochs[0].outputs["append"].repair
        assert repair is not None
        assert (repair.how, repair.epoch) == ("accepted", 4)
        assert ("k3", 3) not in world.rows("append")
        assert ("k4", 4) in world.rows("append")
        world.run(6)


def test_data_files_that_are_deleted_under_the_log_are_refused(world: World) -> None:
    with world.again():
        for output in ("append", "upsert"):
            data_file_deleted(world.place / output)
            with pytest.raises(MissingEpochsError, match=f"a data file of output '{output}' is deleted, though version"):
                world.run(5)
            with pytest.raises(MissingEpochsError, match="cannot be published again: 1 of the files"):
                world.run(5, missing_epochs="republish")
            assert world.epoch == 3
            world.run(4, missing_epochs="accept")
            assert ("k3", 3) not in world.rows(output)
            shutil.rmtree(world.place)
            shutil.copytree(world.kept, world.place)

        def lose(progress: EpochProgress) -> None:
            if progress.epoch == 4:
                data_file_deleted(world.place / "append")

        with pytest.raises(MissingEpochsError, match="a data file of output 'append' is deleted"):
            world.run(7, on_epoch=lose)
        # It was seen before the next epoch was shown; that one is committed, and shown once the gap is accepted.
        assert world.epoch <= 5
        world.run(7, missing_epochs="accept")
        assert world.rows("append") == [row for row in expected("append", 7) if row[1] != 4]


def test_rows_that_others_delete_by_a_condition_are_no_loss(world: World) -> None:
    def delete(progress: EpochProgress) -> None:
        if progress.epoch in {4, 6}:
            for output in ("append", "upsert"):
                DeltaTable(str(world.place / output)).delete(f"k = 'k{progress.epoch - 2}'")

    with world.again():
        # While the driver runs, and between two runs.
        world.run(7, on_epoch=delete)
        world.run(8)
        for output in ("append", "upsert"):
            assert world.rows(output) == [row for row in expected(output, 8) if row[0] not in {"k2", "k4"}]
        assert world.rows("files") == expected("files", 8)


def test_files_that_readers_move_are_not_missed_where_the_job_says_so(world: World) -> None:
    def take(progress: EpochProgress) -> None:
        if progress.epoch >= 4:
            files_deleted(world.place / "files")

    with world.again():
        files_deleted(world.place / "files")
        world.run(6, on_epoch=take, readers_move_files=True)
        world.run(7, readers_move_files=True)
        assert world.rows("files") == [("k6", 6), ("same", 6)]
        # A folder that is gone or an older one is refused all the same.
        for loss in (shutil.rmtree, folder_put_back):
            loss(world.place / "files")
            with pytest.raises(MissingEpochsError):
                world.run(8, readers_move_files=True)


def test_files_that_are_gone_are_accepted_once(world: World) -> None:
    with world.again():
        files_deleted(world.place / "files")
        ran = world.run(4, missing_epochs="accept")
        assert [(epoch.epoch, epoch.rows_in) for epoch in ran.epochs] == [(4, 0)]
        # It is in the log: nobody has to say it again while nothing more is lost.
        world.run(4)
        world.run(5)
        world.run(6)
        assert world.rows("files") == sorted([("k4", 4), ("same", 4), ("k5", 5), ("same", 5)])
        # What is lost from now on is refused as ever.
        files_deleted(world.place / "files")
        with pytest.raises(MissingEpochsError, match=r"any file of that epoch.*readers_move_files=True"):
            world.run(7)


def test_files_of_older_epochs_may_be_deleted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.again():
        newest = max(file.name for file in (world.place / "files").glob("part-*-*-*.parquet"))
        for file in (world.place / "files").glob("part-*-*-*.parquet"):
            if file.name[:-13] != newest[:-13]:
                file.unlink()
        world.run(5)
        assert {t for _, t in world.rows("files")} == {3, 4}
        assert not [text for text in caplog.messages if "are no longer in" in text]


def test_the_job_is_rewound_to_where_the_table_is(world: World) -> None:
    with world.again():
        savepoints = SavepointStore(world.store, "losing")
        savepoints.take("then", epoch=1)
        for output in ("append", "upsert"):
            table_restored(world.place / output)
        with pytest.raises(MissingEpochsError):
            world.run(5)
        rewind(world.store, "losing", "then")
        world.run(5)
        assert [world.rows(output) for output in ("append", "upsert")] == [expected(output, 5) for output in ("append", "upsert")]
        shutil.rmtree(world.place / "append")
        with pytest.raises(MissingEpochsError, match="the table does not exist any more"):
            world.run(6)


def test_a_restore_of_the_state_alone_looks_at_the_tables_too(world: World) -> None:
    with world.again():
        savepoints = SavepointStore(world.store, "losing")
        savepoints.take("early", epoch=1)
        savepoints.take("late", epoch=2)
        table_restored(world.place / "append")
        # The table shows epochs 0 and 1: a job that goes on from there misses nothing of it, one that goes on from epoch 2 would.
        with pytest.raises(MissingEpochsError, match="version 5 is a RESTORE to version 2"):
            world.run(5, restore=Restore("late"))
        assert world.epoch == 3
        # Accepted, it is kept in the log of the lineage that begins.
        ran = world.run(5, "accept", restore=Restore("late"))
        assert ran.epochs[0].outputs["append"].repair is not None
        head = JobLog(world.store.at("losing"), "losing").load().epoch
        assert head is not None
        assert [repair.how for repair in head.outputs["append"].repairs] == ["accepted"]
    with world.again():
        SavepointStore(world.store, "losing").take("early", epoch=1)
        table_restored(world.place / "append")
        world.run(5, restore=Restore("early"))
        assert world.rows("append") == expected("append", 5)
        table_emptied(world.place / "append")
        with pytest.raises(MissingEpochsError):
            world.run(6)
