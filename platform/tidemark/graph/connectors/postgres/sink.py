"""Declares a Postgres sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.graph.checks.output_texts import ColumnTexts, described
from tidemark.graph.connectors.database.declare import table_output
from tidemark.graph.connectors.database.node import TableMode
from tidemark.graph.connectors.postgres.checks import checked_table, column_fault
from tidemark.graph.connectors.postgres.node import PostgresSpec
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Output

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


def postgres(
    stream: Stream,
    *,
    table: str,
    dsn_env: str,
    mode: TableMode = "append",
    keys: Sequence[str] | None = None,
    with_epoch: bool = False,
    description: str = "",
    columns: ColumnTexts | None = None,
) -> Output:
    """Write a stream to a table of Postgres 15 or later; the table is created if it does not exist. Needs the extra ``postgres``.

    Guarantee: exactly once. All rows of an epoch appear in one transaction, with a row of the table ``tidemark_epochs`` in the same schema.

    A changelog is appended as its history, with the columns ``operation`` (``insert``, ``update``, ``delete``) and ``epoch``; upserted, the
    table has its rows as they are after the epoch, without deleted ones.

    Args:
        stream: the stream to write.
        table: ``orders``, of the schema ``public``, or ``shop.orders``.
        dsn_env: name of the environment variable of the driver's process that holds the connection string, such as
            ``postgresql://writer:...@db/shop``. The string is stored nowhere.
        mode: ``append`` adds every row. ``upsert`` keeps the newest row of each key: of a window its newest pane. The rows that a session
            replaces are deleted in the same transaction.
        keys: key columns of an upsert; nulls equal nulls. A changelog has its own. The results of windows have default keys.
        with_epoch: of an append: whether rows have their epoch's number, in the column ``epoch``, so that a rewind can delete them.
        description: what the rows are, for readers: the description of the asset in Dagster.
        columns: what the columns are, by name, likewise.

    Raises:
        DefinitionError: not a stream, no such table or variable, or keys that are missing or of no use.
        ColumnError: Postgres has no type for a column, or the stream lacks a key column.
    """
    place = call_site()
    spec = PostgresSpec(checked_table(table, dsn_env, place), mode, with_epoch=with_epoch)
    output = table_output(stream, spec, keys, column_fault, caller="postgres", place=place)
    return described(output, description, columns)
