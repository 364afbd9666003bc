"""Rewinds roll a table back to the snapshot of the savepoint's epoch; where that is not possible they are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.iceberg.rig import Lake, Rig
from tests.killed import kill_at
from tests.savepoints.stored_jobs import LEASE, on_disk
from tests.seeds import only_long
from tidemark.errors import MissingEpochsError, PublishError, RewindError, SinkError
from tidemark.savepoints.iceberg.rewinding import IcebergRewind
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind
from tidemark.spark.loop.late_publication import late_publisher
from tidemark.spark.sinks.publication import publish
from tidemark.spark.sinks.sink_sweep import sweep_outputs
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import EpochRecord, SinkPosition

HOUR = 3_600_000


class Shop:
    """A job with one output, whose epochs are committed by hand; each has one row, with its number."""

    def __init__(self, folder: Path, lake: Lake) -> None:
        self.folder, self.lake = folder, lake
        self.job = on_disk(str(folder))
        self.open()

    def open(self, table: str = "orders") -> None:
        last = self.job.driver.last
        lineage = self.job.log.origin() if last is None else last.lineage
        self.rig = Rig(self.folder / "store", lineage=lineage, job="taxi", table=f"shop.{table}")

    def stage(self, *, rows: bool = True) -> EpochRecord:
        last = self.job.driver.last
        epoch = 0 if last is None else last.epoch + 1
        self.rig.sink.require_whole()
        self.job.outputs = {"orders": self.rig.stage(epoch, [{"k": f"e{epoch}", "v": epoch}])} if rows else {}
        return self.job.commit()

    def publish(self, record: EpochRecord, rig: Rig | None = None) -> None:
        found = rig or self.rig
        publish(record, {"orders": BoundSink("orders", found.sink)}, owner=SinkOwner(self.job.folder))

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            self.publish(self.stage())

    def restart(self) -> None:
        self.job.restart()
        self.open()

    def rewind(self, name: str, *, although_unpublished: bool = False) -> EpochRecord:
        self.job.driver.release()
        self.job.clock.advance(HOUR)
        late = None if although_unpublished else late_publisher()
        return rewind(self.job.root, "taxi", name, clock=self.job.clock, publish=late, although_unpublished=although_unpublished)

    @property
    def shown(self) -> list[int]:
        return sorted(value for _, value in self.lake.rows())


@pytest.fixture
def shop(tmp_path: Path, lake: Lake) -> Shop:
    """Epochs 0 to 3, and a savepoint after 1."""
    made = Shop(tmp_path, lake)
    made.run(2)
    made.job.savepoints.take("good")
    made.run(2)
    return made


def test_later_epochs_are_taken_back(shop: Shop) -> None:
    plan = preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock)
    assert (plan.refusals, plan.changed, plan.unpublished) == ((), ("orders",), ())
    assert shop.shown == [0, 1, 2, 3]
    assert shop.rewind("good").epoch == 1
    assert shop.shown == [0, 1]
    shop.restart()
    shop.run(2)
    assert shop.shown == [0, 1, 2, 3]
    shop.job.savepoints.take("later")
    shop.run(1)
    shop.rewind("later")
    assert shop.shown == [0, 1, 2, 3]
    shop.restart()
    shop.run(1)
    shop.rewind("good")
    assert shop.shown == [0, 1]
    with pytest.raises(RewindError, match=r"no longer has the rows of epochs after 1, which an earlier rewind took back.*Fix: "):
        shop.rewind("later")


def test_a_savepoint_before_the_first_rows(tmp_path: Path, lake: Lake) -> None:
    shop = Shop(tmp_path, lake)
    shop.stage(rows=False)
    shop.job.savepoints.take("empty")
    shop.run(2)
    assert shop.shown == [1, 2]
    lineage = shop.rig.lineage
    shop.job.savepoints.take("full")
    shop.rewind("empty")
    assert shop.shown == []
    # The snapshot of the epoch is an ancestor of the newest one, whose rows are none of its.
    with pytest.raises(RewindError, match=r"no longer has the rows of epochs after 0, which an earlier rewind took back"):
        shop.rewind("full")
    with pytest.raises(MissingEpochsError, match=r"a rewind has taken back the epochs after 0"):
        shop.rig.open(before=SinkPosition(lineage=lineage, epoch=2)).require_whole()
    shop.restart()
    shop.run(1)
    assert shop.shown == [1]
    shop.rewind("empty")
    assert shop.shown == []
    shop.restart()
    shop.run(2)
    assert shop.shown == [1, 2]


def test_an_output_that_moved_and_returned(tmp_path: Path, lake: Lake) -> None:
    """Rows from before the savepoint stay, in both tables."""
    shop = Shop(tmp_path, lake)
    shop.run(2)
    shop.open("other")
    shop.run(1)
    shop.job.savepoints.take("moved")
    shop.run(1)
    shop.open()
    shop.run(1)
    assert (shop.shown, lake.rows("other")) == ([0, 1, 4], [("e2", 2), ("e3", 3)])
    shop.rewind("moved")
    assert (shop.shown, lake.rows("other")) == ([0, 1], [("e2", 2)])
    shop.restart()
    shop.open("other")
    shop.run(1)
    assert (shop.shown, lake.rows("other")) == ([0, 1], [("e2", 2), ("e3", 3)])


@pytest.mark.parametrize("ended", ["resumed", "aborted"])
def test_a_rewind_of_two_tables_that_is_interrupted(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    shop = Shop(tmp_path, lake)
    shop.run(1)
    shop.job.savepoints.take("good")
    shop.run(1)
    shop.open("other")
    shop.run(1)
    fails = 0 if ended == "aborted" else 1

    def revert(rewinds: IcebergRewind, job: str, output: str, location: str, journal: RewindJournal) -> bool:
        done.append(location)
        if len(done) > fails:
            raise PublishError("the catalog is away", fix="wait", place=location)
        return reverted(rewinds, job, output, location, journal)

    done: list[str] = []
    reverted = IcebergRewind.revert
    with monkeypatch.context() as patch:
        patch.setattr(IcebergRewind, "revert", revert)
        with pytest.raises(PublishError):
            shop.rewind("good")
    journal = read_rewind(shop.job.folder)
    assert journal is not None
    assert {place.to.isdigit() for place in journal.places.values()} == {True, False}
    if ended == "aborted":
        shop.job.clock.advance(HOUR)
        abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
        assert (shop.shown, lake.rows("other")) == ([0, 1], [("e2", 2)])
    shop.rewind("good")
    assert (shop.shown, lake.rows("other")) == ([0], [])
    shop.restart()
    shop.run(1)
    assert (shop.shown, lake.rows("other")) == ([0, 1], [])


@pytest.mark.parametrize("seen", ["the epoch before", "only the savepoint's epoch"])
def test_a_driver_that_was_suspended_publishes_nothing_afterwards(shop: Shop, monkeypatch: pytest.MonkeyPatch, seen: str) -> None:
    if seen == "only the savepoint's epoch":
        # It read the table when that had the snapshot which is the newest again afterwards.
        shop.rewind("good")
        shop.restart()
    zombie, stopped = shop.rig, shop.stage()
    old = shop.lake.table()
    shop.rewind("good", although_unpublished=True)
    assert shop.shown == [0, 1]
    with monkeypatch.context() as patch:
        # Once as it was read before, then as it is.
        tables = [old, None]
        patch.setattr("tidemark.spark.sinks.iceberg.iceberg_sink.load", lambda *_: tables.pop(0) or shop.lake.table())
        shop.publish(stopped, zombie)
        assert not tables
    assert shop.shown == [0, 1]
    shop.restart()
    shop.run(1)
    shop.publish(stopped, zombie)
    assert shop.shown == [0, 1, 2]


def test_the_newest_epoch_is_published_first(shop: Shop) -> None:
    shop.stage()
    shop.job.driver.release()
    assert preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock).unpublished == ("orders",)
    shop.rewind("good")
    assert shop.shown == [0, 1]


def test_rows_of_other_writers_are_not_taken_back(shop: Shop) -> None:
    Rig(shop.folder / "store", job="bus", lineage="other").publish(0, [{"k": "other", "v": 100}])
    with pytest.raises(RewindError, match=r"has a snapshot of another writer, \d+, after those.*restore the state alone"):
        shop.rewind("good")
    assert shop.shown == [0, 1, 2, 3, 100]
    assert read_rewind(shop.job.folder) is None


def test_a_table_that_was_rolled_back(shop: Shop) -> None:
    table = shop.lake.table()
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    with pytest.raises(RewindError, match=r"has lost epochs: its current snapshot does not come from that of epoch 1"):
        shop.rewind("good")
    shop.lake.catalog().drop_table("shop.orders")
    with pytest.raises(RewindError, match=r"no longer exists"):
        shop.rewind("good")


def test_an_expired_snapshot(shop: Shop) -> None:
    shop.lake.table().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()  # noqa: TID251 - the library's
    assert len(shop.lake.table().snapshots()) == 1
    with pytest.raises(RewindError, match=r"no longer has the snapshot of epoch 1, which is expired.*keep snapshots as long as savepoints"):
        shop.rewind("good")
    shop.restart()
    shop.run(1)
    assert shop.shown == [0, 1, 2, 3, 4]


def test_what_a_rewind_took_back_is_missed_after_its_snapshots_are_expired(shop: Shop) -> None:
    lineage = shop.rig.lineage
    shop.rewind("good")
    shop.restart()
    shop.run(1)
    shop.lake.table().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()  # noqa: TID251 - the library's
    shop.rig.open(before=SinkPosition(lineage=lineage, epoch=1)).require_whole()
    sink = shop.rig.open(before=SinkPosition(lineage=lineage, epoch=3))
    with pytest.raises(MissingEpochsError, match=r"a rewind has taken back the epochs after 1"):
        sink.require_whole()
    sink.adopt()
    assert sink.position == SinkPosition(lineage=lineage, epoch=1)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["rewind-noted", "rewind-table-back", pytest.param("rewind-restored", marks=only_long)])
def test_a_rewind_that_is_killed(shop: Shop, point: str) -> None:
    shop.job.driver.release()
    args = [str(shop.folder)]
    kill_at("tests.iceberg.test_rewinds:rewind_in_process", point, args)
    assert shop.shown == ([0, 1, 2, 3] if point == "rewind-noted" else [0, 1])
    if point == "rewind-noted":
        journal = read_rewind(shop.job.folder)
        assert isinstance(journal, RewindJournal)
        abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
        with pytest.raises(RewindError, match="aborted by another process"):
            IcebergRewind().revert("taxi", "orders", shop.rig.sink.location, journal)
        assert shop.shown == [0, 1, 2, 3]
    else:
        with pytest.raises(RewindError, match=r"rewound already|reverted already"):
            abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
    assert shop.rewind("good").epoch == 1
    assert shop.shown == [0, 1]
    shop.restart()
    shop.run(1)
    assert shop.shown == [0, 1, 2]


def rewind_in_process(folder: str) -> None:
    """Rewind in a process of its own, which is killed."""
    job = on_disk(folder)
    job.driver.release()
    rewind(job.root, "taxi", "good", clock=job.clock, publish=late_publisher())


def test_without_the_catalog(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{shop.folder}/nowhere/catalog.db")
    with pytest.raises(SinkError, match="cannot be read"):
        preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock)
    with pytest.raises(PublishError, match="could not be rewound"):
        IcebergRewind().revert("taxi", "orders", shop.rig.sink.location, RewindJournal("r", "good", "l", 1, {}, 0))


def test_only_files_that_nothing_has_are_deleted(shop: Shop) -> None:
    def files() -> set[str]:
        return {file.path for file in shop.rig.sink.staging.list("tidemark")}

    def sweep() -> None:
        lineage = shop.rig.lineage
        for _ in range(2):
            shop.job.clock.advance(LEASE + 1)
            sweep_outputs(shop.job.driver, {"orders": BoundSink("orders", shop.rig.sink)}, lineage, lease_ms=LEASE)

    published = files()
    abandoned = shop.rig.stage(4, [{"k": "x", "v": 4}])
    assert files() == published | {abandoned.files[0].path}
    sweep()
    assert files() == published
    newest = shop.lake.table().current_snapshot()
    assert newest is not None
    shop.rewind("good")
    shop.restart()
    sweep()
    assert files() == published
    # Those of the snapshots that were rolled back can still be read.
    assert shop.rig.sink.visible_files() == published
    assert shop.lake.table().scan(snapshot_id=newest.snapshot_id).to_arrow().num_rows == 4
