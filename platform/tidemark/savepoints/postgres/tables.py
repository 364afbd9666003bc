"""The columns of a table of Postgres: read, compared with those of an output's rows, created, added to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.errors import SinkError
from tidemark.graph.connectors.postgres.checks import column_fault
from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.graph.connectors.postgres.types import holds, postgres_type
from tidemark.savepoints.model.stored_types import shown_type
from tidemark.savepoints.model.verdict import Finding
from tidemark.savepoints.postgres.database import LEAST_VERSION

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.savepoints.postgres.database import PostgresConnection

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef OR a.attidentity <> '',
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT i.indnullsnotdistinct, ARRAY(
    SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, nth)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.nth <= i.indnkeyatts)
FROM pg_index i WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL
"""


@dataclass(frozen=True)
class StoredColumn:
    """A column of a table: its type as Postgres names it, whether it is NOT NULL, whether it has a default.

    ``computed`` says that the server alone gives its values: it is GENERATED ALWAYS, as an expression or as an identity.
    """

    type: str
    required: bool
    has_default: bool
    computed: bool


@dataclass(frozen=True)
class UniqueKey:
    """The columns of a unique index, and whether it takes nulls as equal."""

    columns: frozenset[str]
    nulls_equal: bool


@dataclass(frozen=True)
class StoredTable:
    """A table as it is: its kind (``r`` or ``p`` for tables), columns in order, unique keys."""

    kind: str
    columns: Mapping[str, StoredColumn]
    keys: tuple[UniqueKey, ...]

    @property
    def required(self) -> frozenset[str]:
        """The columns that take no null."""
        return frozenset(name for name, column in self.columns.items() if column.required)


def identifier(table: PostgresTable) -> sql.Identifier:
    """Return a table's quoted name."""
    from psycopg import sql

    return sql.Identifier(table.schema, table.name)


def column_types(schema: Mapping[str, Any], output: str) -> dict[str, str]:
    """Return the types of Postgres of the columns of an output's rows.

    Args:
        schema: Spark's JSON of the rows' type.
        output: its name, for the error.

    Raises:
        SinkError: Postgres has no type for one of them.
    """
    found = {}
    for field in schema["fields"]:
        name, kind = field["name"], shown_type(field["type"])
        fault = column_fault(name, kind)
        if fault is not None:
            raise SinkError(f"output {output!r}: {fault[0]}", fix=fault[1], uid=output)
        found[name] = postgres_type(kind, name) or ""
    return found


def require_server(connection: PostgresConnection, table: PostgresTable, output: str) -> None:
    """Make sure that the server is new enough, and that the database holds every text.

    Raises:
        SinkError: it is not.
    """
    version = connection.info.server_version // 10_000
    if version < LEAST_VERSION:
        raise SinkError(
            f"the server of output {output!r} is Postgres {version}, whose unique keys cannot take nulls as equal",
            fix=f"write to Postgres {LEAST_VERSION} or later",
            uid=output,
            place=table.location,
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SinkError(
            f"the database of output {output!r} has the encoding {encoding}, which does not hold every text",
            fix="write to a database that was created with ENCODING 'UTF8'",
            uid=output,
            place=table.location,
        )


def read_table(connection: PostgresConnection, table: PostgresTable) -> StoredTable | None:
    """Return a table as it is, None where there is none."""
    name = identifier(table).as_string(connection)
    kind = connection.execute("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%s)", [name]).fetchone()
    if kind is None:
        return None
    columns = {row[0]: StoredColumn(*row[1:]) for row in connection.execute(_COLUMNS, [name])}
    keys = tuple(UniqueKey(frozenset(row[1]), row[0]) for row in connection.execute(_KEYS, [name]))
    return StoredTable(kind[0], columns, keys)


def has_rows(connection: PostgresConnection, table: PostgresTable) -> bool:
    """Return whether a table has any row."""
    from psycopg import sql

    found = connection.execute(sql.SQL("SELECT EXISTS (SELECT 1 FROM {})").format(identifier(table))).fetchone()
    return found is not None and bool(found[0])


def table_findings(
    table: PostgresTable, stored: StoredTable, wanted: Mapping[str, str], keys: Sequence[str], *, own: bool
) -> list[Finding]:
    """Return every difference between a table and the rows of an output.

    Args:
        table: its name.
        stored: as it is.
        wanted: types of the rows' columns.
        keys: of an upsert, empty for an append.
        own: whether the output has created the table or published to it; then it gets new columns.
    """
    if stored.kind not in ("r", "p"):
        return [Finding(f"{table.label} is no table", "incompatible", fix="name a table, not a view")]
    return [
        *_column_findings(table, stored, wanted, own=own),
        *_missing_findings(table, stored, wanted, own=own),
        *_key_findings(table, stored, keys),
    ]


def _column_findings(table: PostgresTable, stored: StoredTable, wanted: Mapping[str, str], *, own: bool) -> Iterator[Finding]:
    for name, kind in wanted.items():
        column = stored.columns.get(name)
        spelled = next((other for other in stored.columns if other.lower() == name.lower()), None)
        if column is None and spelled is not None and spelled not in wanted:
            what = f"column {name!r} is spelled {spelled!r} in the table"
            yield Finding(what, "incompatible", fix=f"spell it {spelled!r} in a select after the last operator")
        elif column is None and own:
            yield Finding(f"the table gets column {name!r} ({kind})", "migrates", "it is null in existing rows")
        elif column is None:
            add = f'ALTER TABLE {table.label} ADD COLUMN "{name}" {kind}'
            yield Finding(f"the table lacks column {name!r} ({kind})", "incompatible", fix=f"{add}, or write to another table")
        elif column.computed:
            yield Finding(f"column {name!r} of the table is computed", "incompatible", fix="leave it out of the output")
        elif not holds(column.type, kind):
            what = f"column {name!r} is {kind} in the output and {column.type} in the table, whose types stay"
            fix = "cast it after the last operator, give it another name, change the table's column, or write to another table"
            yield Finding(what, "incompatible", fix=fix)


def _missing_findings(table: PostgresTable, stored: StoredTable, wanted: Mapping[str, str], *, own: bool) -> Iterator[Finding]:
    lowered = {name.lower() for name in wanted}
    for name, column in stored.columns.items():
        if name.lower() in lowered:
            continue
        if column.required and not column.has_default and not column.computed:
            fix = f'keep the column, or: ALTER TABLE {table.label} ALTER COLUMN "{name}" DROP NOT NULL'
            yield Finding(f"the output lacks column {name!r}, which is NOT NULL in the table", "incompatible", fix=fix)
        elif own:
            yield Finding(f"column {name!r} is not written from now on", "compatible", "older rows keep their values")


def _key_findings(table: PostgresTable, stored: StoredTable, keys: Sequence[str]) -> Iterator[Finding]:
    if not keys:
        return
    nullable = any(key in stored.columns and not stored.columns[key].required for key in keys)
    fitting = [key for key in stored.keys if key.columns == frozenset(keys)]
    if any(key.nulls_equal or not nullable for key in fitting):
        return
    listed = ", ".join(f'"{key}"' for key in keys)
    what = f"the table has no unique index on {', '.join(keys)}" + (" that takes nulls as equal" if fitting else "")
    fix = f"CREATE UNIQUE INDEX ON {table.label} ({listed}) NULLS NOT DISTINCT, upsert by the table's key, or write to another table"
    yield Finding(what, "incompatible", fix=fix)


def create_table(connection: PostgresConnection, table: PostgresTable, wanted: Mapping[str, str], keys: Sequence[str]) -> None:
    """Create a table with these columns, all of which take nulls; an upsert's keys are unique, nulls being equal."""
    from psycopg import sql

    parts: list[sql.Composable] = [sql.SQL("{} {}").format(sql.Identifier(name), type_of(kind)) for name, kind in wanted.items()]
    if keys:
        parts.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(names(keys)))
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(identifier(table), sql.SQL(", ").join(parts)))


def drop_table(connection: PostgresConnection, table: PostgresTable) -> None:
    """Delete a table that the output has created and that never had rows."""
    from psycopg import sql

    connection.execute(sql.SQL("DROP TABLE {}").format(identifier(table)))


def add_columns(connection: PostgresConnection, table: PostgresTable, stored: StoredTable, wanted: Mapping[str, str]) -> bool:
    """Add the columns that a table lacks; return whether there were any."""
    from psycopg import sql

    missing = {name: kind for name, kind in wanted.items() if name not in stored.columns}
    for name, kind in missing.items():
        statement = sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(identifier(table), sql.Identifier(name), type_of(kind))
        connection.execute(statement)
    return bool(missing)


def names(columns: Sequence[str]) -> sql.Composed:
    """Return column names, quoted, with commas between them."""
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, columns))


def type_of(kind: str) -> sql.SQL:
    """Return a type's name, which is one of ``postgres_type``."""
    from psycopg import sql

    return sql.SQL(kind)
