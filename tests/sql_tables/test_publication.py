"""An epoch is in the table once, however often and by whomever it is published."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.killed import kill_at
from tests.seeds import new_seeds, only_long
from tests.sql_tables.place import MariadbPlace, Place, columns
from tests.sql_tables.rig import LINEAGE, VARIABLE, SqlRig
from tests.sql_tables.server import NEEDS_MARIADB, SECRET
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import FencedError, MissingEpochsError, PublishError, StoreError
from tidemark.savepoints.database.ledger import Ledger
from tidemark.savepoints.database.session import DatabaseError
from tidemark.savepoints.sql_table import mariadb as mariadb_dialect
from tidemark.savepoints.sql_table.mariadb import MARIADB
from tidemark.spark.sinks.database import publication
from tidemark.spark.sinks.sql_table.sql_table_sink import SqlTableSink
from tidemark.spark.sinks.staging.local_copy import parquet_copy
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.store.store import JobStore

POINTS = ("database-loaded", "database-applied", "database-committed")


def rows(place: Place, names: str = "k, v") -> list[tuple[Any, ...]]:
    return sorted(place.query(f"SELECT {names} FROM orders"), key=repr)


def epochs(place: Place) -> list[tuple[Any, ...]]:
    names = f"job, lineage, output, epoch, term, {place.quoted('rows')}"
    return place.query(f"SELECT {names} FROM tidemark_epochs WHERE epoch >= 0 ORDER BY epoch")


def test_an_append_that_is_published_twice(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database, "append")
    record = rig.publish(0, [{"k": "a", "v": 1}, {"k": "a", "v": 1}, {"k": "", "v": None}, {"k": None, "v": 2}])
    again = rig.open()
    for sink in (rig.sink, again, rig.open(term=2)):
        sink.publish(record, LINEAGE, 0)
    assert rows(place) == sorted([("a", 1), ("a", 1), ("", None), (None, 2)], key=repr)
    assert epochs(place) == [("job", LINEAGE, "orders", 0, 2, 4)]
    assert again.newest(LINEAGE) == 0
    assert again.newest("l2") is None
    assert not again.staging.list("staging")


def test_an_epoch_without_its_files_is_missed_unless_it_was_published(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database)
    record = rig.stage(0, [{"k": "a", "v": 1}])
    rig.sink.staging.delete([file.path for file in record.files])
    with pytest.raises(MissingEpochsError, match="the files that were staged for it are deleted"):
        rig.sink.publish(record, LINEAGE, 0)


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("change", [pytest.param("no column", marks=only_long), "a new column"])
def test_a_driver_that_is_killed(place: Place, tmp_path: Path, point: str, change: str) -> None:
    rig = SqlRig(tmp_path, place.database)
    rig.publish(0, [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": None, "v": 3}])
    before = rows(place)
    if change != "no column":
        rig.columns = {**rig.columns, "n": "long"}
    record = rig.stage(1, [{"k": "a", "v": 10}, {"k": "c", "v": 4}], deleted=[{"k": "b", "v": 2}, {"k": None, "v": 3}])
    after = [("a", 10), ("c", 4)]
    args = [str(tmp_path), place.database, "1", json.dumps(to_jsonable(record))]
    kill_at("tests.sql_tables.rig:publish_staged", point, args)
    assert rows(place) == (after if point == "database-committed" else before)
    for term in (2, 3):
        rig.open(term=term).publish(record, LINEAGE, 1)
        assert rows(place) == after
    assert [row[3:] for row in epochs(place)] == [(0, 1, 3), (1, 3, 4)]
    assert ("n" in columns(place)) == (change != "no column")
    assert not rig.sink.staging.list("staging")


@pytest.mark.crash
def test_a_driver_that_is_killed_while_it_makes_the_table(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database)
    record = rig.stage(0, [{"k": "a", "v": 1}])
    args = [str(tmp_path), place.database, "0", json.dumps(to_jsonable(record))]
    kill_at("tests.sql_tables.rig:publish_staged", "database-applied", args)
    assert rig.sink.occupancy in ("missing", "empty")
    assert rig.sink.newest(LINEAGE) is None
    rig.publish(0, [{"k": "a", "v": 1}])
    assert rows(place) == [("a", 1)]
    # It counts as made by the output, so that rewinds may delete from it.
    assert place.query("SELECT mode, epoch FROM tidemark_epochs WHERE epoch < 0") == [("created", -1)]


@pytest.mark.parametrize("seen", ["a later epoch", "the same epoch", "only that it is published"])
def test_an_older_driver_is_refused(place: Place, tmp_path: Path, seen: str) -> None:
    zombie = SqlRig(tmp_path, place.database, "append")
    zombie.publish(0, [{"k": "a", "v": 0}])
    newer = SqlRig(tmp_path, place.database, "append", term=2)
    late = zombie.stage(1, [{"k": "a", "v": 1}])
    if seen == "only that it is published":
        newer.sink.publish(newer.stage(0, [{"k": "a", "v": 0}]), LINEAGE, 0)
    else:
        newer.publish(1, [{"k": "b", "v": 1}])
    if seen == "a later epoch":
        newer.publish(2, [{"k": "b", "v": 2}])
    shown = rows(place)
    with pytest.raises(FencedError, match="the driver of term 2 has published"):
        zombie.sink.publish(late, LINEAGE, 1)
    assert rows(place) == shown
    newer.publish(3, [{"k": "b", "v": 3}])
    assert rows(place) == sorted([*shown, ("b", 3)], key=repr)


def test_a_driver_of_a_lineage_that_a_restore_has_left_is_refused(place: Place, tmp_path: Path) -> None:
    left = SqlRig(tmp_path, place.database, "append")
    left.publish(0, [{"k": "a", "v": 0}])
    owner = SinkOwner(left.open(term=2).owner.store, 2)
    restored = SqlTableSink("orders", left.sql_table, owner)
    restored.publish(left.stage(0, [{"k": "b", "v": 0}]), "l2", 0)
    with pytest.raises(FencedError, match="the driver of term 2 has published"):
        left.publish(1, [{"k": "a", "v": 1}])
    assert rows(place) == [("a", 0), ("b", 0)]


def test_two_drivers_that_publish_at_once(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database, "append")
    rig.publish(0, [{"k": "a", "v": 0}])
    for epoch in range(1, 6):
        record = rig.stage(epoch, [{"k": "a", "v": epoch}])
        sinks = [rig.open(term=epoch) for _ in range(4)]
        with ThreadPoolExecutor(len(sinks)) as pool:
            ended = [pool.submit(sink.publish, record, LINEAGE, epoch) for sink in sinks]
            errors = [error for each in ended if (error := each.exception()) is not None]
        # One may find files deleted that another has published.
        assert all(isinstance(error, PublishError) for error in errors), errors
        assert len(errors) < len(sinks)
    assert rows(place) == [("a", epoch) for epoch in range(6)]
    assert [row[3] for row in epochs(place)] == list(range(6))


def test_first_publications_at_once_make_one_table(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database, "append")
    record = rig.stage(0, [{"k": "a", "v": 0}])
    with ThreadPoolExecutor(4) as pool:
        ended = [pool.submit(rig.open().publish, record, LINEAGE, 0) for _ in range(4)]
        errors = [error for each in ended if (error := each.exception()) is not None]
    assert all(isinstance(error, PublishError) for error in errors), errors
    assert rows(place) == [("a", 0)]


@NEEDS_MARIADB
def test_a_suspended_driver_keeps_no_other_waiting(mariadb: MariadbPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SqlRig(tmp_path, "mariadb", "append")
    rig.publish(0, [{"k": "a", "v": 0}])
    record = rig.stage(1, [{"k": "a", "v": 1}])
    monkeypatch.setattr(mariadb_dialect, "IDLE_SECONDS", 1)

    def hold_the_lock() -> None:
        with MARIADB.transaction(rig.sql_table) as suspended:
            Ledger(MARIADB, rig.sql_table, "job", "orders").lock(suspended)
            rig.sink.publish(record, LINEAGE, 1)
            suspended.query("SELECT 1")

    with pytest.raises(DatabaseError) as raised:
        hold_the_lock()
    assert raised.value.lost
    assert rows(mariadb) == [("a", 0), ("a", 1)]


@NEEDS_MARIADB
def test_a_staged_file_that_takes_long_to_copy(mariadb: MariadbPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SqlRig(tmp_path, "mariadb", "append")
    rig.publish(0, [{"k": "a", "v": 0}])
    record = rig.stage(1, [{"k": "a", "v": 1}])

    @contextmanager
    def slow_copy(store: JobStore, path: str) -> Iterator[pq.ParquetFile]:
        SYSTEM_CLOCK.sleep(2.5)
        with parquet_copy(store, path) as copied:
            yield copied

    monkeypatch.setattr(publication, "parquet_copy", slow_copy)
    # Both the server's limit and that of a connection with a lock are shorter than the copy takes.
    monkeypatch.setattr(mariadb_dialect, "IDLE_SECONDS", 1)
    (before,) = mariadb.query("SELECT @@GLOBAL.wait_timeout")
    mariadb.query("SET GLOBAL wait_timeout = 1")
    try:
        rig.sink.publish(record, LINEAGE, 1)
    finally:
        mariadb.query("SET GLOBAL wait_timeout = %s", *before)
    assert rows(mariadb) == [("a", 0), ("a", 1)]


@pytest.mark.parametrize("seed", new_seeds("sql upserts", 3))
def test_upserts_and_deletes_with_nulls(place: Place, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rig = SqlRig(tmp_path, place.database, keys=("k", "n"), columns={"k": "string", "n": "long", "v": "long"})
    contents: dict[tuple[str | None, int | None], int] = {}
    # Texts that a database might take as equal.
    keys = [(k, n) for k in ("a", "A", "a ", "á", "", None) for n in (1, None)]
    for epoch in range(8):
        changed = chance.sample(keys, chance.randint(1, 6))
        gone = [key for key in changed if key in contents and chance.random() < 0.5]
        new = {key: chance.randint(0, 99) for key in changed if key not in gone}
        contents = {key: value for key, value in {**contents, **new}.items() if key not in gone}
        given = [{"k": k, "n": n, "v": value} for (k, n), value in new.items()]
        rig.publish(epoch, given, [{"k": k, "n": n, "v": 0} for k, n in gone])
        assert rows(place, "k, n, v") == sorted(((*key, value) for key, value in contents.items()), key=repr)


def test_rows_of_only_keys(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database, columns={"k": "string"})
    rig.publish(0, [{"k": "a"}, {"k": None}])
    rig.publish(1, [{"k": "a"}, {"k": "b"}], [{"k": None}])
    rig.publish(2, [], [{"k": "b"}])
    assert rows(place, "k") == [("a",)]


@NEEDS_MARIADB
def test_a_server_that_is_restarted_between(mariadb: MariadbPlace, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, "mariadb", "append")
    rig.publish(0, [{"k": "a", "v": 0}])
    for epoch, how in ((1, signal.SIGTERM), (2, signal.SIGKILL)):
        record = rig.stage(epoch, [{"k": "a", "v": epoch}])
        mariadb.server.stop(how)
        try:
            with pytest.raises(PublishError) as raised:
                rig.sink.publish(record, LINEAGE, epoch)
            assert raised.value.transient
            with pytest.raises(StoreError):
                rig.sink.require_whole()
        finally:
            mariadb.server.start()
        rig.sink.publish(record, LINEAGE, epoch)
        rig.sink.require_whole()
    assert rows(mariadb) == [("a", 0), ("a", 1), ("a", 2)]


def test_old_rows_of_the_ledger_are_deleted(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.savepoints.database.ledger.KEPT_EPOCHS", 2)
    rig = SqlRig(tmp_path, place.database, "append")
    published = [rig.publish(epoch, [{"k": "a", "v": epoch}]) for epoch in range(6)]
    # The oldest one shows where the lineage began.
    assert [found[3] for found in epochs(place)] == [0, 3, 4, 5]
    rig.sink.publish(published[-1], LINEAGE, 5)
    rig.open(term=9).publish(rig.stage(1, [{"k": "a", "v": 1}]), LINEAGE, 1)
    assert rows(place) == [("a", epoch) for epoch in range(6)]


def test_a_row_that_a_constraint_forbids_is_not_shown(place: Place, tmp_path: Path) -> None:
    place.query("CREATE TABLE orders (k varchar(40) UNIQUE, v bigint, CONSTRAINT positive CHECK (v > 0))")
    rig = SqlRig(tmp_path, place.database, "append")
    records = [rig.stage(0, [{"k": "of-a-customer", "v": -77123}]), rig.stage(1, [{"k": "of-a-customer", "v": 77123}] * 2)]
    for record, what in zip(records, ("positive", "(?i)unique|duplicate"), strict=True):
        with pytest.raises(PublishError, match=what) as raised:
            rig.sink.publish(record, LINEAGE, 0)
        assert "77123" not in str(raised.value)
        assert "of-a-customer" not in str(raised.value)
    assert not place.query("SELECT k FROM orders")


@NEEDS_MARIADB
def test_the_variable_is_read_each_time(mariadb: MariadbPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SqlRig(tmp_path, "mariadb", "append")
    monkeypatch.setenv(VARIABLE, mariadb.server.dsn(mariadb.name, password=f"not-{SECRET}"))
    record = rig.stage(0, [{"k": "a", "v": 0}])
    with pytest.raises(PublishError):
        rig.sink.publish(record, LINEAGE, 0)
    monkeypatch.setenv(VARIABLE, mariadb.dsn())
    rig.sink.publish(record, LINEAGE, 0)
    assert rows(mariadb) == [("a", 0)]
