"""The interface of an operator without Spark, as the harness uses it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from tidemark.errors import DefinitionError, StateMismatchError
from tidemark.graph.model.nodes import Expression, StatefulNode
from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.semantics.reference.reference_results import Fold
from tidemark.spark.operators.keyed_process.conversions import same_key

Row = Mapping[str, object]

Folds = Mapping[str, Fold[Any]]
"""Folds by the names of aggregates; each has its own type of accumulator."""


@dataclass(frozen=True)
class Emitted:
    """A result row and its event time, milliseconds."""

    row: dict[str, object]
    time: int


@dataclass(frozen=True)
class Arrived:
    """An element of an epoch: its port, its row, its event time, and its place among those of the same time; of a changelog its kind."""

    port: str
    row: Row
    time: int
    position: tuple[int, ...] = field(default=())
    kind: RowKind = RowKind.INSERT


class PureOperator(Protocol):
    """An operator epoch by epoch: ``begin_epoch``, ``process`` for each element in the contract's order, ``end_epoch``."""

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        ...

    def process(self, element: Arrived) -> str | None:
        """Process an element; return the counter of one that is not accepted, else None."""
        ...

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """End the epoch with the inputs' watermark; return the results."""
        ...

    def take_side_rows(self) -> tuple[dict[str, list[dict[str, object]]], dict[str, int]]:
        """Return the rows of side outputs that are known only at an epoch's end, by counter, and how many elements each counter has."""
        ...

    def state(self) -> list[dict[str, object]]:
        """Return the state, as rows."""
        ...

    def timers(self) -> list[dict[str, object]]:
        """Return the timers that users set, as rows."""
        ...

    def snapshot(self) -> object:
        """Return a copy of the state."""
        ...

    def restore(self, snapshot: object) -> None:
        """Resume from a copy of the state."""
        ...


class PureOperatorBase:
    """The parts of an operator that most kinds have in common; ``_operator`` is what holds its state."""

    _operator: Any

    def take_side_rows(self) -> tuple[dict[str, list[dict[str, object]]], dict[str, int]]:
        """Return nothing: each element's counter is known when it is processed."""
        return {}, {}

    def timers(self) -> list[dict[str, object]]:
        """Return nothing: users set no timers."""
        return []

    def snapshot(self) -> object:
        """Return a copy of what holds the state."""
        return copy.deepcopy(self._operator)

    def restore(self, snapshot: object) -> None:
        """Resume from a copy of what holds the state; what is declared stays as it is here."""
        self._operator = _resumed(self._operator, copy.deepcopy(snapshot))


class _Resumable(Protocol):
    """What keeps state by rules that are declared, which may have been others when the state was written."""

    def resume(self, kept: Any) -> None:  # noqa: ANN401  # another of its class
        """Resume from what another one kept."""
        ...


def _resumed(own: Any, kept: Any) -> Any:  # noqa: ANN401  # whatever holds the state of a kind
    """Return what has the state of one and is declared as the other; nested ones in tuples and dicts, too."""
    if hasattr(own, "resume"):
        if type(own) is not type(kept):
            raise StateMismatchError("the snapshot is that of another kind of operator", fix="restore it in a harness of the same operator")
        resumable: _Resumable = own
        resumable.resume(kept)
        return own
    if isinstance(own, tuple) and isinstance(kept, tuple) and len(own) == len(kept):
        return tuple(map(_resumed, own, kept))
    if isinstance(own, dict) and any(hasattr(each, "resume") for each in own.values()):
        return {name: _resumed(each, kept[name]) for name, each in own.items()}
    return kept


def value_of(expression: Expression, row: Row, *, what: str, node: StatefulNode) -> object:
    """Return the value in a row of an expression that is a column name; as a key NaN is one value, as in Spark.

    Raises:
        DefinitionError: the expression is not a name, so only Spark evaluates it, or the row has no such column.
    """
    name = expression.strip().strip("`") if isinstance(expression, str) else None
    if name is not None and name in row:
        return same_key(row[name])
    raise DefinitionError(
        f"the harness evaluates no SQL: {what} is {expression!r}, and the rows have the columns {', '.join(map(repr, row)) or 'none'}",
        fix="compute it as a column before: .with_columns(name='...'), and give the rows that column",
        uid=node.uid,
        place=node.place,
    )


def instant(milliseconds: int) -> datetime:
    """Return an instant in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
