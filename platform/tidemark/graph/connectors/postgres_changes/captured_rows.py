"""SQL over captured rows, whose values are texts of Postgres: typed columns, the event time, and why a row is malformed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.expressions.substitution import with_columns_replaced
from tidemark.graph.model.postgres_changes_spec import CHANGE_COLUMNS, CapturedTable, PostgresChangesSpec
from tidemark.graph.model.schema import Schema


@dataclass(frozen=True)
class CapturedRows:
    """SQL over the rows of one table.

    Args:
        table: the table.
    """

    table: CapturedTable

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns of the row, each of its declared type."""
        return {name: self._value(name) for name in self.table.columns.names}

    @property
    def condition(self) -> str:
        """Whether a row of the source is one of the table."""
        return f"`table` = {_text(self.table.label)}"

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Of each column whose text may not be a value of its type: a condition that it is not; a deletion needs only its key."""
        found = {}
        for column in self.table.columns.columns:
            if _is_cast(column.type):
                needed = "" if column.name in self.table.keys else "operation <> 'delete' AND "
                found[column.name] = f"({needed}{self._text(column.name)} IS NOT NULL AND {self._value(column.name)} IS NULL)"
        return found

    def over_row(self, expression: str, site: Site) -> tuple[str, str | None]:
        """Return an expression over the row and the columns of every change as SQL over the source, and its type if known.

        A column of the table takes the place of one of the same name that every change has.

        Raises:
            ColumnError: there is no such column.
            ExpressionError: it is no expression.
        """
        known = Schema(CHANGE_COLUMNS.columns).with_columns(self.table.columns.columns)
        parsed = parse_row_expression(expression, site)
        check_columns(parsed, expression, known, site)
        return with_columns_replaced(expression, self._part, site), type_of(parsed, known)

    def time(self, expression: str, site: Site) -> str:
        """Return SQL of the event time in milliseconds: null for malformed rows; a deletion has that of its commit.

        Raises:
            ColumnError, ExpressionError: as ``over_row`` does.
        """
        value, kind = self.over_row(expression, site)
        if kind in {"BIGINT", "INT"}:
            milliseconds = f"CAST({value} AS BIGINT)"
        elif kind in {"TIMESTAMP", "TIMESTAMP_NTZ", "DATE"}:
            milliseconds = f"unix_millis(CAST({value} AS TIMESTAMP))"
        else:
            text = f"CAST({value} AS STRING)"
            milliseconds = f"coalesce(try_cast({text} AS BIGINT), unix_millis(try_cast({text} AS TIMESTAMP)))"
        # Whether a deletion has the other columns depends on the replica identity.
        deletion = f"if(operation = 'delete', unix_millis(committed_at), {milliseconds})"
        unreadable = " OR ".join(self.unreadable.values())
        return f"if({unreadable}, NULL, {deletion})" if unreadable else deletion

    def reason(self, timestamp: str) -> str:
        """Return SQL of why a row without an event time is malformed."""
        kinds = {column.name: column.type for column in self.table.columns.columns}
        cases = [
            f"WHEN {condition} THEN {_text(f'column {name!r} of {self.table.label} cannot be read as {kinds[name]}')}"
            for name, condition in self.unreadable.items()
        ]
        otherwise = _text(f"event time '{timestamp}' is null or no time")
        return f"CASE {' '.join(cases)} ELSE {otherwise} END" if cases else otherwise

    def _part(self, name: str) -> str | None:
        column = self.table.columns.find(name)
        return None if column is None else f"({self._value(column.name)})"

    def _text(self, name: str) -> str:
        return f"{quoted(self.table.row_column)}.{quoted(name)}"

    def _value(self, name: str) -> str:
        column = self.table.columns.find(name)
        if column is None or column.type is None:
            raise ValueError(name)
        text = self._text(name)
        if column.type == "BINARY":
            return f"unhex(substring({text}, 3))"
        if column.type in {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"}:
            # Spark may read what follows a date's blank as nothing: years before Christ.
            return f"if(right({text}, 2) = 'BC', NULL, try_cast({text} AS {column.type}))"
        return f"try_cast({text} AS {column.type})" if _is_cast(column.type) else text


def over_tables(spec: PostgresChangesSpec, by_table: Mapping[str, str]) -> str:
    """Return SQL that is another one for each table.

    Args:
        spec: of the source.
        by_table: the SQL by the tables' labels.
    """
    cases = (f"WHEN {_text(table.label)} THEN {by_table[table.label]}" for table in spec.tables)
    return f"CASE `table` {' '.join(cases)} END"


def origin() -> str:
    """Return SQL of a text that says where a row is from."""
    return "concat(' (', `table`, ', ', operation, coalesce(concat(', transaction ', tx), ''), ')')"


def quoted(name: str) -> str:
    """Return a column's name as SQL."""
    return f"`{name.replace('`', '``')}`"


def _is_cast(kind: str | None) -> bool:
    return kind is not None and kind not in {"STRING", "BINARY"}


def _text(text: str) -> str:
    """Return a text as an SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
