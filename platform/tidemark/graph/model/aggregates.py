"""Aggregates: partials made from rows, merged across epochs, and one result, all as SQL text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.graph.model.wrong_operators import without_arithmetic


@dataclass(frozen=True)
class PythonFunction:
    """A Python function that the engine registers in the session as a scalar SQL function before use.

    ``function`` takes and returns plain Python values, one call per row; ``name`` is unique per declaration.
    """

    name: str
    function: Callable[..., object]
    returns: str


@dataclass(frozen=True)
class Partial:
    """One column of state per aggregate.

    ``create`` is an aggregate expression over input rows; ``merge`` one over earlier partials, which may read any of the aggregate's
    columns and is cast to the type that ``create`` gave this one. In both, and in the result,
    ``{name}`` stands for a partial's column; in ``create``, ``{order}`` stands for a struct that orders rows by
    (event time, source position). Braces of SQL itself are doubled.

    The rest is for sliding windows, and never recorded: another way to the same result. ``running`` is ``merge`` over all rows so
    far, with ``{over}`` after each aggregate function, for partials that stay small as rows are merged and ignore nulls; None
    if there is none. ``combine`` merges two partials, ``{left_name}`` and ``{right_name}``, either of which may be null.
    """

    name: str
    create: str
    merge: str
    running: str | None = None
    combine: str | None = None


@without_arithmetic
@dataclass(frozen=True)
class Aggregate:
    """A mergeable aggregate.

    ``kind`` and ``arguments`` describe it (for explain, lineage, compatibility); ``arguments`` are the SQL expressions over
    input columns that it reads. ``result`` is a scalar expression over the partials' columns. Templates as in Partial. ``returns`` is the
    result's type if that depends on no argument; it is never recorded.
    """

    kind: str
    arguments: tuple[str, ...]
    partials: tuple[Partial, ...]
    result: str
    functions: tuple[PythonFunction, ...] = ()
    returns: str | None = None

    @property
    def ordered(self) -> bool:
        """Whether a partial needs the rows' order, and so their source positions."""
        return any("{order}" in partial.create for partial in self.partials)
