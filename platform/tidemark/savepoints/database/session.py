"""A connection to a database within one transaction, and what it raises. No text of an error has a secret, or a value of a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa


class DatabaseError(Exception):
    """A database refused a statement or a connection; the text has no secret.

    Args:
        what: the server's message, or that of the client library.
        state: the SQLSTATE or the number of the error, empty for errors of the connection.
        lost: whether there was no connection, or it broke: then the transaction may have been committed.
    """

    def __init__(self, what: str, *, state: str = "", lost: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.state = state
        self.lost = lost


class Session(Protocol):
    """A connection in a transaction, which is committed at the end of the block that opened it."""

    def query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows.

        Args:
            statement: with ``%s`` for each value; without values ``%`` means nothing.
            values: in their order.
        """
        ...

    def load(self, into: str, types: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> None:
        """Create a temporary table, which is gone with the connection, and write rows into it. Nothing else was written before.

        Args:
            into: the temporary table's name.
            types: of its columns, as those of the table that the rows are for.
            batches: rows with these columns, in this order.
        """
        ...
