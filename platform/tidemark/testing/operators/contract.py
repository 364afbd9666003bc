"""What the harness asks of an operator without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import Expression, StatefulNode
from tidemark.semantics.reference.reference_results import Fold

Row = Mapping[str, object]

Folds = Mapping[str, Fold[Any]]
"""By names of aggregates; each has an accumulator of its own."""


@dataclass(frozen=True)
class Emitted:
    """A result row and its event time, milliseconds."""

    row: dict[str, object]
    time: int


@dataclass(frozen=True)
class Arrived:
    """An element of an epoch: the port it came in by, its row, its event time, and its place among those of one time."""

    port: str
    row: Row
    time: int
    position: tuple[int, ...] = field(default=())


class PureOperator(Protocol):
    """An operator epoch by epoch: ``begin_epoch``, ``process`` for each element in the contract's order, ``end_epoch``."""

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        ...

    def process(self, element: Arrived) -> str | None:
        """Take an element; return the counter of one that is not accepted, else None."""
        ...

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """End the epoch with the inputs' watermark; return the results."""
        ...

    def state(self) -> list[dict[str, object]]:
        """Return what is kept, as rows."""
        ...


def value_of(expression: Expression, row: Row, *, what: str, node: StatefulNode) -> object:
    """Return what an expression that is the name of a column is in a row.

    Raises:
        DefinitionError: it is more than a name, which only Spark evaluates, or the row has no such column.
    """
    name = expression.strip().strip("`") if isinstance(expression, str) else None
    if name is not None and name in row:
        return row[name]
    raise DefinitionError(
        f"the harness evaluates no SQL: {what} is {expression!r}, and the rows have the columns {', '.join(map(repr, row)) or 'none'}",
        fix="make a column of it before: .with_columns(name='...'), and give the rows that column",
        uid=node.uid,
        place=node.place,
    )


def instant(milliseconds: int) -> datetime:
    """Return an instant in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
