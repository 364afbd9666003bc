"""Where the columns of a stream come from: which columns of which sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from tidemark.graph.expressions.expressions import referenced_columns
from tidemark.graph.model.nodes import Expression

Origins = frozenset[tuple[str, str]]
"""(source, column) pairs."""

NO_ORIGINS: Origins = frozenset()


def merged(origins: Iterable[Origins]) -> Origins:
    """Return all of several."""
    return reduce(frozenset.union, origins, NO_ORIGINS)


@dataclass(frozen=True)
class ColumnOrigins:
    """Origins by lower-case column name; ``other`` for columns not named; ``time`` of the elements' event time."""

    columns: Mapping[str, Origins]
    other: Origins
    time: Origins

    def every(self) -> Origins:
        """Return the origins of all columns."""
        return merged([*self.columns.values(), self.other])

    def of_names(self, names: Iterable[str]) -> Origins:
        """Return the origins of some columns."""
        return merged(self.columns.get(name.lower(), self.other) for name in names)

    def of(self, expression: Expression) -> Origins:
        """Return the origins of an expression's value: of every column, if it is a function."""
        names = referenced_columns(expression)
        return self.every() if names is None else self.of_names(names)
