"""An epoch is in the table once, however often and by whomever it is published."""

from __future__ import annotations

import json
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.killed import kill_at
from tests.postgres.rig import LINEAGE, VARIABLE, Rig, Row
from tests.postgres.server import NEEDS_POSTGRES, SECRET, Server
from tests.savepoints.stored_jobs import on_disk
from tests.seeds import new_seeds
from tidemark.errors import FencedError, MissingEpochsError, PublishError, StoreError
from tidemark.savepoints.database.ledger import Ledger
from tidemark.savepoints.database.session import DatabaseError
from tidemark.savepoints.postgres import session as postgres_session
from tidemark.savepoints.postgres.dialect import POSTGRES
from tidemark.savepoints.postgres.session import transaction
from tidemark.spark.sinks.postgres.postgres_sink import PostgresSink
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.encoding.codec import to_jsonable

pytestmark = NEEDS_POSTGRES

POINTS = ("database-loaded", "database-applied", "database-committed")


def rows(server: Server, schema: str, columns: str = "k, v") -> list[tuple[Any, ...]]:
    return sorted(server.query(f"SELECT {columns} FROM {schema}.orders"), key=repr)


def epochs(server: Server, schema: str) -> list[tuple[Any, ...]]:
    return server.query(f"SELECT job, lineage, output, epoch, term, rows FROM {schema}.tidemark_epochs WHERE epoch >= 0 ORDER BY epoch")


def test_an_append_that_is_published_twice(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema, "append")
    record = rig.publish(0, [{"k": "a", "v": 1}, {"k": "a", "v": 1}, {"k": "", "v": None}, {"k": None, "v": 2}])
    again = rig.open()
    for sink in (rig.sink, again, rig.open(term=2)):
        sink.publish(record, LINEAGE, 0)
    assert rows(server, schema) == sorted([("a", 1), ("a", 1), ("", None), (None, 2)], key=repr)
    assert epochs(server, schema) == [("job", LINEAGE, "orders", 0, 2, 4)]
    assert again.newest(LINEAGE) == 0
    assert again.newest("l2") is None
    assert not again.staging.list("staging")


def test_an_epoch_without_its_files_is_missed_unless_it_was_published(schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema)
    record = rig.stage(0, [{"k": "a", "v": 1}])
    rig.sink.staging.delete([file.path for file in record.files])
    with pytest.raises(MissingEpochsError, match="the files that were staged for it are deleted"):
        rig.sink.publish(record, LINEAGE, 0)


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed(server: Server, schema: str, tmp_path: Path, point: str) -> None:
    rig = Rig(tmp_path, schema)
    rig.publish(0, [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": None, "v": 3}])
    before = rows(server, schema)
    record = rig.stage(1, [{"k": "a", "v": 10}, {"k": "c", "v": 4}], deleted=[{"k": "b", "v": 2}, {"k": None, "v": 3}])
    after = [("a", 10), ("c", 4)]
    args = [str(tmp_path), schema, "1", json.dumps(to_jsonable(record))]
    kill_at("tests.postgres.rig:publish_staged", point, args)
    assert rows(server, schema) == (after if point == "database-committed" else before)
    for term in (2, 3):
        rig.open(term=term).publish(record, LINEAGE, 1)
        assert rows(server, schema) == after
    assert [row[3:] for row in epochs(server, schema)] == [(0, 1, 3), (1, 3, 4)]
    assert not rig.sink.staging.list("staging")


@pytest.mark.parametrize("seen", ["a later epoch", "the same epoch", "only that it is published"])
def test_an_older_driver_is_refused(server: Server, schema: str, tmp_path: Path, seen: str) -> None:
    zombie = Rig(tmp_path, schema, "append")
    zombie.publish(0, [{"k": "a", "v": 0}])
    newer = Rig(tmp_path, schema, "append", term=2)
    late = zombie.stage(1, [{"k": "a", "v": 1}])
    if seen == "only that it is published":
        newer.sink.publish(newer.stage(0, [{"k": "a", "v": 0}]), LINEAGE, 0)
    else:
        newer.publish(1, [{"k": "b", "v": 1}])
    if seen == "a later epoch":
        newer.publish(2, [{"k": "b", "v": 2}])
    shown = rows(server, schema)
    with pytest.raises(FencedError, match="the driver of term 2 has published") as raised:
        zombie.sink.publish(late, LINEAGE, 1)
    assert "'orders'" in str(raised.value)
    assert rows(server, schema) == shown
    newer.publish(3, [{"k": "b", "v": 3}])
    assert rows(server, schema) == sorted([*shown, ("b", 3)], key=repr)


def test_two_drivers_that_publish_at_once(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema, "append")
    rig.publish(0, [{"k": "a", "v": 0}])
    for epoch in range(1, 9):
        record = rig.stage(epoch, [{"k": "a", "v": epoch}])
        sinks = [rig.open(term=epoch) for _ in range(4)]
        with ThreadPoolExecutor(len(sinks)) as pool:
            ended = [pool.submit(sink.publish, record, LINEAGE, epoch) for sink in sinks]
            errors = [error for each in ended if (error := each.exception()) is not None]
        # One may find files deleted that another has published.
        assert all(isinstance(error, PublishError) for error in errors), errors
        assert len(errors) < len(sinks)
    assert rows(server, schema) == [("a", epoch) for epoch in range(9)]
    assert [row[3] for row in epochs(server, schema)] == list(range(9))


def test_a_suspended_driver_keeps_no_other_waiting(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, schema, "append")
    rig.publish(0, [{"k": "a", "v": 0}])
    record = rig.stage(1, [{"k": "a", "v": 1}])
    monkeypatch.setattr(postgres_session, "IDLE_SECONDS", 1)

    def hold_the_lock() -> None:
        with transaction(rig.table) as suspended:
            Ledger(POSTGRES, rig.table, "job", "orders").lock(suspended)
            rig.sink.publish(record, LINEAGE, 1)
            suspended.query("SELECT 1")

    with pytest.raises(DatabaseError) as raised:
        hold_the_lock()
    assert raised.value.lost
    assert rows(server, schema) == [("a", 0), ("a", 1)]


@pytest.mark.parametrize("seed", new_seeds("postgres upserts", 3))
def test_upserts_and_deletes_with_nulls(server: Server, schema: str, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig(tmp_path, schema, keys=("k", "n"), columns={"k": "string", "n": "long", "v": "long", "V": "long"})
    contents: dict[tuple[str | None, int | None], int] = {}
    keys = [(k, n) for k in ("a", "b", "", None) for n in (1, 2, None)]
    for epoch in range(8):
        changed = chance.sample(keys, chance.randint(1, 6))
        gone = [key for key in changed if key in contents and chance.random() < 0.5]
        new = {key: chance.randint(0, 99) for key in changed if key not in gone}
        contents = {key: value for key, value in {**contents, **new}.items() if key not in gone}
        rig.publish(epoch, [row(key, value) for key, value in new.items()], [row(key, 0) for key in gone])
        assert rows(server, schema, 'k, n, v, "V"') == sorted(((*key, value, -value) for key, value in contents.items()), key=repr)


def row(key: tuple[str | None, int | None], value: int) -> Row:
    return {"k": key[0], "n": key[1], "v": value, "V": -value}


def test_rows_of_only_keys(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema, columns={"k": "string"})
    rig.publish(0, [{"k": "a"}, {"k": None}])
    rig.publish(1, [{"k": "a"}, {"k": "b"}], [{"k": None}])
    rig.publish(2, [], [{"k": "b"}])
    assert rows(server, schema, "k") == [("a",)]


def test_a_server_that_is_restarted_between(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema, "append")
    rig.publish(0, [{"k": "a", "v": 0}])
    for epoch, how in ((1, signal.SIGINT), (2, signal.SIGQUIT)):
        record = rig.stage(epoch, [{"k": "a", "v": epoch}])
        server.stop(how)
        try:
            with pytest.raises(PublishError) as raised:
                rig.sink.publish(record, LINEAGE, epoch)
            assert raised.value.transient
            assert "start the job again" in str(raised.value)
            with pytest.raises(StoreError):
                rig.sink.require_whole()
        finally:
            server.start()
        rig.sink.publish(record, LINEAGE, epoch)
        rig.sink.require_whole()
    assert rows(server, schema) == [("a", 0), ("a", 1), ("a", 2)]


def test_old_rows_of_the_ledger_are_deleted(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.savepoints.database.ledger.KEPT_EPOCHS", 2)
    rig = Rig(tmp_path, schema, "append")
    published = [rig.publish(epoch, [{"k": "a", "v": epoch}]) for epoch in range(6)]
    # The oldest one shows where the lineage began.
    assert [found[3] for found in epochs(server, schema)] == [0, 3, 4, 5]
    rig.sink.publish(published[-1], LINEAGE, 5)
    rig.open(term=9).publish(rig.stage(1, [{"k": "a", "v": 1}]), LINEAGE, 1)
    assert rows(server, schema) == [("a", epoch) for epoch in range(6)]


def test_a_value_that_a_constraint_forbids_is_not_shown(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {schema}.orders (k text, v bigint CONSTRAINT positive CHECK (v > 0))")
    rig = Rig(tmp_path, schema, "append")
    record = rig.stage(0, [{"k": "of-a-customer", "v": -77123}])
    with pytest.raises(PublishError, match="positive") as raised:
        rig.sink.publish(record, LINEAGE, 0)
    assert "77123" not in str(raised.value)
    assert "of-a-customer" not in str(raised.value)
    server.query(f"ALTER TABLE {schema}.orders DROP CONSTRAINT positive")
    rig.sink.publish(record, LINEAGE, 0)
    assert rows(server, schema) == [("of-a-customer", -77123)]


def test_the_variable_is_read_each_time(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, schema, "append")
    monkeypatch.setenv(VARIABLE, server.dsn(password=f"not-{SECRET}"))
    record = rig.stage(0, [{"k": "a", "v": 0}])
    with pytest.raises(PublishError):
        rig.sink.publish(record, LINEAGE, 0)
    monkeypatch.setenv(VARIABLE, server.dsn())
    rig.sink.publish(record, LINEAGE, 0)
    assert rows(server, schema) == [("a", 0)]


@pytest.mark.parametrize("before", ["it published", "it published nothing"])
def test_a_driver_of_a_lineage_that_a_restore_left_is_refused(server: Server, schema: str, tmp_path: Path, before: str) -> None:
    job = on_disk(str(tmp_path))
    zombie = Rig(tmp_path / "store", schema, job=job.name)
    zombie.sink = PostgresSink(zombie.name, zombie.table, SinkOwner.of(job.driver), mode="upsert", keys=zombie.keys)
    if before == "it published":
        zombie.publish(0, [{"k": "a", "v": 0}])
    late = zombie.stage(1, [{"k": "a", "v": 1}])
    job.restart()
    newer = Rig(tmp_path / "store", schema, job=job.name, lineage="l2", term=job.driver.term)
    newer.publish(1, [{"k": "a", "v": 10}])
    with pytest.raises(FencedError):
        zombie.sink.publish(late, LINEAGE, 1)
    assert rows(server, schema) == [("a", 10)]
    newer.publish(2, [{"k": "a", "v": 20}])
    assert rows(server, schema) == [("a", 20)]


def test_a_job_whose_store_was_deleted_begins_with_a_lower_term(server: Server, schema: str, tmp_path: Path) -> None:
    Rig(tmp_path / "old", schema, term=7).publish(5, [{"k": "a", "v": 5}])
    again = Rig(tmp_path / "new", schema, lineage="of-the-new-store", term=1)
    again.publish(0, [{"k": "a", "v": 0}])
    again.publish(1, [{"k": "a", "v": 1}])
    assert rows(server, schema) == [("a", 1)]
