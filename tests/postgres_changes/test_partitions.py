"""Partitions that are attached with rows, detached, attached again, and created, while a partitioned table is captured or in between."""

from __future__ import annotations

import logging
from pathlib import Path

import psycopg
import pytest

from tests.postgres.rig import VARIABLE
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres_changes.rig import Content, Source, source_node
from tests.postgres_changes.test_snapshot import ORDERS, content_of

pytestmark = NEEDS_POSTGRES

COLUMNS = "id bigint PRIMARY KEY, total numeric(12, 2), note text"


def opened(server: Server, schema: str, folder: Path, **options: object) -> Source:
    """Return a source that has read a table with one partition to its end."""
    server.query(f"CREATE TABLE {schema}.orders ({COLUMNS}) PARTITION BY RANGE (id)")
    server.query(f"CREATE TABLE {schema}.p0 PARTITION OF {schema}.orders FOR VALUES FROM (0) TO (100)")
    server.query(f"INSERT INTO {schema}.orders SELECT i, i, 'n' FROM generate_series(1, 9) AS i")
    source = Source(folder, source_node(schema, ORDERS, max_rows_per_epoch=4, **options))
    source.run()
    return source


def make_filled(server: Server, schema: str, number: int) -> None:
    """Make a table with ten rows that could be a partition; its columns are in another order."""
    server.query(f"CREATE TABLE {schema}.p{number} (note text, id bigint PRIMARY KEY, total numeric(12, 2))")
    server.query(f"INSERT INTO {schema}.p{number} SELECT 'before', {100 * number} + i, i FROM generate_series(1, 10) AS i")


def attach(server: Server, schema: str, number: int, to: str = "orders") -> None:
    bounds = f"FOR VALUES FROM ({100 * number}) TO ({100 * number + 100})"
    server.query(f"ALTER TABLE {schema}.{to} ATTACH PARTITION {schema}.p{number} {bounds}")


def run_together(server: Server, *statements: str) -> None:
    """Run statements in one transaction."""
    with psycopg.connect(server.dsn()) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def require_all(source: Source, server: Server, schema: str) -> None:
    assert source.contents[f"{schema}.orders"] == rows(server, schema)


def rows(server: Server, schema: str) -> Content:
    return content_of(server, f"{schema}.orders", "id, total, note")


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_attached_with_rows(server: Server, schema: str, tmp_path: Path, *, running: bool) -> None:
    source = opened(server, schema, tmp_path)
    if not running:
        source.close()
    make_filled(server, schema, 1)
    make_filled(server, schema, 2)
    attach(server, schema, 1)
    attach(server, schema, 2)
    server.query(f"UPDATE {schema}.orders SET note = 'after' WHERE id % 2 = 0")
    server.query(f"DELETE FROM {schema}.orders WHERE id % 5 = 0")
    source.run()
    require_all(source, server, schema)
    server.query(f"UPDATE {schema}.orders SET total = total + 1")
    before = source.epochs
    source.run()
    assert source.epochs == before + 1  # no partition is read again
    require_all(source, server, schema)


def test_a_driver_that_dies_while_it_reads_a_partition(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    make_filled(server, schema, 1)
    attach(server, schema, 1)
    parts = 0
    while parts < 2:
        planned = source.take()
        assert planned is not None
        parts += any(progress.partition for progress in planned.tables.values())
        source.open({"shop": planned.as_stored()})
        assert source.take() == planned
        source.commit(planned)
        source.open()
        server.query(f"UPDATE {schema}.orders SET note = note || 'x' WHERE id > 105")
    source.run()
    require_all(source, server, schema)


@pytest.mark.parametrize("how", ["", "CONCURRENTLY"])
def test_detached_while_it_is_read(server: Server, schema: str, tmp_path: Path, how: str) -> None:
    source = opened(server, schema, tmp_path)
    make_filled(server, schema, 1)
    attach(server, schema, 1)
    planned = None
    while planned is None or not any(progress.partition for progress in planned.tables.values()):
        planned = source.take()
        assert planned is not None
        source.commit(planned)
    read = set(source.contents[f"{schema}.orders"])
    server.run_outside(f"ALTER TABLE {schema}.orders DETACH PARTITION {schema}.p1 {how}")
    server.query(f"INSERT INTO {schema}.p1 VALUES ('apart', 150, 1)")
    source.run()
    assert set(source.contents[f"{schema}.orders"]) == read


def test_attached_below_a_partition_of_partitions(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    server.query(f"CREATE TABLE {schema}.many PARTITION OF {schema}.orders FOR VALUES FROM (100) TO (1000) PARTITION BY RANGE (id)")
    make_filled(server, schema, 3)
    attach(server, schema, 3, to="many")
    source.run()
    require_all(source, server, schema)


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_created(server: Server, schema: str, tmp_path: Path, *, running: bool) -> None:
    source = opened(server, schema, tmp_path)
    if not running:
        source.close()
    source.operations.clear()
    server.query(f"CREATE TABLE {schema}.p1 PARTITION OF {schema}.orders FOR VALUES FROM (100) TO (200)")
    server.query(f"INSERT INTO {schema}.orders SELECT 100 + i, i, 'n' FROM generate_series(1, 9) AS i")
    source.run()
    require_all(source, server, schema)
    assert source.operations == {"insert": 9}, "no row comes twice"


def test_created_and_filled_in_one_transaction(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    source.close()
    source.operations.clear()
    run_together(
        server,
        f"CREATE TABLE {schema}.p1 ({COLUMNS})",
        f"INSERT INTO {schema}.p1 SELECT 100 + i, i, 'before' FROM generate_series(1, 5) AS i",
        f"ALTER TABLE {schema}.orders ATTACH PARTITION {schema}.p1 FOR VALUES FROM (100) TO (200)",
        f"INSERT INTO {schema}.orders SELECT 110 + i, i, 'behind' FROM generate_series(1, 3) AS i",
    )
    server.query(f"INSERT INTO {schema}.orders SELECT 120 + i, i, 'later' FROM generate_series(1, 2) AS i")
    source.run()
    require_all(source, server, schema)
    # Rows of later transactions cannot be distinguished from those of subtransactions, so they come a second time.
    assert source.operations == {"read": 5 + 2, "insert": 3 + 2}, "its own rows come once: those from before it was a partition are read"


def test_created_and_filled_by_a_subtransaction(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    source.close()
    # As a PL/pgSQL block with an exception handler, or a nested block of an ORM: its rows have a transaction id of their own.
    run_together(
        server,
        f"CREATE TABLE {schema}.p1 ({COLUMNS})",
        "SAVEPOINT loading",
        f"INSERT INTO {schema}.p1 SELECT 100 + i, i, 'before' FROM generate_series(1, 5) AS i",
        "RELEASE SAVEPOINT loading",
        f"ALTER TABLE {schema}.orders ATTACH PARTITION {schema}.p1 FOR VALUES FROM (100) TO (200)",
    )
    source.run()
    require_all(source, server, schema)


@pytest.mark.parametrize("statement", ["ALTER TABLE {}.orders ADD COLUMN luck double precision DEFAULT random()", "VACUUM FULL {}.p1"])
def test_created_and_rewritten(server: Server, schema: str, tmp_path: Path, statement: str) -> None:
    source = opened(server, schema, tmp_path)
    source.close()
    run_together(
        server,
        f"CREATE TABLE {schema}.p1 ({COLUMNS})",
        f"INSERT INTO {schema}.p1 SELECT 100 + i, i, 'before' FROM generate_series(1, 5) AS i",
        f"ALTER TABLE {schema}.orders ATTACH PARTITION {schema}.p1 FOR VALUES FROM (100) TO (200)",
    )
    server.run_outside(statement.format(schema))
    server.query(f"UPDATE {schema}.orders SET note = 'after' WHERE id = 103")
    source.run()
    require_all(source, server, schema)


def test_detached_and_attached_again(server: Server, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = opened(server, schema, tmp_path)
    server.query(f"ALTER TABLE {schema}.orders DETACH PARTITION {schema}.p0")
    read = dict(source.contents[f"{schema}.orders"])
    with caplog.at_level(logging.WARNING, "tidemark"):
        source.run()
    assert "were detached or dropped" in caplog.text
    assert source.contents[f"{schema}.orders"] == read
    server.query(f"UPDATE {schema}.p0 SET note = 'apart'")
    attach(server, schema, 0)
    source.run()
    require_all(source, server, schema)
    # Between two looks.
    server.query(f"ALTER TABLE {schema}.orders DETACH PARTITION {schema}.p0")
    server.query(f"UPDATE {schema}.p0 SET note = 'apart again'")
    attach(server, schema, 0)
    source.run()
    require_all(source, server, schema)


def test_a_user_who_may_read_only_the_partitioned_table(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(server, schema, tmp_path / "owner").close()
    role = f"{schema}_reader"
    server.query(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'p'")
    server.query(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    server.query(f"GRANT SELECT ON {schema}.orders TO {role}")
    server.query(f"CREATE PUBLICATION {schema}_p FOR TABLE {schema}.orders WITH (publish_via_partition_root = true)")
    monkeypatch.setenv(VARIABLE, server.dsn(password="p").replace("//writer:", f"//{role}:"))  # noqa: S106
    source = Source(tmp_path / "reader", source_node(schema, ORDERS, publication=f"{schema}_p"))
    source.run()
    make_filled(server, schema, 1)
    attach(server, schema, 1)
    source.run()
    require_all(source, server, schema)


def test_without_a_snapshot_only_changes_are_read(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path, snapshot=False)
    make_filled(server, schema, 1)
    attach(server, schema, 1)
    server.query(f"UPDATE {schema}.orders SET note = 'after' WHERE id = 101")
    source.run()
    assert list(source.contents[f"{schema}.orders"]) == [("101",)]
