"""Aggregates of groups in plain Python: all rows of each group are kept, and aggregated again in each epoch that changes the group."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.semantics.changelog.row_kinds import NAMES, RowKind
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.testing.operators.aggregate_folds import argument_of, fold_of
from tidemark.testing.operators.changelogs.latest import emitted_change
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, value_of

OPERATION: Final = "operation"
"""The column with the operation of a row of a changelog that is given, where it has one: else it is that of the element."""

Key = tuple[object, ...]


@dataclass
class _Group:
    """The rows of a group, by the key of the input's rows, or by number; its greatest event time, when its state expires, and its result.

    The result has the time that it was emitted with.
    """

    rows: dict[Any, Arrived]
    time: int
    due: int | None = None
    shown: tuple[dict[str, object], int] | None = None


_Snapshot = tuple[tuple[dict[Key, _Group], int, int], StateTtl | None]


class PureGroupAggregate(PureOperatorBase):
    """Aggregates of groups; their results have the kind of the change as ``operation``, as ``as_elements()`` has it.

    Args:
        node: its declaration.
        folds: of aggregates that the harness does not know by their kind, by name.

    Raises:
        DefinitionError: an aggregate is an SQL one, and has no fold.
    """

    def __init__(self, node: GroupAggregateNode, folds: Folds) -> None:
        self._node = node
        self._folds = {name: folds.get(name) or fold_of(name, aggregate, node) for name, aggregate in node.aggregates}
        # The groups by key, how many rows came, and the first watermark.
        self._operator: tuple[dict[Key, _Group], int, int] = ({}, 0, MIN_WATERMARK)
        self._processing_time = 0
        self._arrived: list[Arrived] = []

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        self._processing_time = processing_time

    def process(self, element: Arrived) -> None:
        """Take a row, whose turn comes at the epoch's end."""
        self._arrived.append(element)

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Aggregate the groups that rows change; return the changes."""
        groups, number, first = self._operator
        ttl = self._node.ttl
        if ttl is not None and ttl.domain == "processing":
            self._begin(groups, self._processing_time, ttl.ms)
            self._expire(groups, self._processing_time)
        touched: dict[Key, None] = {}
        for element in self._arrived:
            key = tuple(value_of(expression, element.row, what=f"key {name!r}", node=self._node) for name, expression in self._node.keys)
            touched[key] = None
            number += 1
            self._change(groups.setdefault(key, _Group({}, element.time)), element, number)
        self._arrived = []
        clock = watermark if ttl is not None and ttl.domain == "event" else self._processing_time
        emitted = [each for key in touched for each in self._changed(groups, key, clock)]
        if ttl is not None and ttl.domain == "event" and watermark != MIN_WATERMARK:
            first = watermark if first == MIN_WATERMARK else first
            self._begin(groups, watermark, ttl.ms)
            self._expire(groups, watermark)
        self._operator = (groups, number, first)
        return emitted

    def _change(self, group: _Group, element: Arrived, number: int) -> None:
        group.time = max(group.time, element.time)
        keys = self._node.row_keys
        identity = number if keys is None else tuple(element.row[name] for name in keys)
        # Rows of a later epoch come after those of one before, where their times are equal.
        row = {name: value for name, value in element.row.items() if name != OPERATION}
        kind = NAMES[str(element.row[OPERATION])] if OPERATION in element.row else element.kind
        if kind.adds:
            group.rows[identity] = Arrived(element.port, row, element.time, (number,))
        else:
            group.rows.pop(identity, None)

    def _changed(self, groups: dict[Key, _Group], key: Key, clock: int) -> list[Emitted]:
        group = groups[key]
        before = group.shown
        keys = dict(zip((name for name, _ in self._node.keys), key, strict=True))
        after = ({**keys, **self._results(group)}, group.time) if group.rows else None
        ttl = self._node.ttl
        group.due = None if ttl is None or clock == MIN_WATERMARK else _due(clock, ttl.ms)
        if not group.rows:
            del groups[key]
        if before is not None and after is not None and repr(before[0]) == repr(after[0]):
            return []
        group.shown = after
        if before is None or after is None:
            kind = RowKind.INSERT if before is None else RowKind.DELETE
            return [emitted_change(kind, *each) for each in (after or before,) if each is not None]
        return [emitted_change(RowKind.UPDATE_BEFORE, *before), emitted_change(RowKind.UPDATE_AFTER, *after)]

    def _results(self, group: _Group) -> Mapping[str, object]:
        found = {}
        for name, aggregate in self._node.aggregates:
            fold = self._folds[name]
            state = fold.create()
            for row in sorted(group.rows.values(), key=lambda row: (row.time, row.position)):
                value = argument_of(aggregate, row.row, name=name, node=self._node)
                state = fold.add(state, value, row.time, row.position)
            found[name] = fold.result(state)
        return found

    def snapshot(self) -> object:
        """Return a copy of the state, with the lifetime that it has."""
        return copy.deepcopy((self._operator, self._node.ttl))

    def restore(self, snapshot: object) -> None:
        """Resume from a copy of the state; what has no time for its lifetime begins that with the next epoch."""
        self._operator, ttl = copy.deepcopy(cast("_Snapshot", snapshot))
        own = self._node.ttl
        if own is None or ttl is None or ttl.domain != own.domain:
            for group in self._operator[0].values():
                group.due = None

    @staticmethod
    def _begin(groups: dict[Key, _Group], clock: int, ttl_ms: int) -> None:
        """Have groups live from a time on whose lifetime has not begun."""
        for group in groups.values():
            group.due = _due(clock, ttl_ms) if group.due is None else group.due

    @staticmethod
    def _expire(groups: dict[Key, _Group], clock: int) -> None:
        for key in [key for key, group in groups.items() if group.due is not None and group.due <= clock]:
            del groups[key]

    def state(self) -> list[dict[str, object]]:
        """Return a row per group: its key and results."""
        return [dict(group.shown[0]) for group in self._operator[0].values() if group.shown is not None]


def _due(clock: int, ttl_ms: int) -> int:
    return min(clock, MAX_WATERMARK - ttl_ms) + ttl_ms
