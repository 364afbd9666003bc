"""What is wrong with a server, a table, a publication or a slot is said by its name, with what to do; never with the password."""

from __future__ import annotations

import json
import logging
import subprocess
import traceback
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.control.drivers import until
from tests.database_server import HOST
from tests.postgres.rig import VARIABLE
from tests.postgres.server import NEEDS_POSTGRES, SECRET, Server, program
from tests.postgres_changes.rig import Source, source_node
from tests.postgres_changes.test_snapshot import ORDERS, content_of, make_orders
from tidemark.errors import SourceError
from tidemark.spark.sources.postgres_changes import server as server_module
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition

pytestmark = NEEDS_POSTGRES

FEW = 5


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "RETRY_SECONDS", 0.0)


def opened(server: Server, schema: str, folder: Path) -> Source:
    """Return a source that has read a table to its end."""
    make_orders(server, schema, FEW)
    source = Source(folder, source_node(schema, ORDERS))
    source.run()
    return source


TABLES = {
    "no table": ("", ORDERS, r"there is no table .*\.orders.*Fix: correct the name"),
    "no primary key": (
        "CREATE TABLE {}.orders (id bigint, total numeric(12, 2), note text)",
        ORDERS,
        "has no primary key.*ADD PRIMARY KEY",
    ),
    "another key": (
        "CREATE TABLE {}.orders (id bigint, total numeric(12, 2), note text, PRIMARY KEY (id, note))",
        ORDERS,
        r"the primary key of .* is id, note, and not id.*Fix: write key=\['id', 'note'\]",
    ),
    "unlogged": ("CREATE UNLOGGED TABLE {}.orders (id bigint PRIMARY KEY)", ORDERS, "is no table whose changes are logged"),
    "a view": ("CREATE VIEW {}.orders AS SELECT 1 AS id", ORDERS, "is no table whose changes are logged"),
    "no identity": (
        "CREATE TABLE {0}.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text); ALTER TABLE {0}.orders REPLICA IDENTITY NOTHING",
        ORDERS,
        "replica identity is nothing.*REPLICA IDENTITY DEFAULT",
    ),
    "no column": ("CREATE TABLE {}.orders (id bigint PRIMARY KEY, total numeric(12, 2))", ORDERS, "has no column 'note'; it has id, total"),
    "another type": (
        "CREATE TABLE {}.orders (id bigint PRIMARY KEY, total numeric(14, 2), note text)",
        ORDERS,
        r"column 'total' of .* is numeric\(14,2\), whose values DECIMAL\(12, 2\) does not hold.*read it as DECIMAL\(14, 2\)",
    ),
    "computed": (
        "CREATE TABLE {}.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text GENERATED ALWAYS AS ('n') STORED)",
        ORDERS,
        "column 'note' of .* is computed",
    ),
}


@pytest.mark.parametrize("which", sorted(TABLES))
def test_tables(server: Server, schema: str, tmp_path: Path, which: str) -> None:
    made, columns, message = TABLES[which]
    if made:
        for statement in made.format(schema).split("; "):
            server.query(statement)
    with pytest.raises(SourceError, match=message):
        Source(tmp_path, source_node(schema, columns)).open()
    assert server.query("SELECT 1 FROM pg_publication_tables WHERE schemaname = %s", schema) == []


def test_publications(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, FEW)
    node = source_node(schema, ORDERS, publication=f"{schema}_p", slot=f"{schema}_s")
    with pytest.raises(SourceError, match=r"there is no publication .*Fix: CREATE PUBLICATION"):
        Source(tmp_path, node).open()
    server.query(f"CREATE PUBLICATION {schema}_p WITH (publish = 'insert')")
    with pytest.raises(SourceError, match="leaves out inserts, updates or deletes"):
        Source(tmp_path, node).open()
    server.query(f"ALTER PUBLICATION {schema}_p SET (publish = 'insert, update, delete')")
    with pytest.raises(SourceError, match=r"leaves out TRUNCATE.*or on_truncate='skip'"):
        Source(tmp_path, node).open()
    server.query(f"ALTER PUBLICATION {schema}_p SET (publish = 'insert, update, delete, truncate')")
    with pytest.raises(SourceError, match=rf"does not have table {schema}.orders.*ADD TABLE {schema}.orders"):
        Source(tmp_path, node).open()
    server.query(f"ALTER PUBLICATION {schema}_p ADD TABLE {schema}.orders WHERE (id > 3)")
    with pytest.raises(SourceError, match="has only some rows"):
        Source(tmp_path, node).open()
    server.query(f"ALTER PUBLICATION {schema}_p SET TABLE {schema}.orders (id, note)")
    with pytest.raises(SourceError, match="does not have column 'total'"):
        Source(tmp_path, node).open()
    server.query(f"ALTER PUBLICATION {schema}_p SET TABLE {schema}.orders")
    assert server.query("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", f"{schema}_s") == []
    source = Source(tmp_path, node)
    source.run()
    server.query(f"ALTER PUBLICATION {schema}_p DROP TABLE {schema}.orders")
    server.query(f"INSERT INTO {schema}.orders VALUES (100, 1, 'a')")
    with pytest.raises(SourceError, match="is no longer in publication"):
        source.run()
    server.query(f"SELECT pg_drop_replication_slot('{schema}_s')")


def test_a_table_that_was_taken_out_while_the_job_stood(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    position = ChangesPosition.parse(source.position)
    assert position is not None
    server.query(f"ALTER PUBLICATION {position.publication} DROP TABLE {schema}.orders")
    server.query(f"UPDATE {schema}.orders SET total = 0")
    with pytest.raises(SourceError, match=r"is no longer in publication .*give the source another name"):
        source.open()


def test_a_slot_that_has_lost_changes(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    position = ChangesPosition.parse(source.position)
    assert position is not None
    server.query(f"INSERT INTO {schema}.orders VALUES (100, 1, 'a')")
    end = server.query("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    server.query(f"SELECT pg_replication_slot_advance('{position.slot}', '{end}')")
    with pytest.raises(SourceError, match=r"the job has read to .*Another reader moved it on.*give the source another name"):
        source.open()
    server.query(f"SELECT pg_drop_replication_slot('{position.slot}')")
    with pytest.raises(SourceError, match=r"no longer exists, and with it the changes.*give the source another name"):
        source.open()
    server.query(f"SELECT pg_create_logical_replication_slot('{position.slot}', 'test_decoding')")
    with pytest.raises(SourceError, match="is none of pgoutput"):
        source.open()
    server.query(f"SELECT pg_drop_replication_slot('{position.slot}')")
    other = replace(position, job="another")
    with pytest.raises(SourceError, match="read by job 'another'"):
        Source(tmp_path, source.node, position=json.loads(json.dumps(other.as_stored()))).open()


def test_another_reader(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    position = ChangesPosition.parse(source.position)
    assert position is not None
    options = ["--slot", position.slot, "--start", "-o", "proto_version=1", "-o", f"publication_names={position.publication}"]
    command = [str(program("pg_recvlogical")), "-d", server.dsn(), *options, "-f", "-", "--status-interval", "0"]
    reader = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        until(lambda: bool(server.query(active, position.slot)[0][0]), "another reader")
        server.query(f"INSERT INTO {schema}.orders VALUES (100, 1, 'a')")
        with pytest.raises(SourceError, match=r"another connection reads its replication slot.*Fix: end the other reader"):
            source.run()
    finally:
        reader.kill()
        reader.wait()


def test_a_change_of_the_table(server: Server, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    source, table = opened(server, schema, tmp_path), f"{schema}.orders"
    server.query(f"ALTER TABLE {table} ADD COLUMN added text")
    server.query(f"INSERT INTO {table} VALUES (100, 1, 'a', 'b')")
    source.run()
    assert f"table {table} has new columns, which are not read: added" in caplog.text
    assert source.contents[table] == content_of(server, table, "id, total, note")
    before = content_of(server, table, "id, total, note")
    server.query(f"ALTER TABLE {table} ALTER COLUMN total TYPE text")
    server.query(f"UPDATE {table} SET total = 'many' WHERE id = 1")
    with pytest.raises(SourceError, match=r"column 'total' of .* is text, whose values DECIMAL\(12, 2\) does not hold.*read it as STRING"):
        source.run()
    assert source.contents[table] == before
    with pytest.raises(SourceError, match=r"column 'total' of .* is text"):
        source.open()


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["ALTER TABLE {0}.orders RENAME COLUMN note TO remark", "UPDATE {0}.orders SET total = 0"], "has no column 'note'"),
        (["ALTER TABLE {0}.orders RENAME TO renamed", "UPDATE {0}.renamed SET total = 0"], "captured table .*was renamed to .*renamed"),
        (["TRUNCATE {0}.orders"], "was emptied by TRUNCATE.*on_truncate='skip'"),
        (
            ["DROP TABLE {0}.orders", "CREATE TABLE {0}.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text)"],
            "is no longer in publication",
        ),
    ],
)
def test_changes_of_a_table_that_cannot_be_read(
    server: Server, schema: str, tmp_path: Path, *, statements: list[str], message: str
) -> None:
    source = opened(server, schema, tmp_path)
    server.query(f"UPDATE {schema}.orders SET note = 'before' WHERE id = 1")
    before = content_of(server, f"{schema}.orders", "id, total, note")
    for statement in statements:
        server.query(statement.format(schema))
    with pytest.raises(SourceError, match=message):
        source.run()
    assert source.contents[f"{schema}.orders"][("1",)]["note"] in {"before", "n1"}
    assert len(source.contents[f"{schema}.orders"]) == len(before)


def test_a_skipped_truncate(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, FEW)
    source = Source(tmp_path, source_node(schema, ORDERS, on_truncate="skip"))
    source.run()
    server.query(f"TRUNCATE {schema}.orders")
    server.query(f"INSERT INTO {schema}.orders VALUES (100, 1, 'a')")
    source.run()
    assert len(source.contents[f"{schema}.orders"]) == FEW + 1


def test_no_error_shows_the_password(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(server, schema, FEW)
    wrong = {
        "another password": server.dsn(password=f"wrong-{SECRET}"),
        "no such host": f"postgresql://writer:{SECRET}@nowhere.invalid/shop?connect_timeout=2",
        "nobody listens": f"postgresql://writer:{SECRET}@{HOST}:1/shop?connect_timeout=2",
        "no such database": server.dsn().replace("/postgres?", f"/{SECRET}?"),
        "no value": f"host={HOST} {SECRET}",
        "no string": SECRET,
        "nothing": "",
    }
    for value in wrong.values():
        monkeypatch.setenv(VARIABLE, value)
        with pytest.raises(SourceError) as raised:
            Source(tmp_path, source_node(schema, ORDERS)).open()
        assert "Fix: " in str(raised.value)
        assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert SECRET not in repr(raised.value.__dict__)


def test_a_user_without_rights(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(server, schema, FEW)
    server.query(f"CREATE ROLE {schema}_r LOGIN PASSWORD 'reads-only'")
    server.query(f"GRANT USAGE ON SCHEMA {schema} TO {schema}_r")
    monkeypatch.setenv(VARIABLE, server.dsn(password="reads-only").replace("//writer:", f"//{schema}_r:"))  # noqa: S106
    node = source_node(schema, ORDERS)
    with pytest.raises(SourceError, match=r"may not publish .*Fix: as the tables' owner: CREATE PUBLICATION"):
        Source(tmp_path, node).open()
    server.query(f"CREATE PUBLICATION {schema}_p FOR TABLE {schema}.orders")
    node = source_node(schema, ORDERS, publication=f"{schema}_p")
    with pytest.raises(SourceError, match=r"may not do that.*Fix: ALTER ROLE .* REPLICATION"):
        Source(tmp_path, node).open()
    server.query(f"ALTER ROLE {schema}_r REPLICATION")
    with pytest.raises(SourceError, match=r"may not do that: permission denied for table orders"):
        Source(tmp_path, node).run()
    server.query(f"GRANT SELECT ON {schema}.orders TO {schema}_r")
    source = Source(tmp_path, node)
    source.run()
    assert len(source.contents[f"{schema}.orders"]) == FEW


def test_no_free_slot(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema, FEW)
    made = []
    try:
        for number in range(1_000):
            try:
                server.query(f"SELECT pg_create_physical_replication_slot('{schema}_{number}')")
            except psycopg.errors.ConfigurationLimitExceeded:
                break
            made.append(f"{schema}_{number}")
        with pytest.raises(SourceError, match=r"no free replication slot.*Fix: raise max_replication_slots"):
            Source(tmp_path, source_node(schema, ORDERS)).open()
    finally:
        for name in made:
            server.query(f"SELECT pg_drop_replication_slot('{name}')")
