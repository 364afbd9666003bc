"""The best rows of each group in plain Python."""

from __future__ import annotations

from functools import cmp_to_key
from math import isnan
from typing import Any

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.operators.top_n.node import TopNode
from tidemark.graph.operators.top_n.order import OrderPart, parse_order
from tidemark.semantics.changelog.contents import best_rows, changes_between
from tidemark.semantics.changelog.lifetimes import KeyLifetimes, time_of
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.testing.operators.changelogs.latest import emitted_change
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, value_of
from tidemark.testing.sql_values import sql_value

_Kept = tuple[dict[str, object], int, int]
"""A row, its event time, and its number in the order in which rows arrived."""


class PureTop(PureOperatorBase):
    """The best rows of each group; its results have the kind of the change as ``operation``, as ``as_elements()`` has it.

    Args:
        node: its declaration.
        folds: not used.

    Raises:
        DefinitionError: its input is a changelog, and rows of the harness have no kind of change.
    """

    def __init__(self, node: TopNode, folds: Folds) -> None:
        del folds
        if node.changelog is not None:
            raise DefinitionError(
                "the harness takes elements, and top_n is over a changelog",
                fix="run the job on tm.from_elements(...)",
                uid=node.uid,
                place=node.place,
            )
        self._node = node
        self._site = Site("top_n order", node.place, node.uid)
        self._order = parse_order(node.order, self._site)
        # The rows of each group, how many arrived, how long groups live, and the watermark of the epoch before.
        lives: KeyLifetimes[Any] = KeyLifetimes(node.ttl)
        self._operator: tuple[dict[Any, list[_Kept]], int, KeyLifetimes[Any], int] = ({}, 0, lives, MIN_WATERMARK)
        self._arrived: list[Arrived] = []
        self._processing_time = 0

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        self._processing_time = processing_time

    def process(self, element: Arrived) -> None:
        """Take a row."""
        self._arrived.append(element)

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Choose the best rows; return the net changes."""
        groups, arrived, lives, before_watermark = self._operator
        self._expire(groups, lives, before_watermark)
        before = self._content(groups)
        rows = [row for members in groups.values() for row in members]
        for element in sorted(self._arrived, key=lambda each: each.position):
            rows.append((dict(element.row), element.time, arrived))
            lives.touch(self._group(rows[-1]))
            arrived += 1
        self._arrived.clear()
        groups = best_rows(rows, self._node.n, self._group, cmp_to_key(self._compared))
        changes = changes_between(before, self._content(groups))
        lives.renew(time_of(self._node.ttl, watermark, self._processing_time))
        self._operator = (groups, arrived, lives, watermark)
        self._expire(groups, lives, watermark)
        return [emitted_change(kind, row, time) for kind, _, (row, time) in changes]

    def _expire(self, groups: dict[Any, list[_Kept]], lives: KeyLifetimes[Any], watermark: int) -> None:
        for group in lives.expire(time_of(self._node.ttl, watermark, self._processing_time)):
            groups.pop(group, None)

    def restore(self, snapshot: object) -> None:
        """Resume from a copy of the state."""
        lives = self._operator[2]
        super().restore(snapshot)
        groups, arrived, kept, watermark = self._operator
        lives.resume_keys(kept, groups)
        self._operator = (groups, arrived, lives, watermark)

    def state(self) -> list[dict[str, object]]:
        """Return the best rows."""
        return [row for row, _ in self._content(self._operator[0]).values()]

    def _content(self, groups: dict[Any, list[_Kept]]) -> dict[Any, tuple[dict[str, object], int]]:
        node = self._node
        found: dict[Any, tuple[dict[str, object], int]] = {}
        for group, members in groups.items():
            for place, (row, time, _) in enumerate(members, 1):
                if node.rank is not None:
                    found[(group, place)] = ({**row, node.rank: place}, time)
                else:
                    found[tuple(row[name] for name in node.key)] = (row, time)
        return found

    def _group(self, kept: _Kept) -> tuple[object, ...]:
        return tuple(value_of(name, kept[0], what=f"key {name!r}", node=self._node) for name in self._node.by)

    def _compared(self, one: _Kept, other: _Kept) -> int:
        for part in self._order:
            first, second = (sql_value(part.expression, kept[0], self._site) for kept in (one, other))
            found = _sign(first, second, part)
            if found:
                return found
        for name in self._node.key:
            found = _sign(one[0][name], other[0][name], OrderPart(name, descending=False, nulls_first=True))
            if found:
                return found
        return one[2] - other[2]


def _sign(one: Any, other: Any, part: OrderPart) -> int:  # noqa: ANN401  # values of the user's columns
    if one is None or other is None:
        return 0 if one is other else (1 if (other is None) == part.nulls_first else -1)
    first, second = ((isinstance(value, float) and isnan(value), value) for value in (one, other))
    # NaN is greater than any number, and equal to itself.
    at = 0 if first[0] or second[0] else 1
    ascending = int(first[at] > second[at]) - int(first[at] < second[at])
    return -ascending if part.descending else ascending
