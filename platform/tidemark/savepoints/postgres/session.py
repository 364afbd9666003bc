"""A transaction of Postgres: rows are copied as CSV text that Arrow writes and COPY reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv

from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.savepoints.postgres.database import ConnectionString

if TYPE_CHECKING:
    from tidemark.savepoints.postgres.database import PostgresConnection

IDLE_SECONDS: Final = 60
"""After that time without a statement the server ends a transaction, so that a suspended driver does not hold its lock."""

LOCK_SECONDS: Final = 120
"""How long a transaction waits for that of another driver."""

# A null is nothing between two commas, and an empty text is quoted: so COPY distinguishes them.
_CSV: Final = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")


@dataclass(frozen=True)
class PostgresSession:
    """A connection in a transaction."""

    connection: PostgresConnection

    def query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        done = self.connection.execute(statement.encode(), list(values) or None)
        return done.fetchall() if done.description is not None else []

    def load(self, into: str, types: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> None:
        """Create a temporary table, which the end of the transaction drops, and copy rows into it."""
        from psycopg import sql

        name, columns = sql.Identifier("pg_temp", into), [sql.Identifier(column) for column in types]
        described = [sql.SQL("{} {}").format(column, sql.SQL(kind)) for column, kind in zip(columns, types.values(), strict=True)]
        listed = sql.SQL(", ")
        self.connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(sql.Identifier(into), listed.join(described))
        )
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(name, listed.join(columns))
        with self.connection.cursor().copy(statement) as copy:
            for batch in batches:
                written = pa.BufferOutputStream()
                pa_csv.write_csv(pa.Table.from_batches([batch]), written, _CSV)
                copy.write(written.getvalue().to_pybytes())
        self.connection.execute(sql.SQL("ANALYZE {}").format(name))


@contextmanager
def transaction(table: DatabaseTable) -> Iterator[PostgresSession]:
    """Connect, and run the block in one transaction: committed at its end, rolled back if it raises.

    Args:
        table: whose variable holds the connection string.

    Raises:
        SetupError: psycopg is not installed.
        SinkError: the variable is not set, or holds no connection string.
        DatabaseError: the server cannot be reached, or refuses a statement.
    """
    string = ConnectionString.of(table.dsn_env, what=f"the table {table.label}", place=table.location)
    with string.translating(), string.connect() as connection:
        from psycopg import IsolationLevel

        connection.isolation_level = IsolationLevel.READ_COMMITTED
        connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'".encode())
        yield PostgresSession(connection)
