"""Rewinds of tables whose rows have their epoch's number; of others they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.killed import kill_at
from tests.postgres.rig import Mode
from tests.postgres.test_rewind_lineages import restore
from tests.postgres.test_rewinds import HOUR, Shop
from tests.seeds import only_long
from tests.sql_tables.place import Place
from tests.sql_tables.rig import SqlRig
from tidemark.errors import RewindError
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind
from tidemark.savepoints.rewind.place_rewinds import PLACE_REWINDS
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind


class SqlShop(Shop):
    rigs = SqlRig


@pytest.fixture
def shop(tmp_path: Path, place: Place) -> SqlShop:
    """Epochs 0 to 5, and a savepoint after 2."""
    made = SqlShop(tmp_path, place.database)
    made.run(3)
    made.job.savepoints.take("good")
    made.run(3)
    return made


def shown(place: Place) -> list[int]:
    return [found[0] for found in place.query("SELECT v FROM orders ORDER BY v")]


def test_rows_of_later_epochs_are_deleted(shop: SqlShop, place: Place) -> None:
    plan = preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock)
    assert (plan.refusals, plan.changed, plan.unpublished) == ((), ("orders",), ())
    assert shown(place) == [0, 1, 2, 3, 4, 5]
    assert shop.rewind("good").epoch == 2
    assert shown(place) == [0, 1, 2]
    shop.restart()
    shop.rig.sink.require_whole()
    shop.run(2)
    assert shown(place) == [0, 1, 2, 3, 4]
    shop.job.savepoints.take("later")
    shop.run(2)
    shop.rewind("later")
    assert shown(place) == [0, 1, 2, 3, 4]


def test_what_a_rewind_deleted_does_not_come_back(shop: SqlShop, place: Place) -> None:
    shop.job.savepoints.take("newest")
    shop.rewind("good")
    shop.restart()
    shop.run(1)
    with pytest.raises(RewindError, match=r"no longer has the rows of epochs after 2, which an earlier rewind deleted.*Fix: "):
        shop.rewind("newest")
    assert shown(place) == [0, 1, 2, 3]


def test_a_driver_that_was_suspended_publishes_nothing_afterwards(shop: SqlShop, place: Place) -> None:
    zombie, stopped = shop.rig, shop.stage()
    shop.job.driver.release()
    shop.job.clock.advance(HOUR)
    rewind(shop.job.root, "taxi", "good", clock=shop.job.clock, although_unpublished=True)
    assert shown(place) == [0, 1, 2]
    shop.publish(stopped, zombie)
    assert shown(place) == [0, 1, 2]
    shop.restart()
    shop.run(1)
    shop.publish(stopped, zombie)
    assert shown(place) == [0, 1, 2, 3]


def test_epochs_that_a_restore_ran_again_are_not_taken_for_the_savepoints(shop: SqlShop, place: Place) -> None:
    shop.job.savepoints.take("later")
    restore(shop, "good")
    shop.run(2)
    left = shop.rig.lineage
    restore(shop, "later")
    shop.run(1)
    with pytest.raises(RewindError, match=rf"rows of epochs up to 5 that the lineage {left} added after the savepoint.*Fix: "):
        shop.rewind("later")
    # Of a lineage that the log no longer has, its time says so.
    shop.job.restart()
    shop.open()
    shop.run(4)
    shop.job.keep_house(retained=2)
    (refusal,) = preview_rewind(shop.job.root, "taxi", "later", clock=shop.job.clock).refusals
    assert f"the lineage {left} added after the savepoint" in refusal
    assert shown(place)[:8] == [0, 1, 2, 3, 3, 4, 4, 5]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_keeps_no_history_is_refused(tmp_path: Path, place: Place, mode: Mode) -> None:
    shop = SqlShop(tmp_path, place.database, mode)
    shop.run(2)
    shop.job.savepoints.take("good")
    # Nothing was published since: there is nothing to take back.
    assert shop.rewind("good").epoch == 1
    shop.restart()
    shop.run(1)
    with pytest.raises(
        RewindError, match=rf"rows of epochs after 1 that it does not keep apart \({mode}\): write its history.*with_epoch=True"
    ):
        shop.rewind("good")
    assert shown(place) == [0, 1, 2]
    assert read_rewind(shop.job.folder) is None


def test_a_table_of_several_outputs_is_refused(shop: SqlShop, place: Place) -> None:
    other = SqlRig(shop.folder / "store", place.database, "history", job="bus", lineage="other")
    other.publish(3, [{"k": "other", "v": 100}])
    with pytest.raises(RewindError, match="has rows of other outputs"):
        shop.rewind("good")
    assert shown(place) == [0, 1, 2, 3, 4, 5, 100]


def test_a_table_that_others_made_is_refused(tmp_path: Path, place: Place) -> None:
    place.query(
        "CREATE TABLE orders (k text, v bigint, epoch bigint)"
        if place.database == "sqlite"
        else "CREATE TABLE orders (k longtext, v bigint, epoch bigint) CHARACTER SET utf8mb4"
    )
    shop = SqlShop(tmp_path, place.database)
    shop.run(1)
    shop.job.savepoints.take("good")
    shop.run(1)
    with pytest.raises(RewindError, match="was not created by this output"):
        shop.rewind("good")
    assert shown(place) == [0, 1]


def test_a_table_that_has_lost_epochs_is_refused(shop: SqlShop, place: Place) -> None:
    place.query("DELETE FROM tidemark_epochs WHERE epoch > 0")
    with pytest.raises(RewindError, match=r"has lost epochs: by tidemark_epochs the newest is 0"):
        shop.rewind("good")
    place.query("DROP TABLE orders")
    with pytest.raises(RewindError, match=r"no longer exists"):
        shop.rewind("good")


@pytest.mark.crash
@pytest.mark.parametrize("point", ["rewind-noted", "rewind-table-back", pytest.param("rewind-restored", marks=only_long)])
def test_a_rewind_that_is_killed(shop: SqlShop, place: Place, point: str) -> None:
    shop.job.driver.release()
    args = [str(shop.folder)]
    kill_at("tests.postgres.test_rewinds:rewind_in_process", point, args)
    assert shown(place) == ([0, 1, 2, 3, 4, 5] if point == "rewind-noted" else [0, 1, 2])
    if point == "rewind-noted":
        journal = read_rewind(shop.job.folder)
        assert isinstance(journal, RewindJournal)
        abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
        # One that slept meanwhile changes nothing.
        with pytest.raises(RewindError, match="aborted by another process"):
            PLACE_REWINDS["sql_table"].revert("taxi", "orders", shop.rig.sink.location, journal)
        assert shown(place) == [0, 1, 2, 3, 4, 5]
    else:
        with pytest.raises(RewindError, match=r"rewound already|reverted already"):
            abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
    assert shop.rewind("good").epoch == 2
    assert shown(place) == [0, 1, 2]
    shop.restart()
    shop.run(1)
    assert shown(place) == [0, 1, 2, 3]
