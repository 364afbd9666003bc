"""The tables of a query: streams whose columns are found by the names that the query gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.model.schema import Schema
from tidemark.graph.sql.refusals import QuerySite, shown
from tidemark.graph.sql.written import as_written

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class SqlColumn:
    """A column of a relation: the table and the name that a query knows it by, and its name in the stream.

    ``refused`` says why it cannot be read by that name, and what to write instead; None where it can.
    """

    table: str
    name: str
    actual: str
    refused: tuple[str, str] | None = None

    @property
    def qualified(self) -> str:
        """The name behind that of its table, where it has one."""
        return f"{self.table}.{self.name}" if self.table else self.name


@dataclass(frozen=True)
class Relation:
    """A stream in the scope of a query.

    ``columns`` are what a star and names without a table mean, ``of_tables`` what ``rides.*`` and names with a table mean. They differ
    after a join with USING.
    """

    stream: Stream
    columns: tuple[SqlColumn, ...]
    of_tables: tuple[SqlColumn, ...]

    @staticmethod
    def of(stream: Stream, table: str, site: QuerySite) -> Relation:
        """Return the relation of a stream.

        Raises:
            ExpressionError: its columns are known only when the job runs.
        """
        schema = schema_of(stream.node)
        if schema is None:
            raise site.refused(f"the columns of {table!r} are known only when the job runs", "name them before: .select('id', 'fare')")
        return Relation.plain(stream, tuple(SqlColumn(table, name, name) for name in schema.names))

    @staticmethod
    def plain(stream: Stream, columns: tuple[SqlColumn, ...]) -> Relation:
        """Return a relation in which each column is known by its name, with and without its table."""
        return Relation(stream, columns, columns)

    @property
    def tables(self) -> list[str]:
        """The names of its tables."""
        return list(dict.fromkeys(column.table for column in self.of_tables))

    @property
    def actual_names(self) -> set[str]:
        """The names of its columns in the stream, in small letters."""
        return {column.actual.lower() for column in self.columns}

    def renamed(self, taken: set[str]) -> Relation:
        """Return the relation of a table with other names for columns that are taken, in small letters; the query's names stay."""
        others = taken | self.actual_names
        columns, made = [], {}
        for column in self.columns:
            actual = column.actual
            if actual.lower() in taken:
                actual = f"{column.table}_{column.name}"
                while actual.lower() in others:
                    actual += "_"
                others.add(actual.lower())
            made[actual] = f"`{column.actual}`"
            columns.append(replace(column, actual=actual))
        if all(f"`{name}`" == expression for name, expression in made.items()):
            return self
        return Relation.plain(self.stream.select(**made), tuple(columns))

    def find(self, column: exp.Column, site: QuerySite) -> SqlColumn:
        """Return the column that a query names.

        Raises:
            ExpressionError: there is none, there are several, or it cannot be read.
        """
        found = self._named(column)
        if len(found) == 1:
            if found[0].refused is not None:
                raise site.refused(*found[0].refused)
            return found[0]
        if not found:
            known = ", ".join(each.qualified for each in self.columns)
            hint, fix = "; the", "name one of them"
            if column.table and self._named(_column(column.table)):
                fix = f"the field of a struct is written ({column.table}).{column.name}"
            elif near := self._nearest(column):
                hint, fix = f"; did you mean {near}? The", f"write {near}"
            raise site.refused(f"there is no column {shown(column)}{hint} columns are: {known}", fix)
        tables = ", ".join(each.table for each in found)
        raise site.refused(f"{shown(column)} is a column of several tables: {tables}", f"write {found[0].table}.{column.name}")

    def has(self, column: exp.Column) -> bool:
        """Return whether a column is one of these."""
        return bool(self._named(column))

    def _named(self, column: exp.Column) -> list[SqlColumn]:
        name, table = column.name.lower(), column.table.lower()
        known = self.of_tables if table else self.columns
        return [each for each in known if each.name.lower() == name and (not table or each.table.lower() == table)]

    def _nearest(self, column: exp.Column) -> str | None:
        """Return the column whose name is most like that of one that there is not, of the same table where that is named."""
        of_table = [each for each in self.of_tables if each.table.lower() == column.table.lower()] if column.table else []
        known = of_table or self.columns
        near = Schema.of((each.name, None) for each in known).nearest(column.name)
        return None if near is None else next(each.qualified for each in known if each.name.lower() == near.lower())

    def star(self, table: str, site: QuerySite) -> Sequence[exp.Expr]:
        """Return the columns that a star means.

        Args:
            table: that stands before it; empty for none.
            site: of the query.

        Raises:
            ExpressionError: there is no such table.
        """
        if table:
            found = [_column(each.name, each.table) for each in self.of_tables if each.table.lower() == table.lower()]
            if not found:
                raise site.refused(f"there is no table {table}; the tables are: {', '.join(self.tables)}", "name one of them")
            return found
        names = [each.name.lower() for each in self.columns]
        return [_column(each.name, each.table if names.count(each.name.lower()) > 1 else "") for each in self.columns]

    def text(self, expression: exp.Expr, site: QuerySite) -> str:
        """Return SQL of an expression over the stream's columns.

        Raises:
            ExpressionError: it names a column that is not one of these.
        """
        from sqlglot import UnsupportedError

        try:
            return as_written(expression, site.query, lambda column: _column(self.find(column, site).actual))
        except UnsupportedError as error:
            raise site.refused(f"{shown(expression)} is not covered: {error}", "compute it before: stream.with_columns(...)") from error

    def meaning(self, expression: exp.Expr, site: QuerySite) -> exp.Expr:
        """Return an expression over the stream's columns, equal for all ways to write it.

        Raises:
            ExpressionError: as of ``text``.
        """
        from sqlglot import exp

        return expression.unnest().transform(lambda node: _column(self.find(node, site).actual) if isinstance(node, exp.Column) else node)

    def covers(self, expression: exp.Expr) -> bool:
        """Return whether all columns of an expression are of this relation."""
        from sqlglot import exp

        return all(map(self.has, expression.find_all(exp.Column)))


def _column(name: str, table: str = "") -> exp.Column:
    from sqlglot import exp

    return exp.column(name, table=table or None, quoted=True)
