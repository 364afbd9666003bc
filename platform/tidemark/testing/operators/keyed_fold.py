"""Operators that keep one state of each key, which every element replaces, without Spark: what such kinds have in common."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from tidemark.graph.model.nodes import Expression, StatefulNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.running.keyed_fold import KeyedFold, Stepped
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.testing.operators.contract import Arrived, Emitted, PureOperatorBase, value_of

Key = tuple[object, ...]

_Snapshot = tuple[tuple[dict[Any, Any], int], dict[Any, Any], StateTtl | None]


class PureKeyedFold(PureOperatorBase):
    """An operator.

    Args:
        node: its declaration.
        keys: of the node.
        ttl: of its state.
    """

    def __init__(self, node: StatefulNode, keys: tuple[tuple[str, Expression], ...], ttl: StateTtl | None) -> None:
        self._node = node
        self._keys = keys
        self._ttl = ttl
        # The fold's state, and the watermark of the epoch before.
        self._operator: tuple[dict[Any, Any], int] = ({}, MIN_WATERMARK)
        # State that was restored, and begins its lifetime when its key comes next.
        self._unread: dict[Any, Any] = {}
        self._processing_time = 0
        self._arrived: dict[Key, list[tuple[Arrived, int]]] = {}
        self._bound = node.bound_ms

    @abstractmethod
    def step(self, state: Any, element: Arrived) -> Stepped[Any, dict[str, object]]:  # noqa: ANN401  # each kind has its own
        """Return what an element does."""

    @abstractmethod
    def values(self, state: Any) -> dict[str, object]:  # noqa: ANN401  # as above
        """Return a key's state as columns."""

    def key_of(self, row: Mapping[str, object]) -> Key:
        """Return the key of a row."""
        return tuple(value_of(expression, row, what=f"key {name!r}", node=self._node) for name, expression in self._keys)

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        self._processing_time = processing_time

    def process(self, element: Arrived) -> None:
        """Take an element, whose turn comes when the watermark is known."""
        self._arrived.setdefault(self.key_of(element.row), []).append((element, element.time))

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Process the elements; return the results."""
        kept, before = self._operator
        after = max(before, watermark)
        times = EpochTimes(before, after, self._bound, self._processing_time)
        for key in self._arrived.keys() & self._unread.keys():
            kept[key] = self._unread.pop(key)._replace(renewed=before if self._in_event_time else self._processing_time)
        fold: KeyedFold[Any, Arrived, dict[str, object]] = KeyedFold(self.step, self._ttl, kept)
        emitted = [Emitted(row, time) for key, found in self._arrived.items() for row, time in fold.run(key, found, times)]
        fold.end_epoch(times)
        self._arrived = {}
        self._operator = (fold.kept, after)
        return emitted

    def state(self) -> list[dict[str, object]]:
        """Return a row per key."""
        names = [name for name, _ in self._keys]
        kept = {**self._unread, **self._operator[0]}
        return [{**dict(zip(names, key, strict=True)), **self.values(held.state)} for key, held in kept.items()]

    @property
    def _in_event_time(self) -> bool:
        return self._ttl is not None and self._ttl.domain == "event"

    def snapshot(self) -> object:
        """Return a copy of the state, with the lifetime that it has."""
        return copy.deepcopy((self._operator, self._unread, self._ttl))

    def restore(self, snapshot: object) -> None:
        """Resume from a copy of the state; without a time for its lifetime it begins that when its key comes next, as in the engine."""
        self._operator, self._unread, ttl = copy.deepcopy(cast("_Snapshot", snapshot))
        if self._ttl is not None and (ttl is None or ttl.domain != self._ttl.domain):
            kept, watermark = self._operator
            self._operator, self._unread = ({}, watermark), {**self._unread, **kept}
