"""The snapshot and the changes after it, against a server on which others write at the same time."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.postgres.rig import VARIABLE
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres_changes.rig import Content, Source, source_node
from tests.postgres_changes.writers import writers
from tidemark.graph.model.postgres_changes_spec import CapturedTable
from tidemark.spark.sources.planning import postgres_planner
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition, lsn_text
from tidemark.spark.sources.postgres_changes.server import ChangesServer, TablePart

pytestmark = NEEDS_POSTGRES

ROWS = 1_000
ORDERS = {"orders": ("id BIGINT, total DECIMAL(12, 2), note STRING", ["id"])}


def make_orders(server: Server, schema: str, rows: int = ROWS) -> None:
    server.query(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text)")
    server.query(f"INSERT INTO {schema}.orders SELECT i, i * 1.5, 'n' || i FROM generate_series(1, {rows}) AS i")


def content_of(server: Server, table: str, columns: str, keys: int = 1) -> Content:
    """Return the content of a table as texts, by key, the first columns."""
    names = [name.strip() for name in columns.split(",")]
    listed = ", ".join(f"{name}::text" for name in names)
    return {tuple(row[:keys]): dict(zip(names, row, strict=True)) for row in server.query(f"SELECT {listed} FROM {table}")}


def test_a_snapshot_while_others_write(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema)
    source = Source(tmp_path, source_node(schema, ORDERS, max_rows_per_epoch=150))
    chosen, takes, replayed = random.Random(1), 0, 0
    with writers(server, f"{schema}.orders", ROWS + 200) as written:
        while source.is_unfinished or takes < 20:
            planned, takes = source.take(), takes + 1
            if planned is None:
                continue
            match chosen.randint(0, 3):
                case 0:  # a crash after the plan: it is replayed
                    source.open({"shop": planned.as_stored()})
                    assert source.take() == planned
                    source.commit(planned)
                    replayed += 1
                case 1:  # a crash before the plan
                    source.open()
                case _:
                    source.commit(planned)
    assert min(writer.transactions for writer in written) > 5
    assert replayed > 1
    source.run()
    source.close()
    assert source.contents[f"{schema}.orders"] == content_of(server, f"{schema}.orders", "id, total, note")


class Writing(ChangesServer):
    """A server on which others write after each part of a table was read: after the part's LSN, or before it, unseen by the part."""

    def __init__(self, inner: ChangesServer, write: Callable[[], None], content: Callable[[], Content]) -> None:
        self.__dict__.update(inner.__dict__)
        self.write = write
        self.content = content
        self.there: Content = {}
        self.parts = 0

    def part(self, table: CapturedTable, types: Sequence[str], after: Sequence[str] | None, most: int, **rows: Any) -> TablePart:
        found = super().part(table, types, after, most, **rows)
        self.parts += 1
        if self.parts % 2:
            self.there = self.content()
            self.write()
            return found
        self.write()
        self.there = self.content()
        return replace(found, lsn=self.flushed())


def test_each_epoch_leaves_the_table_as_it_was_at_its_position(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, rows=600)
    table, steps = f"{schema}.orders", count(1)

    def write() -> None:
        step = next(steps)
        # In the part, in those that were read, in those that are not read yet; rows that are new, moved and deleted.
        server.query(f"UPDATE {table} SET note = note || '{step}' WHERE id % 60 = {step % 60}")
        server.query(f"DELETE FROM {table} WHERE id = {90 * step + 3}")
        server.query(f"UPDATE {table} SET id = {90 * step + 3} WHERE id = 1")
        server.query(f"INSERT INTO {table} VALUES (1, {step}, NULL)")

    source = Source(tmp_path, source_node(schema, ORDERS, max_rows_per_epoch=100))
    writing = Writing(source.open().server, write, lambda: content_of(server, table, "id, total, note"))
    source.planner.server = writing  # type: ignore[union-attr]
    limits = []
    while source.is_unfinished:
        write()
        planned = source.take()
        assert planned is not None
        source.commit(planned)
        found, after = source.contents[table], planned.tables[table].after
        limits.append(10**6 if after is None else int(after[0]))
        if len(planned.files) and any(row["operation"] == "read" for _, row in source.rows_of(planned)):
            there = writing.there
            assert {key: row for key, row in there.items() if int(key[0]) <= limits[-1]}.items() <= found.items()
            assert found.items() <= there.items()
    assert writing.parts >= 5
    assert limits == sorted(limits)
    source.run()
    assert source.contents[table] == content_of(server, table, "id, total, note")


def test_several_tables_with_keys_of_several_columns(server: Server, schema: str, tmp_path: Path) -> None:
    for statement in (
        "CREATE TABLE {0}.lines (name text, line int, at timestamptz, PRIMARY KEY (line, name))",
        "INSERT INTO {0}.lines SELECT chr(97 + i % 26) || 'É''\"%', i / 10, '2026-11-26 09:00:00.5+01' FROM generate_series(0, 99) AS i",
        "CREATE TABLE {0}.parted (id uuid, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE {0}.parted_1 PARTITION OF {0}.parted FOR VALUES FROM ('2026-01-01') TO ('2026-07-01')",
        "CREATE TABLE {0}.parted_2 PARTITION OF {0}.parted FOR VALUES FROM ('2026-07-01') TO ('2027-01-01')",
        "INSERT INTO {0}.parted SELECT gen_random_uuid(), date '2026-01-01' + i * 11 FROM generate_series(0, 30) AS i",
    ):
        server.query(statement.format(schema))
    columns = {"lines": ("name STRING, line INT, at TIMESTAMP", ["name", "line"]), "parted": ("id STRING, day DATE", ["id", "day"])}
    source = Source(tmp_path, source_node(schema, columns, max_rows_per_epoch=13))
    source.run()
    server.query(f"UPDATE {schema}.parted SET day = '2026-12-31' WHERE day = '2026-01-01'")
    server.query(f"DELETE FROM {schema}.lines WHERE line = 3; UPDATE {schema}.lines SET line = -line WHERE line = 4")
    source.run()
    lines = source.contents[f"{schema}.lines"]
    assert lines == content_of(server, f"{schema}.lines", "name, line, at", 2)
    assert {row["at"] for row in lines.values()} == {"2026-11-26 08:00:00.5+00"}
    assert source.contents[f"{schema}.parted"] == content_of(server, f"{schema}.parted", "id, day", 2)
    assert len(server.query("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", slot_of(source))) == 1


def test_large_values_that_do_not_change(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, rows=6)
    table = f"{schema}.orders"
    server.query(f"ALTER TABLE {table} ALTER COLUMN note SET STORAGE EXTERNAL")
    server.query(f"UPDATE {table} SET note = repeat('long', 2000) || id")
    source = Source(tmp_path, source_node(schema, ORDERS))
    source.run()
    server.query(f"UPDATE {table} SET total = 7 WHERE id <= 3")
    server.query(f"UPDATE {table} SET id = 10 WHERE id = 2")
    source.run()
    assert source.contents[table] == content_of(server, table, "id, total, note")
    server.query(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    server.query(f"UPDATE {table} SET total = 8 WHERE id <= 3")
    server.query(f"UPDATE {table} SET id = 11 WHERE id = 3")
    source.run()
    assert source.contents[table] == content_of(server, table, "id, total, note")
    # The value is another one by the time that the change is read, and the row does not exist any more.
    server.query(f"UPDATE {table} SET total = 9 WHERE id = 1")
    server.query(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
    server.query(f"UPDATE {table} SET total = 10 WHERE id IN (1, 4)")
    server.query(f"UPDATE {table} SET note = 'short' WHERE id = 1")
    server.query(f"DELETE FROM {table} WHERE id = 4")
    source.run()
    assert source.contents[table] == content_of(server, table, "id, total, note")


def test_epochs_of_bounded_size(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, rows=30)
    table = f"{schema}.orders"
    source = Source(tmp_path, source_node(schema, ORDERS, snapshot=False, max_rows_per_epoch=10))
    source.run()
    assert (source.epochs, source.contents) == (1, {})
    for step in range(20):
        server.query(f"UPDATE {table} SET total = {step} WHERE id % 5 = {step % 5}")
    source.run()
    assert source.epochs == 11  # of six rows with two or three messages around them, the second transaction reaches the bound
    server.query(f"UPDATE {table} SET total = 100")
    source.run()
    assert source.epochs == 12  # a transaction is never divided
    assert source.contents[table] == content_of(server, table, "id, total, note")


def test_a_log_without_changes_of_the_tables(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(server, schema, rows=3)
    server.query(f"CREATE TABLE {schema}.others (id int)")
    source = Source(tmp_path, source_node(schema, ORDERS))
    source.run()
    epochs, slot = source.epochs, slot_of(source)
    server.query(f"INSERT INTO {schema}.others SELECT generate_series(1, 100)")
    source.run()
    assert source.epochs == epochs
    monkeypatch.setattr(postgres_planner, "EMPTY_BYTES", 1_000)
    server.query(f"INSERT INTO {schema}.others SELECT generate_series(1, 100)")
    source.run()
    assert source.epochs > epochs
    position = ChangesPosition.parse(source.position)
    assert position is not None
    assert position.files == ()
    (confirmed,) = server.query("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", slot)
    assert confirmed == (lsn_text(position.lsn),)


def test_changes_of_other_tables_do_not_wait(server: Server, schema: str, tmp_path: Path) -> None:
    """A server always writes to its log, also where nothing happens."""
    make_orders(server, schema, rows=3)
    server.query(f"CREATE TABLE {schema}.others (id int)")
    source = Source(tmp_path, source_node(schema, ORDERS))
    source.run()
    server.query(f"INSERT INTO {schema}.others SELECT generate_series(1, 100)")
    source.run()
    assert outstanding(source) == 0
    server.query(f"UPDATE {schema}.orders SET total = 1")
    assert source.planner is not None
    source.planner.look()
    assert outstanding(source) > 0
    source.run()
    assert outstanding(source) == 0


def outstanding(source: Source) -> int:
    """Return the backlog in bytes that a source reports."""
    assert source.planner is not None
    metrics = source.planner.metrics()["metrics"]
    assert isinstance(metrics, dict)
    return int(metrics["numBytesOutstanding"])


def test_a_table_that_is_added_later(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, rows=10)
    server.query(f"CREATE TABLE {schema}.later (id int PRIMARY KEY, v text)")
    server.query(f"INSERT INTO {schema}.later SELECT i, 'a' FROM generate_series(1, 10) AS i")
    source = Source(tmp_path, source_node(schema, ORDERS))
    source.run()
    source.node = source_node(schema, {**ORDERS, "later": ("id INT, v STRING", ["id"])})
    server.query(f"UPDATE {schema}.later SET v = 'b' WHERE id = 1")
    server.query(f"UPDATE {schema}.orders SET total = 0 WHERE id = 1")
    source.open()
    server.query(f"UPDATE {schema}.later SET v = 'c' WHERE id = 2")
    source.run()
    assert source.contents[f"{schema}.later"] == content_of(server, f"{schema}.later", "id, v")
    assert source.contents[f"{schema}.orders"] == content_of(server, f"{schema}.orders", "id, total, note")


def test_a_server_that_is_started_again(schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Server.make()
    try:
        own.start()
        monkeypatch.setenv(VARIABLE, own.dsn())
        own.query(f"CREATE SCHEMA {schema}")
        make_orders(own, schema, rows=10)
        source = Source(tmp_path, source_node(schema, ORDERS, max_rows_per_epoch=3))
        first = source.take()
        assert first is not None
        source.commit(first)
        own.stop(signal.SIGQUIT)
        own.start()
        own.query(f"UPDATE {schema}.orders SET total = 0")
        source.run()
        assert source.contents[f"{schema}.orders"] == content_of(own, f"{schema}.orders", "id, total, note")
        source.close()
    finally:
        own.remove()


def slot_of(source: Source) -> str:
    position = ChangesPosition.parse(source.position)
    assert position is not None
    return position.slot
