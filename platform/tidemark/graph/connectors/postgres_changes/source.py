"""``postgres_changes``: the rows of tables of Postgres, then their changes, as changelogs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.api.watermark_strategies import bounded_out_of_orderness
from tidemark.graph.connectors.postgres.checks import checked_table
from tidemark.graph.connectors.postgres.node import MAX_NAME_BYTES
from tidemark.graph.connectors.postgres_changes.captured_rows import CapturedRows, origin, over_tables
from tidemark.graph.connectors.postgres_changes.column_types import is_declarable
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.expressions.name_checks import check_column_names, column_names
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import OutputTag, RecordReasons, SourceNode
from tidemark.graph.model.postgres_changes_spec import CapturedTable, PostgresChangesSpec
from tidemark.graph.model.schema import Schema
from tidemark.names import validate_source_name
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy

_NAME: Final = re.compile(rf"[a-z_][a-z0-9_]{{0,{MAX_NAME_BYTES - 1}}}", re.ASCII)
"""Names of publications and slots; Postgres allows slots no others."""

_DELETED: Final = "tidemark_deleted"
_COMMITTED_AT: Final = "committed_at"


@dataclass(frozen=True)
class CapturedSchema:
    """The columns of a table that are read, as Spark DDL, and its primary key; made by ``postgres_table``."""

    columns: str
    key: tuple[str, ...]


def postgres_table(schema: str, *, key: Sequence[str]) -> CapturedSchema:
    """Return the columns that ``postgres_changes`` reads of a table.

    Args:
        schema: Spark DDL of the columns to read, such as ``id BIGINT, total DECIMAL(10, 2)``, spelled as in the table, which may have more.
            The types are compared with those of the table when the job starts.
        key: the columns of the table's primary key.

    Raises:
        DefinitionError: an unreadable schema, or a type that no value of Postgres is read as.
        ColumnError: a column of the key is not read.
    """
    place = call_site()
    columns = parse_schema(schema, place=place)
    check_column_names([*columns.names, _DELETED], "postgres_table(schema=...)", place)
    for column in columns.columns:
        if "%" in column.name:
            raise DefinitionError(
                f"postgres_table(schema=...) has column {column.name!r}, and names with '%' cannot be read",
                fix="read the table through another name: ALTER TABLE ... RENAME COLUMN",
                place=place,
            )
        if not is_declarable(column.type):
            raise DefinitionError(
                f"postgres_table(schema=...) reads column {column.name!r} as {column.type}, as which no value of Postgres is read",
                fix=f"read it as a text: {column.name} STRING, and convert it by SQL, such as from_json",
                place=place,
            )
    keys = column_names(key, "postgres_table(key=...)", place)
    for each in keys:
        if each not in columns.names:
            raise ColumnError(
                f"postgres_table(key=...) names {each!r}, and the schema has {', '.join(columns.names)}",
                fix="name the columns of the table's primary key, and read them",
                place=place,
            )
    return CapturedSchema(schema, keys)


class PostgresChanges:
    """The changes of several tables of one source.

    Args:
        rows: the captured rows of all tables.
        name: of the source.
        spec: of the source.
    """

    def __init__(self, rows: Stream, name: str, spec: PostgresChangesSpec) -> None:
        self._rows = rows
        self._name = name
        self._spec = spec

    def table(self, table: str, *, metadata: Mapping[str, str] | None = None, uid: str | None = None) -> Stream:
        """Return the changes of a table as a changelog with its primary key.

        The rows of the table are kept in the job's state, from which come the rows before updates and deletes.

        Args:
            table: as it was given to ``postgres_changes``.
            metadata: columns to add, by SQL over the row and ``operation`` (``read``, ``insert``, ``update``, ``delete``),
                ``committed_at``, ``lsn``, ``tx``: those of the newest change of the row.
            uid: of the operator that keeps the rows; by default ``<source>-<schema>-<table>-rows``.

        Raises:
            DefinitionError: the source does not capture the table.
            InvalidNameError: the name of a column is not allowed.
            ColumnError, ExpressionError: ``metadata`` names an unknown column, or is no expression.
        """
        place = call_site()
        captured = self._spec.table(_labelled(table))
        if captured is None:
            known = ", ".join(each.label for each in self._spec.tables)
            raise DefinitionError(
                f"source {self._name!r} does not capture {shortened(repr(table))}, but {known}",
                fix="give the table to postgres_changes(tables=...)",
                place=place,
            )
        rows, added = CapturedRows(captured), dict(metadata or {})
        check_column_names([*captured.columns.names, *added, _DELETED], "table(metadata=...)", place)
        others = {name: rows.over_row(text, Site(f"metadata {name!r} of {captured.label}", place))[0] for name, text in added.items()}
        whole = self._rows.filter(rows.condition).select(**rows.columns, **others, **{_DELETED: "operation = 'delete'"})
        newest = whole.latest(by=list(captured.keys), deleted=_DELETED)
        named = newest.uid(uid or f"{self._name}-{captured.schema}-{captured.name}-rows")
        return named.select(*(f"`{column}`" for column in (*captured.columns.names, *added)))


def postgres_changes(
    name: str,
    *,
    dsn_env: str,
    tables: Mapping[str, CapturedSchema],
    watermarks: WatermarkStrategy | None = None,
    publication: str | None = None,
    slot: str | None = None,
    snapshot: bool = True,
    on_truncate: Literal["fail", "skip"] = "fail",
    max_rows_per_epoch: int | None = None,
    malformed_to: OutputTag | None = None,
) -> PostgresChanges:
    """Return the rows of tables of Postgres, then their changes: exactly once, without a lock. Needs ``.[postgres]``.

    The changes come by logical replication (``wal_level = logical``), with whole transactions in an epoch. What is read is copied to the
    job store before the epoch is planned, and the slot is moved only behind committed epochs. The rows that the tables have are read in
    parts, between the changes; a job that is stopped resumes with the next part.

    Args:
        name: identifies the source's positions in checkpoints.
        dsn_env: name of the environment variable of the driver's process that holds the connection string. Its user needs ``REPLICATION``
            and ``SELECT``, and to create the publication the ownership of the tables. The string is stored nowhere.
        tables: by name, ``orders`` of the schema ``public`` or ``shop.orders``: ``{"orders": tm.postgres_table("id BIGINT", key=["id"])}``.
            A table that is added later is read from its beginning.
        watermarks: how rows are timed, by SQL over the columns of each table and ``committed_at``, ``lsn``, ``tx``; by default by
            ``committed_at``, the time of the commit (of rows of the snapshot: when they were read), one minute out of order.
        publication: an existing one that has the tables; by default the job creates one.
        slot: name of the replication slot, which the job creates if it does not exist; by default from the job's and the source's name.
            Nothing else may read from it.
        snapshot: False begins with the changes after the first start.
        on_truncate: ``fail`` ends the job with an error at a TRUNCATE, whose rows are not known; ``skip`` keeps them.
        max_rows_per_epoch: greatest number of rows of the snapshot, and of changes, that an epoch reads, except that it reads transactions
            whole; by default 100,000.
        malformed_to: tag of the side output for rows with a value that is none of its type, such as an infinite date.

    Raises:
        InvalidNameError: the name is not allowed.
        DefinitionError: no tables, no such names, or a bound below 1.
        ColumnError, ExpressionError: the timestamp names an unknown column of a table, or is no expression.
    """
    place = call_site()
    validate_source_name(name, place=place)
    spec = PostgresChangesSpec(
        dsn_env,
        _captured(tables, dsn_env, place),
        _named("publication", publication, place),
        _named("slot", slot, place),
        snapshot=snapshot,
        on_truncate=on_truncate,
        max_rows_per_epoch=max_rows_per_epoch,
    )
    if on_truncate not in {"fail", "skip"}:
        raise DefinitionError(
            f"postgres_changes(on_truncate={on_truncate!r}) is neither 'fail' nor 'skip'", fix="write one of them", place=place
        )
    if max_rows_per_epoch is not None and (type(max_rows_per_epoch) is not int or max_rows_per_epoch < 1):
        raise DefinitionError(
            f"postgres_changes(max_rows_per_epoch={max_rows_per_epoch!r}) is not a whole number of 1 or more",
            fix="give 1 or more, or leave it out",
            place=place,
        )
    strategy = watermarks or bounded_out_of_orderness("1 minute", timestamp=_COMMITTED_AT)
    if not isinstance(strategy.timestamp, str):
        raise DefinitionError(
            f"postgres_changes source {name!r} has no timestamp by which its rows are timed",
            fix=f"write watermarks=tm.bounded_out_of_orderness('1 minute', timestamp={_COMMITTED_AT!r}), or leave it out",
            place=place,
        )
    timestamp, site = strategy.timestamp, Site(f"timestamp of source {name!r}", place)
    every = {table.label: CapturedRows(table) for table in spec.tables}
    reason = over_tables(spec, {label: rows.reason(timestamp) for label, rows in every.items()})
    timed = replace(strategy, timestamp=over_tables(spec, {label: rows.time(timestamp, site) for label, rows in every.items()}))
    source = SourceNode(
        name=name,
        spec=spec,
        watermarks=timed,
        malformed_to=malformed_to,
        reasons=RecordReasons(timestamp, reason, origin()),
        place=place,
    )
    return PostgresChanges(Stream(source), name, spec)


def _captured(tables: object, dsn_env: str, place: str) -> tuple[CapturedTable, ...]:
    if not isinstance(tables, Mapping) or not tables or not all(isinstance(each, CapturedSchema) for each in tables.values()):
        raise DefinitionError(
            "postgres_changes(tables=...) names no tables with their columns",
            fix="write tables={'shop.orders': tm.postgres_table('id BIGINT, total DECIMAL(10, 2)', key=['id'])}",
            place=place,
        )
    found: dict[str, CapturedTable] = {}
    for given, columns in tables.items():
        table = checked_table(given, dsn_env, place)
        captured = CapturedTable(table.schema, table.name, _columns(columns), columns.key)
        if captured.row_column in found:
            raise DefinitionError(
                f"postgres_changes(tables=...) has {found[captured.row_column].label} and {captured.label}, which are one name here",
                fix="name each table once; read them by two sources if they are two",
                place=place,
            )
        found[captured.row_column] = captured
    return tuple(found.values())


def _columns(given: CapturedSchema) -> Schema:
    return Schema(parse_schema(given.columns).columns)


def _named(what: str, name: object, place: str) -> str | None:
    if name is None or (isinstance(name, str) and _NAME.fullmatch(name)):
        return name
    raise DefinitionError(
        f"postgres_changes({what}={shortened(repr(name))}) is no name that Postgres allows",
        fix=f"write at most {MAX_NAME_BYTES} small letters, digits and '_', beginning with a letter",
        place=place,
    )


def _labelled(table: object) -> str:
    return f"public.{table}" if isinstance(table, str) and "." not in table else str(table)
