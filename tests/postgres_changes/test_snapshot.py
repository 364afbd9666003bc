"""The snapshot and the changes after it, against a server on which others write at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres_changes.rig import Content, Source, source_node
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition

pytestmark = NEEDS_POSTGRES

ROWS = 2_000
ORDERS = {"orders": ("id BIGINT, total DECIMAL(12, 2), note STRING", ["id"])}


def make_orders(server: Server, schema: str, rows: int = ROWS) -> None:
    server.query(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text)")
    server.query(f"INSERT INTO {schema}.orders SELECT i, i * 1.5, 'n' || i FROM generate_series(1, {rows}) AS i")


def content_of(server: Server, table: str, columns: str, keys: int = 1) -> Content:
    """Return the content of a table as texts, by key, the first columns."""
    names = [name.strip() for name in columns.split(",")]
    listed = ", ".join(f"{name}::text" for name in names)
    return {tuple(row[:keys]): dict(zip(names, row, strict=True)) for row in server.query(f"SELECT {listed} FROM {table}")}


@contextmanager
def writers(server: Server, schema: str, count: int = 3) -> Iterator[list[int]]:
    """Have threads insert, update, delete and move rows in transactions of several statements, some of which roll back."""
    ended, done = threading.Event(), [0] * count

    def write(number: int) -> None:
        chosen = random.Random(number)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            if number == 0:
                connection.execute("SET synchronous_commit = off")
            while not ended.is_set():
                try:
                    with connection.transaction(force_rollback=chosen.random() < 0.1):
                        for _ in range(chosen.randint(1, 5)):
                            change(connection, chosen)
                except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                    continue
                done[number] += 1

    def change(connection: psycopg.Connection[Any], chosen: random.Random) -> None:
        key, table = chosen.randint(1, ROWS + 200), f"{schema}.orders"
        match chosen.randint(0, 4):
            case 0:
                connection.execute(f"INSERT INTO {table} VALUES (%s, 1, 'new') ON CONFLICT DO NOTHING".encode(), [key])
            case 1 | 2:
                connection.execute(f"UPDATE {table} SET total = total + 1, note = note || 'x' WHERE id = %s".encode(), [key])
            case 3:
                connection.execute(f"DELETE FROM {table} WHERE id = %s".encode(), [key])
            case _:
                connection.execute(f"UPDATE {table} SET id = id + 100 WHERE id = %s".encode(), [key])

    threads = [threading.Thread(target=write, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_snapshot_while_others_write(server: Server, schema: str, tmp_path: Path) -> None:
    make_orders(server, schema)
    source = Source(tmp_path, source_node(schema, ORDERS, max_rows_per_epoch=97))
    parts = 0
    with writers(server, schema) as written:
        chosen = random.Random(1)
        while source.position is None or (ChangesPosition.parse(source.position) or pytest.fail()).unfinished or parts < 60:
            planned = source.take()
            parts += 1
            if planned is None:
                continue
            match chosen.randint(0, 3):
                case 0:  # a crash after the plan: it is replayed
                    source.open({"shop": planned.as_stored()})
                    again = source.take()
                    assert again is not None
                    assert again == planned
                    source.commit(again)
                case 1:  # a crash before the plan
                    source.open()
                case _:
                    source.commit(planned)
    assert min(written) > 10
    source.run()
    source.close()
    assert source.epochs > ROWS // 97
    assert source.contents[f"{schema}.orders"] == content_of(server, f"{schema}.orders", "id, total, note")
