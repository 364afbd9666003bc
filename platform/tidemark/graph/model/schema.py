"""Columns of a stream as known at definition: names always, types if they are certain."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class SchemaColumn:
    """A column and its Spark type as DDL text, None if the type is not known before the job runs."""

    name: str
    type: str | None = None


@dataclass(frozen=True)
class Schema:
    """A stream's columns in order. Names are compared as Spark does, ignoring case.

    >>> schema = Schema.of([("zone", "INT"), ("fare", None)])
    >>> schema.names
    ('zone', 'fare')
    >>> schema.find("ZONE")
    SchemaColumn(name='zone', type='INT')
    >>> str(schema)
    'zone INT, fare'
    """

    columns: tuple[SchemaColumn, ...]

    @classmethod
    def of(cls, columns: Iterable[tuple[str, str | None]]) -> Schema:
        """Return a schema of (name, type) pairs."""
        return cls(tuple(SchemaColumn(name, kind) for name, kind in columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> SchemaColumn | None:
        """Return the column of a name, ignoring case, or None."""
        wanted = name.lower()
        return next((column for column in self.columns if column.name.lower() == wanted), None)

    def with_columns(self, columns: Iterable[SchemaColumn]) -> Schema:
        """Return this schema with columns replaced in place where they exist, else added at the end."""
        result = list(self.columns)
        for column in columns:
            index = next((i for i, old in enumerate(result) if old.name.lower() == column.name.lower()), None)
            if index is None:
                result.append(column)
            else:
                result[index] = column
        return Schema(tuple(result))

    def nearest(self, name: str) -> str | None:
        """Return the column whose name is most like the given one, or None if none is.

        >>> Schema.of([("fare_amount", "DOUBLE"), ("zone", "INT")]).nearest("fare_amont")
        'fare_amount'
        """
        by_lower = {column.name.lower(): column.name for column in self.columns}
        close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
        return by_lower[close[0]] if close else None

    def __str__(self) -> str:
        return ", ".join(f"{column.name} {column.type}" if column.type else column.name for column in self.columns)
