"""The tables of a query: streams whose columns are found by the names that the query gives them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.sql.refusals import QuerySite, shown

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class SqlColumn:
    """A column of a relation: the table and the name that a query knows it by, and its name in the stream."""

    table: str
    name: str
    actual: str


@dataclass(frozen=True)
class Relation:
    """A stream in the scope of a query."""

    stream: Stream
    columns: tuple[SqlColumn, ...]

    @staticmethod
    def of(stream: Stream, table: str, site: QuerySite) -> Relation:
        """Return the relation of a stream.

        Raises:
            ExpressionError: its columns are known only when the job runs.
        """
        schema = schema_of(stream.node)
        if schema is None:
            raise site.refused(f"the columns of {table!r} are known only when the job runs", "name them before: .select('id', 'fare')")
        return Relation(stream, tuple(SqlColumn(table, name, name) for name in schema.names))

    @property
    def tables(self) -> list[str]:
        """The names of its tables."""
        return list(dict.fromkeys(column.table for column in self.columns))

    @property
    def actual_names(self) -> set[str]:
        """The names of its columns in the stream, in small letters."""
        return {column.actual.lower() for column in self.columns}

    def renamed(self, taken: set[str]) -> Relation:
        """Return the relation with other names for columns that are taken, in small letters; the query's names stay."""
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
        return Relation(self.stream.select(**made), tuple(columns))

    def find(self, column: exp.Column, site: QuerySite) -> SqlColumn:
        """Return the column that a query names.

        Raises:
            ExpressionError: there is none, or there are several.
        """
        name, table = column.name.lower(), column.table.lower()
        found = [each for each in self.columns if each.name.lower() == name and (not table or each.table.lower() == table)]
        if len(found) == 1:
            return found[0]
        if not found:
            known = ", ".join(f"{each.table}.{each.name}" for each in self.columns)
            raise site.refused(f"there is no column {shown(column)}; the columns are: {known}", "name one of them")
        tables = ", ".join(each.table for each in found)
        raise site.refused(f"{shown(column)} is a column of several tables: {tables}", f"write {found[0].table}.{column.name}")

    def has(self, column: exp.Column) -> bool:
        """Return whether a column is one of these."""
        name, table = column.name.lower(), column.table.lower()
        return any(each.name.lower() == name and (not table or each.table.lower() == table) for each in self.columns)

    def text(self, expression: exp.Expr, site: QuerySite) -> str:
        """Return SQL of an expression over the stream's columns."""
        from sqlglot import exp

        def translate(node: exp.Expr) -> exp.Expr:
            return exp.column(self.find(node, site).actual, quoted=True) if isinstance(node, exp.Column) else node

        return expression.transform(translate).sql(dialect="spark")

    def covers(self, expression: exp.Expr) -> bool:
        """Return whether all columns of an expression are of this relation."""
        from sqlglot import exp

        return all(map(self.has, expression.find_all(exp.Column)))
