"""A transaction that is larger than what the driver holds in memory: the same rows, in several files, by way of a temporary one."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import psycopg
import pytest

from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres_changes.rig import Source, source_node
from tests.postgres_changes.test_snapshot import content_of
from tidemark.spark.sources.postgres_changes import captured_files, epoch_changes, message_spool
from tidemark.spark.sources.postgres_changes import server as server_module

pytestmark = NEEDS_POSTGRES

TABLES = {
    "orders": ("id BIGINT, total DECIMAL(12, 2), note STRING", ["id"]),
    "lines": ("id BIGINT, text STRING", ["id"]),
}
ROWS = 400
LARGE = "repeat('x', 3000)"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the driver hold little."""
    monkeypatch.setattr(message_spool, "HELD_BYTES", 1_000)
    monkeypatch.setattr(captured_files, "FILE_ROWS", 100)
    monkeypatch.setattr(epoch_changes, "TOGETHER", 30)
    return monkeypatch


def opened(server: Server, schema: str, folder: Path, **options: object) -> Source:
    """Return a source that has read two tables to their ends; large values are not compressed."""
    with psycopg.connect(server.dsn()) as connection:
        for statement in (
            f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text)",
            f"ALTER TABLE {schema}.orders ALTER COLUMN note SET STORAGE EXTERNAL",
            f"CREATE TABLE {schema}.lines (id bigint PRIMARY KEY, text text)",
            f"INSERT INTO {schema}.orders SELECT i, i, {LARGE} || i FROM generate_series(1, {ROWS}) AS i",
        ):
            connection.execute(statement.encode())
    source = Source(folder, source_node(schema, TABLES, **options))
    source.run()
    return source


def change_all(server: Server, schema: str) -> None:
    """Change both tables in one transaction: large values stay, keys move, rows go, and a column comes in the middle."""
    with psycopg.connect(server.dsn()) as connection:
        for statement in (
            f"UPDATE {schema}.orders SET total = total + 1",
            f"UPDATE {schema}.orders SET id = id + 1000 WHERE id % 3 = 0",
            f"INSERT INTO {schema}.lines SELECT i, 'l' || i FROM generate_series(1, {ROWS}) AS i",
            f"ALTER TABLE {schema}.orders ADD COLUMN more int",
            f"UPDATE {schema}.orders SET more = 1, total = total + 1 WHERE id % 2 = 0",
            f"DELETE FROM {schema}.orders WHERE id % 5 = 0",
            f"UPDATE {schema}.lines SET text = text || 'x'",
        ):
            connection.execute(statement.encode())


@pytest.mark.usefixtures("limits")
def test_it_is_one_epoch_of_several_files(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path)
    before = source.epochs
    server.query(f"INSERT INTO {schema}.lines VALUES (0, 'before')")
    change_all(server, schema)
    server.query(f"DELETE FROM {schema}.lines WHERE id = 7")
    planned = source.take()
    assert planned is not None
    assert len(planned.files) > 10
    assert max(file.rows for file in planned.files) <= 100
    source.open({"shop": planned.as_stored()})
    assert source.take() == planned
    source.commit(planned)
    source.run()
    assert source.epochs == before + 1
    for name, columns in (("orders", "id, total, note"), ("lines", "id, text")):
        assert source.contents[f"{schema}.{name}"] == content_of(server, f"{schema}.{name}", columns)


@pytest.mark.usefixtures("limits")
def test_an_epoch_ends_after_the_transaction_that_exceeds_its_bound(server: Server, schema: str, tmp_path: Path) -> None:
    source = opened(server, schema, tmp_path, max_rows_per_epoch=200)
    change_all(server, schema)
    server.query(f"DELETE FROM {schema}.lines WHERE id = 7")
    before = source.epochs
    source.run()
    assert source.epochs == before + 2
    assert source.contents[f"{schema}.lines"] == content_of(server, f"{schema}.lines", "id, text")


def test_memory_does_not_grow_with_it(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = 1_000_000
    monkeypatch.setattr(message_spool, "HELD_BYTES", held)
    monkeypatch.setattr(captured_files, "FILE_BYTES", held)
    monkeypatch.setattr(server_module, "FETCHED_BYTES", held)
    monkeypatch.setattr(epoch_changes, "TOGETHER", 100)
    source = opened(server, schema, tmp_path)
    peaks = []
    for rows in (2_000, 8_000):
        server.query(f"INSERT INTO {schema}.lines SELECT {rows} * 10 + i, {LARGE} FROM generate_series(1, {rows}) AS i")
        tracemalloc.start()
        planned = source.take()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert planned is not None
        assert sum(file.rows for file in planned.files) == rows
        source.position = planned.as_stored()
        assert source.planner is not None
        source.planner.committed(source.position)
    # The rows are 6 and 24 million bytes.
    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 10 * held
