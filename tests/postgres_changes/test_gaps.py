"""Changes that would be lost without an error, and what would be read that is none of the table: seen, or refused."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.control.drivers import until
from tests.postgres.rig import VARIABLE
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres_changes.rig import Source, source_node
from tests.postgres_changes.test_errors import FEW, opened
from tests.postgres_changes.test_snapshot import ORDERS, content_of, make_orders, slot_of
from tidemark.errors import SourceError
from tidemark.spark.sources.postgres_changes import server as server_module
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition

pytestmark = NEEDS_POSTGRES

LATER = {"later": ("id INT, v STRING", ["id"])}


def position_of(source: Source) -> ChangesPosition:
    position = ChangesPosition.parse(source.position)
    assert position is not None
    return position


def test_a_table_that_is_added_while_a_transaction_writes_to_it(server: Server, schema: str, tmp_path: Path) -> None:
    table = f"{schema}.later"
    server.query(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
    source = opened(server, schema, tmp_path)
    source.node = source_node(schema, {**ORDERS, **LATER})
    with psycopg.connect(server.dsn()) as writing:
        # Not among the changes: the table is published later. Nor among the rows of a part that is read before it ends.
        writing.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')".encode())
        opening = threading.Thread(target=source.open)
        opening.start()
        until(lambda: bool(server.query("SELECT 1 FROM pg_publication_tables WHERE schemaname = %s AND tablename = 'later'", schema)), "it")
        assert source.planner is None
        writing.execute(f"UPDATE {table} SET v = 'c' WHERE id = 1".encode())
    opening.join()
    server.query(f"INSERT INTO {table} VALUES (3, 'd')")
    first = source.take()
    assert first is not None
    source.commit(first)
    # Its slot is after the transaction before the first part is read.
    assert first.tables[table].after is None
    assert not first.tables[table].done
    source.run()
    assert source.contents[table] == content_of(server, table, "id, v")


def test_a_slot_that_is_moved_on_between_two_epochs(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    server.query(f"UPDATE {schema}.orders SET total = 0")
    end = server.query("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    server.query(f"SELECT pg_replication_slot_advance('{slot_of(source)}', '{end}')")
    server.query(f"UPDATE {schema}.orders SET total = 1 WHERE id = 1")
    with pytest.raises(SourceError, match="Another reader moved it on"):
        source.run()


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["DROP TABLE {0}.orders", "ADD TABLE {0}.orders"], "taken out of publication .* and added again"),
        (["SET TABLE {0}.orders WHERE (id > 3)"], "no longer has all changes of .*a condition on rows"),
        (["SET (publish = 'insert, update')"], "leaves out inserts, updates or deletes"),
    ],
)
def test_a_publication_that_is_changed(server: Server, schema: str, tmp_path: Path, *, statements: list[str], message: str) -> None:
    source = opened(server, schema, tmp_path)
    publication = position_of(source).publication
    try:
        for statement in statements:
            server.query(f"ALTER PUBLICATION {publication} {statement.format(schema)}")
        server.query(f"UPDATE {schema}.orders SET total = 0")
        with pytest.raises(SourceError, match=message):
            source.run()
        with pytest.raises(SourceError, match=message):
            source.open()
    finally:
        # Other tests have a source of that name, too.
        server.query(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')")


def test_another_publication(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    server.query(f"CREATE PUBLICATION {schema}_p FOR TABLE {schema}.orders")
    source.node = source_node(schema, ORDERS, publication=f"{schema}_p")
    with pytest.raises(SourceError, match=r"changes were read by publication .*Fix: write publication="):
        source.open()


def test_a_primary_key_that_is_changed(server: Server, schema: str, tmp_path: Path) -> None:
    source, table = opened(server, schema, tmp_path), f"{schema}.orders"
    server.query(f"UPDATE {table} SET note = 'n' WHERE note IS NULL")
    server.query(f"ALTER TABLE {table} DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, note)")
    server.query(f"UPDATE {table} SET total = 7 WHERE id = 1")
    with pytest.raises(SourceError, match=r"have id, note as their key, and not the primary key id"):
        source.run()


def test_rows_of_tables_that_inherit_are_none_of_the_table(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, FEW)
    server.query(f"CREATE TABLE {schema}.child () INHERITS ({schema}.orders)")
    server.query(f"INSERT INTO {schema}.child VALUES (100, 1, 'child')")
    source = Source(tmp_path, source_node(schema, ORDERS))
    source.run()
    # The child is not published, so it needs no replica identity.
    server.query(f"UPDATE {schema}.child SET total = 2; UPDATE {schema}.orders SET total = 3")
    source.run()
    assert source.contents[f"{schema}.orders"] == content_of(server, f"ONLY {schema}.orders", "id, total, note")


def test_rows_that_the_user_does_not_see(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(server, schema, FEW)
    role = f"{schema}_r"
    for statement in (
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'p'",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT ON {schema}.orders TO {role}",
        f"ALTER TABLE {schema}.orders ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY few ON {schema}.orders USING (id < 3)",
        f"CREATE PUBLICATION {schema}_p FOR TABLE {schema}.orders",
    ):
        server.query(statement)
    monkeypatch.setenv(VARIABLE, server.dsn(password="p").replace("//writer:", f"//{role}:"))  # noqa: S106
    source = Source(tmp_path, source_node(schema, ORDERS, publication=f"{schema}_p"))
    with pytest.raises(SourceError, match="row-level security"):
        source.run()


def test_a_key_that_its_type_does_not_tell_apart(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {schema}.orders (id numeric PRIMARY KEY)")
    node = source_node(schema, {"orders": ("id DECIMAL(38, 9)", ["id"])})
    with pytest.raises(SourceError, match=r"several rows would be one.*Fix: read it as STRING"):
        Source(tmp_path, node).open()


def test_large_rows_are_read_in_smaller_parts(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PART_BYTES", 1)
    monkeypatch.setattr(server_module, "_PART_ROWS", 2)
    make_orders(server, schema, FEW)
    source = Source(tmp_path, source_node(schema, ORDERS))
    source.run()
    assert source.epochs == 3  # 2, 2 and 1 rows
    assert source.contents[f"{schema}.orders"] == content_of(server, f"{schema}.orders", "id, total, note")


def test_a_replayed_epoch_is_followed_by_what_came_since(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    server.query(f"UPDATE {schema}.orders SET total = 1")
    planned = source.take()
    assert planned is not None
    server.query(f"UPDATE {schema}.orders SET total = 2")
    planner = source.open({"shop": planned.as_stored()})
    planner.fix_end()
    assert source.take() == planned
    source.commit(planned)
    assert planner.has_unread  # a run until the sources are drained does not look again


def test_a_first_epoch_that_is_replayed(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, FEW)
    source = Source(tmp_path, source_node(schema, ORDERS, max_rows_per_epoch=3))
    planned = source.take()
    assert planned is not None
    server.query(f"UPDATE {schema}.orders SET total = 0")
    source.open({"shop": planned.as_stored()})
    assert source.take() == planned
    source.commit(planned)
    source.run()
    assert source.contents[f"{schema}.orders"] == content_of(server, f"{schema}.orders", "id, total, note")


@pytest.fixture
def own_server(schema: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that a test may stop."""
    own = Server.make()
    try:
        own.start()
        monkeypatch.setenv(VARIABLE, own.dsn())
        own.query(f"CREATE SCHEMA {schema}")
        yield own
    finally:
        own.remove()


def test_a_server_that_continues_on_another_timeline(own_server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(own_server, schema, tmp_path)
    own_server.stop(signal.SIGINT)
    data = own_server.folder / "data"
    (data / "recovery.signal").touch()
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    own_server.start()
    until(lambda: not own_server.query("SELECT pg_is_in_recovery()")[0][0], "the end of the recovery")
    own_server.query(f"UPDATE {schema}.orders SET total = 0")
    with pytest.raises(SourceError, match=r"log is another one .*/2, before .*/1.*give the source another name"):
        source.run()
    with pytest.raises(SourceError, match="log is another one"):
        source.open()
