"""An epoch is in the table once, however often and by whichever driver it is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table, Transaction
from sqlalchemy.exc import OperationalError

from tests.iceberg.rig import COLUMNS, LINEAGE, Lake, Rig
from tests.killed import kill_at
from tidemark.errors import MissingEpochsError, PublishError, StoreError
from tidemark.savepoints.iceberg import commits
from tidemark.savepoints.iceberg.columns import TableTexts
from tidemark.savepoints.iceberg.history import Ledger
from tidemark.state.encoding.codec import to_jsonable


def snapshots(table: Table) -> list[str]:
    return [str(snapshot.summary["tidemark.epoch"]) for snapshot in table.snapshots() if snapshot.summary is not None]


def test_an_epoch_that_is_published_twice(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    record = rig.publish(0, [{"k": "a", "v": 1}, {"k": "a", "v": 1}, {"k": "", "v": None}, {"k": None, "v": 2}])
    again = rig.open()
    for sink in (rig.sink, again):
        sink.publish(record, LINEAGE, 0)
    assert lake.rows() == sorted([("a", 1), ("a", 1), ("", None), (None, 2)], key=repr)
    assert again.newest(LINEAGE) == 0
    assert again.newest("l2") is None
    summary = lake.table().snapshots()[0].summary
    assert summary is not None
    assert {name: summary[f"tidemark.{name}"] for name in ("job", "output", "lineage", "epoch")} == {
        "job": "job",
        "output": "orders",
        "lineage": LINEAGE,
        "epoch": "0",
    }
    rig.publish(1, [{"k": "b", "v": 3}])
    assert len(lake.rows()) == 5
    assert snapshots(lake.table()) == ["0", "1"]


def test_texts_are_in_a_new_table_and_changed_with_the_next_epoch_s_commit(lake: Lake, tmp_path: Path) -> None:
    def shown() -> tuple[str | None, dict[str, str | None]]:
        return lake.table().properties.get("comment"), {column.name: column.doc for column in lake.table().schema().fields}

    Rig(tmp_path, texts=TableTexts("Orders.", {"k": "The key.", "gone": "Not there."})).publish(0, [{"k": "a", "v": 1}])
    assert shown() == ("Orders.", {"k": "The key.", "v": None})
    later = Rig(tmp_path, texts=TableTexts("", {"k": "Its key.", "v": "The value."}))
    later.publish(1, [{"k": "b", "v": 2}])
    assert shown() == ("Orders.", {"k": "Its key.", "v": "The value."}), "what is not described stays"
    schemas = len(lake.table().schemas())
    later.publish(2, [{"k": "c", "v": 3}])
    wider = Rig(tmp_path, columns={**COLUMNS, "w": "long"}, texts=TableTexts("All orders.", {"w": "New."}))
    wider.publish(3, [{"k": "d", "v": 4, "w": 5}])
    assert shown() == ("All orders.", {"k": "Its key.", "v": "The value.", "w": "New."})
    assert len(lake.table().schemas()) - schemas in {1, 2}, "an epoch without a new text makes no schema"
    assert snapshots(lake.table()) == ["0", "1", "2", "3"]
    assert lake.rows() == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]


def test_an_epoch_without_its_files_is_missed_unless_it_was_published(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    record = rig.stage(0, [{"k": "a", "v": 1}])
    rig.sink.staging.delete([file.path for file in record.files])
    with pytest.raises(MissingEpochsError, match="the files that were staged for it are deleted"):
        rig.sink.publish(record, LINEAGE, 0)
    assert not lake.rows()


@pytest.mark.crash
@pytest.mark.parametrize("point", ["iceberg-manifests-written", "iceberg-committed"])
def test_a_driver_that_is_killed(lake: Lake, tmp_path: Path, point: str) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 1}])
    record = rig.stage(1, [{"k": "b", "v": 2}, {"k": None, "v": 3}])
    args = [str(tmp_path), "1", json.dumps(to_jsonable(record))]
    kill_at("tests.iceberg.rig:publish_staged", point, args)
    after = sorted([("a", 1), ("b", 2), (None, 3)], key=repr)
    assert lake.rows() == (after if point == "iceberg-committed" else [("a", 1)])
    for _ in range(2):
        rig.open().publish(record, LINEAGE, 1)
        assert lake.rows() == after
    assert snapshots(lake.table()) == ["0", "1"]


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call a function once, when the next commit is ready and not sent yet."""
    commit, left = Transaction.commit_transaction, [act]

    def late(transaction: Transaction) -> Table:
        if left:
            left.pop()()
        return commit(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", late)


def test_a_driver_that_is_overtaken_adds_nothing(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 0}])
    # By default the library repeats such a commit, which the table cannot forbid.
    with lake.table().transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    record = rig.stage(1, [{"k": "a", "v": 1}])
    newer = rig.open()
    between(monkeypatch, lambda: newer.publish(record, LINEAGE, 1))
    rig.sink.publish(record, LINEAGE, 1)
    assert lake.rows() == [("a", 0), ("a", 1)]
    assert snapshots(lake.table()) == ["0", "1"]


def test_without_that_the_library_would_add_them_twice(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the test above can fail."""
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 0}])
    record = rig.stage(1, [{"k": "a", "v": 1}])
    newer = rig.open()
    monkeypatch.setattr(commits, "_once", Table.transaction)
    between(monkeypatch, lambda: newer.publish(record, LINEAGE, 1))
    rig.sink.publish(record, LINEAGE, 1)
    assert lake.rows() == [("a", 0), ("a", 1), ("a", 1)]


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("error", [CommitStateUnknownException("it is not known"), OperationalError("COMMIT", {}, Exception("lost"))])
def test_a_commit_whose_answer_is_lost(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *, landed: bool
) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 0}])
    record = rig.stage(1, [{"k": "a", "v": 1}])
    commit, left = Transaction.commit_transaction, [error]

    def lossy(transaction: Transaction) -> Table:
        if not left:
            return commit(transaction)
        if landed:
            commit(transaction)
        raise left.pop()

    monkeypatch.setattr(Transaction, "commit_transaction", lossy)
    if isinstance(error, OperationalError):
        with pytest.raises(PublishError, match="could not be published"):
            rig.sink.publish(record, LINEAGE, 1)
    rig.sink.publish(record, LINEAGE, 1)
    assert not left
    assert lake.rows() == [("a", 0), ("a", 1)]
    assert snapshots(lake.table()) == ["0", "1"]


def test_a_table_that_is_made_again_while_an_epoch_is_committed(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 0}])
    record = rig.stage(1, [{"k": "a", "v": 1}])
    schema = lake.table().schema()

    def make_again() -> None:
        lake.catalog().drop_table("shop.orders")
        lake.catalog().create_table("shop.orders", schema)

    between(monkeypatch, make_again)
    with pytest.raises(MissingEpochsError, match="by its properties its newest epoch is none"):
        rig.sink.publish(record, LINEAGE, 1)
    assert not lake.rows()


def test_another_writer_that_is_faster(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 0}])
    record = rig.stage(1, [{"k": "a", "v": 1}])
    table = lake.table()
    other = table.scan().to_arrow()
    between(monkeypatch, lambda: table.append(other))
    rig.sink.publish(record, LINEAGE, 1)
    assert lake.rows() == [("a", 0), ("a", 0), ("a", 1)]
    assert Ledger("job", "orders").lost(lake.table(), LINEAGE, 1) is None


def test_two_outputs_and_drivers_that_publish_at_once(lake: Lake, tmp_path: Path) -> None:
    rigs = [Rig(tmp_path), Rig(tmp_path, job="other", lineage="l2")]
    for rig in rigs:
        rig.publish(0, [{"k": rig.job, "v": 0}])
    for epoch in range(1, 5):
        records = [(rig, rig.stage(epoch, [{"k": rig.job, "v": epoch}])) for rig in rigs]
        with ThreadPoolExecutor(4) as pool:
            ended = [pool.submit(rig.open().publish, record, rig.lineage, epoch) for rig, record in records for _ in range(2)]
        assert [error for each in ended if (error := each.exception()) is not None] == []
    assert lake.rows() == sorted([(rig.job, epoch) for rig in rigs for epoch in range(5)], key=repr)


def test_many_epochs(lake: Lake, tmp_path: Path) -> None:
    """Manifests are merged, and old metadata files deleted; no row is lost or doubled."""
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 0}])
    with lake.table().transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "4", "write.metadata.previous-versions-max": "5"})
    many = 14
    for epoch in range(1, many):
        rig.publish(epoch, [{"k": "a", "v": epoch}])
    table = lake.table()
    newest = table.current_snapshot()
    assert newest is not None
    assert len(newest.manifests(table.io)) < many
    assert lake.rows() == sorted((("a", epoch) for epoch in range(many)), key=repr)
    then = table.snapshots()[4].snapshot_id
    assert table.scan(snapshot_id=then).to_arrow().num_rows == 5
    assert len(list((lake.folder / "tables").rglob("*.metadata.json"))) <= 6


def test_without_the_catalog(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 1}])
    late = rig.stage(1, [{"k": "b", "v": 2}])
    with monkeypatch.context() as patch:
        patch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/nowhere/catalog.db")
        with pytest.raises(PublishError, match=r"could not be published.*Fix: repair that"):
            rig.sink.publish(late, LINEAGE, 1)
        with pytest.raises(StoreError, match="cannot be checked"):
            rig.open().require_whole()
    rig.sink.publish(late, LINEAGE, 1)
    assert lake.rows() == [("a", 1), ("b", 2)]
