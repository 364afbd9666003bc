"""Jobs whose tables are made whole again at a start that ends early, or that cannot be made whole in all places."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction, write_deltalake

from tests.engine.damaged_outputs import COLUMNS, World, expected, table_restored
from tidemark.errors import EngineError, MissingEpochsError, RewindError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.spark.loop.driver import JobDriver
from tidemark.spark.loop.run import RunResult
from tidemark.state.log.progress import OutputRepair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(spark, tmp_path_factory.mktemp("republished"))


def repair_of(ran: RunResult, output: str) -> OutputRepair:
    repair = ran.epochs[0].outputs[output].repair
    assert repair is not None
    return repair


def versions(world: World) -> dict[str, int]:
    return {output: DeltaTable(str(world.place / output)).version() for output in ("append", "upsert")}


def test_a_start_that_ends_before_it_is_noted_is_gone_on_with(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise RuntimeError("killed here")

    with world.again():
        for output in ("append", "upsert"):
            table_restored(world.place / output)
        with monkeypatch.context() as patch:
            patch.setattr(JobDriver, "run_without_input", killed)
            with pytest.raises(EngineError, match="killed here"):
                world.run(6, missing_epochs="republish")
        whole = versions(world)
        assert [world.rows(output) for output in whole] == [expected(output, 4) for output in whole]
        with pytest.raises(MissingEpochsError, match=r"version 5 is a RESTORE.*--missing-epochs republish"):
            world.run(6)
        ran = world.run(4, missing_epochs="republish")
        # Nothing is published once more, and what was is noted.
        assert versions(world) == whole
        for output in whole:
            assert (repair_of(ran, output).how, repair_of(ran, output).epochs) == ("republished", (2, 3))
        world.run(6)
        assert [world.rows(output) for output in whole] == [expected(output, 6) for output in whole]


def test_no_table_is_changed_while_another_cannot_be_made_whole(world: World) -> None:
    with world.again():
        table_restored(world.place / "append")
        shutil.rmtree(world.place / "files")
        before = versions(world)
        for _ in range(2):
            with pytest.raises(MissingEpochsError, match=r"output 'files' .*cannot be published again.*nothing was changed"):
                world.run(5, missing_epochs="republish")
            assert versions(world) == before


def test_a_gap_that_was_accepted_is_not_published_again(world: World) -> None:
    with world.again():
        place = world.place / "append"
        table_restored(place)
        ran = world.run(5, missing_epochs="accept")
        assert repair_of(ran, "append").epochs == (2, 3)
        # Somebody loads the rows in another way.
        rows = [{"k": key, "t": number} for number in (2, 3) for key in (f"k{number}", "same")]
        write_deltalake(str(place), pa.Table.from_pylist(rows, schema=COLUMNS), mode="append")
        world.run(8)
        newest = DeltaTable(str(place))
        newest.restore(newest.version() - 1)
        ran = world.run(9, missing_epochs="republish")
        assert repair_of(ran, "append").epochs == (8,)
        assert world.rows("append") == expected("append", 9)


def test_a_savepoint_names_no_version_that_shows_a_later_epoch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    restored: list[str] = []

    def racing(application: str, version: int) -> Transaction:
        if not restored and version == 4:
            restored.append(application)
            DeltaTable(str(world.place / "append")).restore(2)
        return Transaction(application, version)

    with world.again():
        with monkeypatch.context() as patch:
            # Somebody's RESTORE comes between the look and the publication of epoch 4, which is shown while those before it are not.
            patch.setattr("tidemark.spark.sinks.delta.delta_sink.Transaction", racing)
            with pytest.raises(MissingEpochsError):
                world.run(6)
        assert "append" in restored[0]
        world.run(6, missing_epochs="republish")
        assert world.rows("append") == expected("append", 6)
        savepoint = SavepointStore(world.store, "losing").take("two", epoch=2)
        assert savepoint.info.tables["append"].version == 3, "the epochs that were published again stand behind a later one"
        with pytest.raises(RewindError, match=r"which would be undone: 5 \(RESTORE\)"):
            rewind(world.store, "losing", "two")
        world.run(7)
        assert [world.rows(output) for output in ("append", "upsert")] == [expected(output, 7) for output in ("append", "upsert")]
