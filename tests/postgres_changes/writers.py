"""Threads that write to a table while it is read."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from tests.postgres.server import Server

_PAUSE_SECONDS: Final = 0.02
"""Slower than the epochs, which would never end otherwise."""


def statement_of(chosen: random.Random, table: str, keys: int) -> tuple[str, int]:
    """Return a random change of a row, and its key."""
    statements = (
        f"INSERT INTO {table} VALUES (%s, 1, 'new') ON CONFLICT DO NOTHING",
        f"UPDATE {table} SET total = total + 1, note = note || 'x' WHERE id = %s",
        f"UPDATE {table} SET note = NULL WHERE id = %s",
        f"DELETE FROM {table} WHERE id = %s",
        f"UPDATE {table} SET id = id + 100 WHERE id = %s",
    )
    return chosen.choice(statements), chosen.randint(1, keys)


class Writer(threading.Thread):
    """Changes rows in transactions of several statements, some of which roll back.

    Args:
        server: of the table.
        table: with the columns ``id``, ``total``, ``note``.
        keys: the greatest key that is chosen.
        seed: of the choices; the writer with seed 0 does not wait for the disk.
        ended: set when it has to end.
    """

    def __init__(self, server: Server, table: str, keys: int, seed: int, ended: threading.Event) -> None:
        super().__init__()
        self._server, self._table, self._keys, self._seed, self._ended = server, table, keys, seed, ended
        self.transactions = 0

    def run(self) -> None:
        """Write until the end."""
        chosen = random.Random(self._seed)
        with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
            if self._seed == 0:
                connection.execute("SET synchronous_commit = off")
            while not self._ended.wait(_PAUSE_SECONDS):
                try:
                    self._write(connection, chosen)
                    self.transactions += 1
                except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                    continue

    def _write(self, connection: psycopg.Connection[Any], chosen: random.Random) -> None:
        with connection.transaction(force_rollback=chosen.random() < 0.1):
            for _ in range(chosen.randint(1, 5)):
                statement, key = statement_of(chosen, self._table, self._keys)
                connection.execute(statement.encode(), [key])


@contextmanager
def writers(server: Server, table: str, keys: int, count: int = 3) -> Iterator[list[Writer]]:
    """Have threads write while the block runs."""
    ended = threading.Event()
    threads = [Writer(server, table, keys, seed, ended) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        # It waits for the disk, and so for all before it: what is not there yet would be read later.
        server.query("SELECT pg_logical_emit_message(true, 'writers', 'ended')")
