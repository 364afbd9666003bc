"""Calls a user's function for one element after the other, without keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from tidemark.errors import UserCodeError
from tidemark.semantics.element_process.context import ElementContext
from tidemark.semantics.keyed_process.broadcast_maps import NO_MAPS
from tidemark.semantics.keyed_process.times import Now
from tidemark.semantics.user_rows import Row, describe_failure, end_call, one_row, rows_of

Method = Literal["process", "map", "flat_map", "filter"]
"""What a function is: ``process`` and ``flat_map`` return rows, ``map`` returns one, ``filter`` whether the element stays."""

METHODS: Final[tuple[Method, ...]] = get_args(Method)

Broadcast = Mapping[str, Mapping[Any, Any]]


class Emitted(NamedTuple):
    """A row that was emitted, and its side output; None for the main one. Of a filter the row is the element."""

    tag: str | None
    row: Row


class Failure(NamedTuple):
    """Why the call for an element failed."""

    error: str


class ElementCalls:
    """The calls of a task.

    Args:
        function: takes an element and the context.
        method: what it is.
        tags: names of its side outputs.
        watermark: that the epoch began with.
        processing_time: of the epoch.
        forgives: whether a call that fails is reported, and what it emitted is dropped, instead of ending the epoch.
        broadcast: maps that the function reads, by name.
    """

    def __init__(
        self,
        function: Callable[..., object],
        method: Method,
        *,
        tags: frozenset[str] = frozenset(),
        watermark: int = 0,
        processing_time: int = 0,
        forgives: bool = False,
        broadcast: Broadcast = NO_MAPS,
    ) -> None:
        self._function = function
        self._method = method
        self._forgives = forgives
        self._now = Now(watermark, processing_time)
        self.context = ElementContext(self._now, tags, broadcast)

    def call(self, row: Row, time: int) -> Iterator[Emitted] | list[Emitted] | Failure:
        """Return what the call for an element emits, in its order; a failure, if that is forgiven.

        Raises:
            UserCodeError: the function returned something else than it should.
            Exception: whatever the function raised.
        """
        self._now.timestamp = time
        if not self._forgives:
            return self._emitted(self._function(row, self.context), row)
        returned = None
        try:
            returned = self._function(row, self.context)
            return list(self._emitted(returned, row))
        except Exception as error:  # noqa: BLE001  # whatever the user's function raises
            end_call(returned)
            self.context.take_outputs()
            return Failure(describe_failure(error))

    def _emitted(self, returned: object, row: Row) -> Iterator[Emitted]:
        context = self.context
        for each in self._rows(returned, row):
            if context.pending_outputs:
                yield from map(Emitted._make, context.take_outputs())
            yield Emitted(None, each)
        if context.pending_outputs:
            yield from map(Emitted._make, context.take_outputs())

    def _rows(self, returned: object, row: Row) -> Iterator[Row] | tuple[Row, ...]:
        if self._method == "map":
            return (one_row(returned, "map"),)
        if self._method == "filter":
            return (row,) if _is_true(returned) else ()
        return rows_of(returned, self._method)


def _is_true(returned: object) -> bool:
    if returned is not None and type(returned) is not bool:
        # NumPy's booleans are none of Python's.
        item = getattr(returned, "item", None)
        returned = item() if callable(item) else returned
        if type(returned) is not bool:
            raise UserCodeError(f"filter returned {returned!r}, neither true nor false", fix="return a bool: element['fare'] > 10")
    return bool(returned)
