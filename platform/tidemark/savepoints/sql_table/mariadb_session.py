"""A transaction of MariaDB or MySQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidemark.errors import SetupError
from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.savepoints.database.session import DatabaseError
from tidemark.savepoints.sql_table.connection_strings import ServerAddress, server_address
from tidemark.savepoints.sql_table.values import in_utc, rows_of

if TYPE_CHECKING:
    from pymysql import Connection
    from pymysql.cursors import Cursor

LOADING_SECONDS: Final = 6 * 3_600
"""After that time without a statement the server ends a connection that has no lock yet.

Whatever the server's own limit is: while a staged file is copied to this machine the connection waits.
"""

LOCK_SECONDS: Final = 120
"""How long a transaction waits for that of another driver."""

_CLIENT_ERRORS: Final = range(2000, 3000)
_LOST: Final = frozenset({1040, 1042, 1043, 1045, 1049, 1053, 1129, 1130, 1158, 1159, 1160, 1161, 1205, 1213, 1927, 4031, 4151})
"""Errors of the server at which there was no connection, or it broke, or which another transaction caused."""

_VALUE: Final = re.compile(r"\b(entry|value:?) (?:'.*'(?= for )|'.*'\s*$)", re.IGNORECASE | re.DOTALL)
_LONG_TEXT: Final = re.compile(r"varchar\(\d+\)")
_LONG_BINARY: Final = re.compile(r"varbinary\(\d+\)")


@dataclass(frozen=True)
class MariadbSession:
    """A connection in a transaction.

    Args:
        connection: of pymysql.
        options: of tables that are created: their engine, and how texts are compared.
    """

    connection: Connection[Cursor]
    options: str

    def query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, tuple(values) or None)
            return list(cursor.fetchall())

    def load(self, into: str, types: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> None:
        """Create a temporary table, which is gone with the connection, and insert rows into it, many with each statement."""
        kinds = (_LONG_BINARY.sub("longblob", _LONG_TEXT.sub("longtext", kind)) for kind in types.values())
        columns = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in zip(types, kinds, strict=True))
        # What was read so far keeps other drivers from changing tables until the transaction ends, and files may take long.
        self.connection.commit()
        self.query(f"CREATE TEMPORARY TABLE {into} ({columns}){self.options}")
        with self.connection.cursor() as cursor:
            statement = f"INSERT INTO {into} VALUES ({', '.join(['%s'] * len(types))})"
            for rows in rows_of(batches, in_utc):
                cursor.executemany(statement, rows)


@contextmanager
def transaction(table: DatabaseTable, options: str) -> Iterator[MariadbSession]:
    """Connect, and run the block in one transaction: committed at its end, rolled back if it raises.

    Args:
        table: whose variable holds the connection string.
        options: of tables that are created.

    Raises:
        SetupError: pymysql is not installed.
        SinkError: the variable is not set, or holds no connection string.
        DatabaseError: the server cannot be reached, or refuses a statement.
    """
    address = server_address(table)
    with _translating(address, table), closing(_connect(address)) as connection:
        session = MariadbSession(connection, options)
        session.query(
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
            f"wait_timeout = {LOADING_SECONDS}, innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = {LOCK_SECONDS}"
        )
        # So that what is read after waiting for a lock is what the other transaction has written.
        session.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield session
        connection.commit()


def _connect(address: ServerAddress) -> Connection[Cursor]:
    import pymysql

    options: dict[str, Any] = {"charset": "utf8mb4", "autocommit": False, **address.options}
    try:
        return pymysql.connect(
            host=address.host, port=address.port, user=address.user, password=address.password, database=address.database, **options
        )
    except (OSError, RuntimeError, ValueError) as error:
        # A certificate that cannot be read, or a way to log in that needs a library.
        raise DatabaseError(address.without_secrets(str(error)), lost=True) from None


@contextmanager
def _translating(address: ServerAddress, table: DatabaseTable) -> Iterator[None]:
    """Translate errors of pymysql in the block. Neither they nor their texts are kept: both may repeat what they were given."""
    try:
        import pymysql
    except ImportError as missing:
        raise SetupError(
            f"the table {table.label} is one of MariaDB or MySQL, and pymysql is not installed",
            fix="run pip install -e '.[mariadb]' in the checkout",
        ) from missing
    try:
        yield
    except pymysql.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[-1]) if error.args else type(error).__name__
        lost = (
            code in _CLIENT_ERRORS or code in _LOST or (code == 0 and isinstance(error, pymysql.OperationalError | pymysql.InterfaceError))
        )
        # Before the first line is taken: a value may have several.
        text = _VALUE.sub(r"\1", text).strip()
        shown = address.without_secrets(text.splitlines()[0] if text else type(error).__name__)
        raise DatabaseError(shown, state=str(code or ""), lost=lost) from None
