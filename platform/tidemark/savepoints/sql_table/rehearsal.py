"""What publishing an epoch needs is tried on no row: what the user may not do fails here, before anything is committed."""

from __future__ import annotations

from tidemark.graph.connectors.database.node import BOOKKEEPING, DatabaseTable
from tidemark.savepoints.database.dialect import Dialect
from tidemark.savepoints.database.session import Session
from tidemark.savepoints.database.stored import StoredTable, Wanted

_PROBE = "tidemark_probe"


def rehearse(session: Session, dialect: Dialect, table: DatabaseTable, stored: StoredTable | None, wanted: Wanted, *, epochs: bool) -> None:
    """Try what publishing rows needs, without an effect; the right to create or alter a table shows only when that is done.

    Args:
        session: in a transaction, or about to begin one.
        dialect: of the database.
        table: the output's.
        stored: as it is, None where it is created with the first rows.
        wanted: the rows.
        epochs: whether there is a table of epochs.

    Raises:
        Exception: of the client library, which the caller's transaction translates: the user may not do it.
    """
    session.query(f"CREATE TEMPORARY TABLE {_PROBE} (v INTEGER)")
    if epochs:
        name = dialect.full_name(table, BOOKKEEPING)
        session.query(f"INSERT INTO {name} SELECT * FROM {name} WHERE 1 = 0")
        session.query(f"UPDATE {name} SET term = term WHERE 1 = 0")
        session.query(f"DELETE FROM {name} WHERE 1 = 0")
    columns = [name for name in wanted.types if stored is not None and name in stored.columns]
    if not columns:
        return
    name, listed = dialect.full_name(table), dialect.listed(columns)
    # Nothing is read from the table: an append needs no right to.
    nulls = ", ".join(["NULL"] * len(columns))
    session.query(f"INSERT INTO {name} ({listed}) SELECT {nulls} FROM {_PROBE} WHERE 1 = 0")
    changed = [column for column in columns if column not in wanted.keys]
    if wanted.keys and changed:
        session.query(f"UPDATE {name} SET {', '.join(f'{dialect.quoted(each)} = {dialect.quoted(each)}' for each in changed)} WHERE 1 = 0")


def rehearse_deletion(session: Session, dialect: Dialect, table: DatabaseTable) -> None:
    """Try to delete rows, without an effect.

    Raises:
        Exception: of the client library, which the caller's transaction translates: the user may not do it.
    """
    session.query(f"DELETE FROM {dialect.full_name(table)} WHERE 1 = 0")
