"""The job that is killed while it reads two tables, on which others write after each of its epochs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg

import tidemark as tm
from tests.crash.fares import EPOCH_LENGTH, clock_of, open_session
from tests.postgres.rig import VARIABLE

ROWS = 25
MOST = 10
"""Rows of an epoch: three parts of each table."""

ORDERS = "id BIGINT, total DECIMAL(12, 2), note STRING"
LINES = "order_id BIGINT, line INT, at TIMESTAMP"


def make_tables(dsn: str, schema: str) -> None:
    """Make the tables with their first rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in (
            f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text)",
            f"CREATE TABLE {schema}.lines (order_id bigint, line int, at timestamptz, PRIMARY KEY (order_id, line))",
            f"INSERT INTO {schema}.orders SELECT i, i * 1.5, 'n' || i FROM generate_series(1, {ROWS}) AS i",
            f"INSERT INTO {schema}.lines SELECT i, i % 3, '2026-11-26 08:00:00.123456+00' FROM generate_series(1, {ROWS}) AS i",
        ):
            connection.execute(statement.encode())


def write(dsn: str, schema: str, seed: int) -> None:
    """Change both tables in a few transactions."""
    chosen = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(3):
            key = chosen.randint(1, ROWS)
            with connection.transaction():
                run(connection, f"UPDATE {schema}.orders SET total = total + 1, note = note || 'x' WHERE id = %s", key)
                run(connection, f"DELETE FROM {schema}.lines WHERE order_id = %s", key)
                run(connection, f"INSERT INTO {schema}.lines VALUES (%s, 7, now()) ON CONFLICT DO NOTHING", key + 1)
            run(connection, f"DELETE FROM {schema}.orders WHERE id = %s", chosen.randint(1, ROWS))
            run(connection, f"INSERT INTO {schema}.orders VALUES (%s, NULL, NULL) ON CONFLICT DO NOTHING", chosen.randint(1, 2 * ROWS))


def run(connection: psycopg.Connection[Any], statement: str, *values: object) -> None:
    connection.execute(statement.encode(), values)


def make_job(folder: Path, schema: str, *, most: int = MOST) -> tm.Job:
    """Return the job, with the content and the history of each table, and at most so many rows in an epoch."""
    shop = tm.postgres_changes(
        "shop",
        dsn_env=VARIABLE,
        tables={
            f"{schema}.orders": tm.postgres_table(ORDERS, key=["id"]),
            f"{schema}.lines": tm.postgres_table(LINES, key=["order_id", "line"]),
        },
        watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="committed_at", max_future_skew=None),
        max_rows_per_epoch=most,
    )
    orders, lines = shop.table(f"{schema}.orders"), shop.table(f"{schema}.lines")
    return tm.Job(
        "shop",
        {
            "orders": tm.delta(orders, str(folder / "orders"), mode="upsert"),
            "history": tm.delta(orders, str(folder / "history")),
            "lines": tm.delta(lines, str(folder / "lines"), mode="upsert"),
        },
        store=str(folder / "store"),
        parallelism=1,
    )


def drive(folder: str, schema: str, dsn: str, attempt: str = "0", writes: str = "8") -> None:
    """Run the job until nothing is left; others write after each of the first epochs."""
    clock = clock_of(int(attempt))
    left = list(range(int(writes)))

    def after(progress: object) -> None:
        del progress
        clock.advance(EPOCH_LENGTH)
        if left:
            write(dsn, schema, 100 * int(attempt) + left.pop())

    tm.run(make_job(Path(folder), schema), spark=open_session(), clock=clock, on_epoch=after)
