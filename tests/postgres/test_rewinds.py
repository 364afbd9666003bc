"""Rewinds of tables whose rows have their epoch's number; of others they are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.killed import kill_at
from tests.postgres.rig import VARIABLE, Mode, Rig
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.savepoints.stored_jobs import on_disk
from tests.seeds import only_long
from tidemark.errors import FencedError, PublishError, RewindError, SinkError
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind
from tidemark.savepoints.rewind.place_rewinds import PLACE_REWINDS
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind
from tidemark.spark.loop.late_publication import late_publisher
from tidemark.spark.sinks.publication import publish
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import EpochRecord

pytestmark = NEEDS_POSTGRES

HOUR = 3_600_000


class Shop:
    """A job with one output in Postgres, whose epochs are committed by hand; each has one row, with its number."""

    rigs: type[Rig] = Rig

    def __init__(self, folder: Path, schema: str, mode: Mode = "history") -> None:
        self.folder, self.schema, self.mode = folder, schema, mode
        self.job = on_disk(str(folder))
        self.open()

    def open(self) -> None:
        last = self.job.driver.last
        lineage = self.job.log.origin() if last is None else last.lineage
        self.rig = self.rigs(self.folder / "store", self.schema, self.mode, term=self.job.driver.term, lineage=lineage, job="taxi")

    def stage(self) -> EpochRecord:
        last = self.job.driver.last
        epoch = 0 if last is None else last.epoch + 1
        self.job.outputs = {"orders": self.rig.stage(epoch, [{"k": f"e{epoch}", "v": epoch}])}
        return self.job.commit()

    def publish(self, record: EpochRecord, rig: Rig | None = None) -> None:
        found = rig or self.rig
        publish(record, {"orders": BoundSink("orders", found.sink)}, owner=SinkOwner(self.job.folder, found.term))

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            self.publish(self.stage())

    def restart(self) -> None:
        self.job.restart()
        self.open()

    def rewind(self, name: str) -> EpochRecord:
        self.job.driver.release()
        self.job.clock.advance(HOUR)
        return rewind(self.job.root, "taxi", name, clock=self.job.clock, publish=late_publisher())


@pytest.fixture
def shop(tmp_path: Path, schema: str) -> Shop:
    """Epochs 0 to 5, and a savepoint after 2."""
    made = Shop(tmp_path, schema)
    made.run(3)
    made.job.savepoints.take("good")
    made.run(3)
    return made


def shown(server: Server, schema: str) -> list[int]:
    return [found[0] for found in server.query(f"SELECT v FROM {schema}.orders ORDER BY v")]


def test_rows_of_later_epochs_are_deleted(shop: Shop, server: Server, schema: str) -> None:
    plan = preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock)
    assert (plan.refusals, plan.changed, plan.unpublished) == ((), ("orders",), ())
    assert shown(server, schema) == [0, 1, 2, 3, 4, 5]
    head = shop.rewind("good")
    assert head.epoch == 2
    assert shown(server, schema) == [0, 1, 2]
    shop.restart()
    shop.rig.sink.require_whole()
    shop.run(2)
    assert shown(server, schema) == [0, 1, 2, 3, 4]
    shop.job.savepoints.take("later")
    shop.run(2)
    shop.rewind("later")
    assert shown(server, schema) == [0, 1, 2, 3, 4]
    shop.restart()
    shop.run(1)
    shop.rewind("good")
    assert shown(server, schema) == [0, 1, 2]


def test_what_a_rewind_deleted_does_not_come_back(shop: Shop, server: Server, schema: str) -> None:
    shop.job.savepoints.take("newest")
    shop.rewind("good")
    shop.restart()
    shop.run(1)
    with pytest.raises(RewindError, match=r"no longer has the rows of epochs after 2, which an earlier rewind deleted.*Fix: "):
        shop.rewind("newest")
    assert shown(server, schema) == [0, 1, 2, 3]


def test_a_driver_that_was_suspended_publishes_nothing_afterwards(shop: Shop, server: Server, schema: str) -> None:
    zombie, stopped = shop.rig, shop.stage()
    shop.job.driver.release()
    shop.job.clock.advance(HOUR)
    rewind(shop.job.root, "taxi", "good", clock=shop.job.clock, although_unpublished=True)
    assert shown(server, schema) == [0, 1, 2]
    shop.publish(stopped, zombie)
    assert shown(server, schema) == [0, 1, 2]
    shop.restart()
    shop.run(1)
    shop.publish(stopped, zombie)
    assert shown(server, schema) == [0, 1, 2, 3]


def test_the_newest_epoch_is_published_first(shop: Shop, server: Server, schema: str) -> None:
    shop.stage()
    shop.job.driver.release()
    assert preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock).unpublished == ("orders",)
    shop.rewind("good")
    assert shown(server, schema) == [0, 1, 2]
    newest = server.query(f"SELECT mode, kept FROM {schema}.tidemark_epochs WHERE epoch = 6")
    assert newest == [("rewound", 2)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_keeps_no_history_is_refused(tmp_path: Path, server: Server, schema: str, mode: Mode) -> None:
    shop = Shop(tmp_path, schema, mode)
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
    assert shown(server, schema) == [0, 1, 2]
    assert read_rewind(shop.job.folder) is None


def test_a_table_of_several_outputs_is_refused(shop: Shop, server: Server, schema: str) -> None:
    other = Rig(shop.folder / "store", schema, "history", job="bus", lineage="other")
    other.publish(3, [{"k": "other", "v": 100}])
    with pytest.raises(RewindError, match="has rows of other outputs"):
        shop.rewind("good")
    assert shown(server, schema) == [0, 1, 2, 3, 4, 5, 100]


def test_a_table_that_has_lost_epochs_is_refused(shop: Shop, server: Server, schema: str) -> None:
    server.query(f"DELETE FROM {schema}.tidemark_epochs WHERE epoch > 0")
    with pytest.raises(RewindError, match=r"has lost epochs: by tidemark_epochs the newest is 0"):
        shop.rewind("good")
    server.query(f"DROP TABLE {schema}.orders")
    with pytest.raises(RewindError, match=r"no longer exists"):
        shop.rewind("good")


@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    ["rewind-noted", "rewind-table-back", *(pytest.param(each, marks=only_long) for each in ("rewind-tables-back", "rewind-restored"))],
)
def test_a_rewind_that_is_killed(shop: Shop, server: Server, schema: str, point: str) -> None:
    shop.job.driver.release()
    args = [str(shop.folder)]
    kill_at("tests.postgres.test_rewinds:rewind_in_process", point, args)
    assert shown(server, schema) == ([0, 1, 2, 3, 4, 5] if point == "rewind-noted" else [0, 1, 2])
    if point == "rewind-noted":
        abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
        assert shown(server, schema) == [0, 1, 2, 3, 4, 5]
    else:
        with pytest.raises(RewindError, match=r"rewound already|reverted already"):
            abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
    assert shop.rewind("good").epoch == 2
    assert shown(server, schema) == [0, 1, 2]
    shop.restart()
    shop.run(1)
    assert shown(server, schema) == [0, 1, 2, 3]


def rewind_in_process(folder: str) -> None:
    """Rewind in a process of its own, which is killed."""
    job = on_disk(folder)
    job.driver.release()
    rewind(job.root, "taxi", "good", clock=job.clock, publish=late_publisher())


@pytest.mark.crash
def test_a_rewind_that_sleeps_while_it_is_aborted(shop: Shop, server: Server, schema: str) -> None:
    shop.job.driver.release()
    kill_at("tests.postgres.test_rewinds:rewind_in_process", "rewind-noted", [str(shop.folder)])
    journal = read_rewind(shop.job.folder)
    assert isinstance(journal, RewindJournal)
    abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
    with pytest.raises(RewindError, match="aborted by another process"):
        PLACE_REWINDS["postgres"].revert("taxi", "orders", shop.rig.sink.location, journal)
    assert shown(server, schema) == [0, 1, 2, 3, 4, 5]
    shop.restart()
    shop.run(1)
    assert shown(server, schema) == [0, 1, 2, 3, 4, 5, 6]


def test_without_the_server(shop: Shop, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, os.environ[VARIABLE].replace(f":{server.port}/", ":1/"))
    with pytest.raises(SinkError, match="cannot be read"):
        preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock)
    with pytest.raises(PublishError, match="could not be rewound"):
        PLACE_REWINDS["postgres"].revert("taxi", "orders", shop.rig.sink.location, RewindJournal("r", "good", "l", 2, {}, 0))


def test_an_older_driver_than_that_of_the_rewind_is_refused(shop: Shop) -> None:
    zombie = shop.rig
    shop.restart()
    shop.run(1)
    with pytest.raises(FencedError):
        zombie.publish(7, [{"k": "x", "v": 7}])
