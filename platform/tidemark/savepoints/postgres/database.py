"""Connections to Postgres. Connection strings come from environment variables; neither they nor their parts get into any text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tidemark.errors import SetupError, SinkError
from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.state.encoding.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    from psycopg import Connection

    PostgresConnection = Connection[tuple[Any, ...]]

CONNECT_SECONDS: Final = 10
"""How long an attempt to connect may take, unless the connection string says otherwise."""

IDLE_SECONDS: Final = 60
"""After that time without a statement the server ends a transaction, so that a suspended driver does not hold its lock."""

LOCK_SECONDS: Final = 120
"""How long a transaction waits for that of another driver."""

LEAST_VERSION: Final = 15
"""The first release whose unique indexes can take nulls as equal."""

_SECRET_PARTS: Final = ("password", "sslpassword")


class PostgresError(Exception):
    """Postgres refused a statement or a connection; the text has no secret.

    Args:
        what: the server's message, or that of the client library.
        state: the SQLSTATE, empty for errors of the connection.
        lost: whether there was no connection, or it broke: then the transaction may have been committed.
    """

    def __init__(self, what: str, *, state: str = "", lost: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.state = state
        self.lost = lost


@contextmanager
def transaction(table: PostgresTable) -> Iterator[PostgresConnection]:
    """Connect, and run the block in one transaction: committed at its end, rolled back if it raises.

    Args:
        table: whose variable holds the connection string.

    Raises:
        SetupError: psycopg is not installed.
        SinkError: the variable is not set, or holds no connection string.
        PostgresError: the server cannot be reached, or refuses a statement.
    """
    try:
        import psycopg
    except ImportError as error:
        raise SetupError(
            f"the table {table.label} is one of Postgres, and psycopg is not installed",
            fix="run pip install -e '.[postgres]' in the checkout",
        ) from error
    dsn = os.environ.get(table.dsn_env, "")
    parts = _parts(table, dsn)
    secrets = _secrets(dsn, parts)
    given = {
        "connect_timeout": parts.get("connect_timeout", CONNECT_SECONDS),
        "application_name": parts.get("application_name", "tidemark"),
        "client_encoding": "utf8",
    }
    try:
        with psycopg.connect(dsn, prepare_threshold=None, **given) as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())
            connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'".encode())
            yield connection
    except psycopg.Error as error:
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.errors.IdleInTransactionSessionTimeout)
        # Neither the error nor its text is kept: both may repeat what they were given.
        raise PostgresError(_text(error, secrets), state=error.sqlstate or "", lost=lost) from None


def _parts(table: PostgresTable, dsn: str) -> dict[str, Any]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    if not dsn.strip():
        raise SinkError(
            f"the environment variable {table.dsn_env}, which holds the connection string for the table {table.label}, is not set",
            fix=f"set {table.dsn_env} where this process runs, such as postgresql://user:password@host/database",
            place=table.location,
        )
    try:
        return conninfo_to_dict(dsn)
    except ProgrammingError:
        # The library's text repeats parts of it.
        raise SinkError(
            f"the environment variable {table.dsn_env} holds no connection string of Postgres",
            fix=f"set {table.dsn_env} to postgresql://user:password@host/database, with special characters percent-encoded",
            place=table.location,
        ) from None


def _secrets(dsn: str, parts: dict[str, Any]) -> tuple[str, ...]:
    values = [str(parts[name]) for name in _SECRET_PARTS if parts.get(name)]
    found = {dsn, *values, *(quote(value, safe="") for value in values)}
    return tuple(sorted(found, key=len, reverse=True))


def _text(error: Any, secrets: tuple[str, ...]) -> str:  # noqa: ANN401 - an error of a library that need not be installed
    """Return the first line of an error, without secrets and without the values of rows, which the server's details have."""
    lines = (error.diag.message_primary or str(error)).strip().splitlines() or [type(error).__name__]
    text = " ".join(line.strip() for line in lines[:2])
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return redacted(text)
