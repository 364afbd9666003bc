"""A table of a database as it is, and how it differs from the rows of an output."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.savepoints.model.verdict import Finding

if TYPE_CHECKING:
    from tidemark.savepoints.database.dialect import Dialect


@dataclass(frozen=True)
class Longest:
    """The greatest length of a column's values."""

    characters: int
    bytes: int


@dataclass(frozen=True)
class StoredColumn:
    """A column of a table: its type as the database names it, whether it is NOT NULL, whether it has a default.

    ``computed`` says that the server alone gives its values. ``longest`` is how long its values may be, None without a limit.
    """

    type: str
    required: bool
    has_default: bool
    computed: bool
    longest: Longest | None = None


@dataclass(frozen=True)
class UniqueKey:
    """The columns of a unique index, and whether rows are found by it, nulls being equal.

    ``is_exact`` is false where it takes texts for equal that are not, such as ``a`` and ``A``: these are two keys of an upsert.
    """

    columns: frozenset[str]
    nulls_equal: bool
    is_exact: bool = True


@dataclass(frozen=True)
class StoredTable:
    """A table as it is: columns in order, unique keys, and why no rows can be written to it, with the fix; None if they can."""

    columns: Mapping[str, StoredColumn]
    keys: tuple[UniqueKey, ...]
    fault: tuple[str, str] | None = None

    @property
    def required(self) -> frozenset[str]:
        """The columns that take no null."""
        return frozenset(name for name, column in self.columns.items() if column.required)


@dataclass(frozen=True)
class Missing:
    """What the user lacks, such as ``INSERT on the table shop.orders``, and the statement that gives it."""

    what: str
    grant: str


@dataclass(frozen=True)
class Wanted:
    """The rows of an output: types of their columns, and the keys of an upsert, empty for an append."""

    types: Mapping[str, str]
    keys: Sequence[str] = ()


def table_findings(dialect: Dialect, table: DatabaseTable, stored: StoredTable, wanted: Wanted, *, own: bool) -> list[Finding]:
    """Return every difference between a table and the rows of an output.

    Args:
        dialect: of the table's database.
        table: its name.
        stored: as it is.
        wanted: the rows.
        own: whether the output has created the table or published to it; then it gets new columns.
    """
    if stored.fault is not None:
        return [Finding(f"{table.label} {stored.fault[0]}", "incompatible", fix=stored.fault[1])]
    return [
        *_column_findings(dialect, table, stored, wanted.types, own=own),
        *_missing_findings(dialect, table, stored, wanted.types, own=own),
        *_key_findings(dialect, table, stored, wanted.keys),
    ]


def _column_findings(
    dialect: Dialect, table: DatabaseTable, stored: StoredTable, wanted: Mapping[str, str], *, own: bool
) -> Iterator[Finding]:
    for name, kind in wanted.items():
        column = stored.columns.get(name)
        spelled = next((other for other in stored.columns if other.lower() == name.lower()), None)
        if column is None and spelled is not None and spelled not in wanted:
            what = f"column {name!r} is spelled {spelled!r} in the table"
            yield Finding(what, "incompatible", fix=f"spell it {spelled!r} in a select after the last operator")
        elif column is None and own:
            yield Finding(f"the table gets column {name!r} ({kind})", "migrates", "it is null in existing rows")
        elif column is None:
            add = f"ALTER TABLE {table.label} ADD COLUMN {dialect.quoted(name)} {kind}"
            yield Finding(f"the table lacks column {name!r} ({kind})", "incompatible", fix=f"{add}, or write to another table")
        elif column.computed:
            yield Finding(f"column {name!r} of the table is computed", "incompatible", fix="leave it out of the output")
        elif not dialect.holds(column.type, kind):
            what = f"column {name!r} is {kind} in the output and {column.type} in the table, whose types stay"
            fix = "cast it after the last operator, give it another name, change the table's column, or write to another table"
            yield Finding(what, "incompatible", fix=fix)


def _missing_findings(
    dialect: Dialect, table: DatabaseTable, stored: StoredTable, wanted: Collection[str], *, own: bool
) -> Iterator[Finding]:
    lowered = {name.lower() for name in wanted}
    for name, column in stored.columns.items():
        if name.lower() in lowered:
            continue
        if column.required and not column.has_default and not column.computed:
            fix = f"keep the column, or: {dialect.without_not_null(table, name, column)}"
            yield Finding(f"the output lacks column {name!r}, which is NOT NULL in the table", "incompatible", fix=fix)
        elif own:
            yield Finding(f"column {name!r} is not written from now on", "compatible", "older rows keep their values")


def _key_findings(dialect: Dialect, table: DatabaseTable, stored: StoredTable, keys: Sequence[str]) -> Iterator[Finding]:
    if not keys:
        return
    nullable = any(key in stored.columns and not stored.columns[key].required for key in keys)
    fitting = [key for key in stored.keys if key.columns == frozenset(keys)]
    if not all(key.is_exact for key in fitting):
        what = f"the unique index on {', '.join(keys)} takes texts for equal that differ, by a collation that is not deterministic"
        yield Finding(what, "incompatible", fix='give the key\'s columns a deterministic collation, such as "C", or write to another table')
        return
    if any(key.nulls_equal or not nullable for key in fitting):
        return
    what = f"the table has no unique index on {', '.join(keys)}" + (" that takes nulls as equal" if fitting else "")
    yield Finding(what, "incompatible", fix=f"{dialect.unique_index(table, keys)}, upsert by the table's key, or write to another table")
