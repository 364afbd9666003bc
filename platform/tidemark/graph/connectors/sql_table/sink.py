"""Declares a sink to a table of MariaDB, MySQL or SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidemark.graph.checks.output_texts import ColumnTexts, described
from tidemark.graph.connectors.database.declare import table_output
from tidemark.graph.connectors.database.node import TableMode
from tidemark.graph.connectors.sql_table.checks import checked_database, checked_table, column_fault
from tidemark.graph.connectors.sql_table.node import SqlDatabase, SqlTableSpec
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Output

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


def sql_table(
    stream: Stream,
    *,
    database: SqlDatabase,
    table: str,
    dsn_env: str,
    mode: TableMode = "append",
    keys: Sequence[str] | None = None,
    with_epoch: bool = False,
    description: str = "",
    columns: ColumnTexts | None = None,
) -> Output:
    """Write a stream to a table of MariaDB, MySQL or SQLite; the table is created if it does not exist.

    Guarantee: exactly once. All rows of an epoch appear in one transaction, with a row of the table ``tidemark_epochs`` beside it.
    MariaDB and MySQL need the extra ``mariadb``. Tables of Postgres have a sink of their own, ``tm.postgres``.

    A changelog is appended as its history, with the columns ``operation`` (``insert``, ``update``, ``delete``) and ``epoch``; upserted, the
    table has its rows as they are after the epoch, without deleted ones.

    Args:
        stream: the stream to write.
        database: ``mariadb`` (10.6 or later), ``mysql`` (8.0.17 or later; not tested) or ``sqlite`` (3.33 or later).
        table: name of the table, such as ``orders``, in the database that the connection string names.
        dsn_env: name of the environment variable of the driver's process that holds the connection string, such as
            ``mariadb://writer:...@db/shop`` or ``sqlite:////data/shop.db``. The string is stored nowhere.
        mode: ``append`` adds every row. ``upsert`` keeps the newest row of each key: of a window its newest pane. The rows that a session
            replaces are deleted in the same transaction.
        keys: key columns of an upsert; nulls equal nulls. A changelog has its own. The results of windows have default keys.
        with_epoch: of an append: whether rows have their epoch's number, in the column ``epoch``, so that a rewind can delete them.
        description: what the rows are, for readers: the description of the asset in Dagster.
        columns: what the columns are, by name, likewise.

    Raises:
        DefinitionError: not a stream, no such database, table or variable, or keys that are missing or of no use.
        ColumnError: the database has no type for a column, or the stream lacks a key column.
    """
    place = call_site()
    known = checked_database(database, place)
    spec = SqlTableSpec(checked_table(table, dsn_env, known, place), mode, with_epoch=with_epoch)
    output = table_output(stream, spec, keys, partial(column_fault, known), caller="sql_table", place=place)
    return described(output, description, columns)
