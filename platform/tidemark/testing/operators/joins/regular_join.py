"""The regular join in plain Python: both contents in full, joined at each epoch's end."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tidemark.graph.operators.regular_join.node import RegularJoinNode
from tidemark.semantics.changelog.lifetimes import time_of
from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.semantics.joins.regular import TableContent, joined, net_changes
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.operators.keyed_process.conversions import same_key
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, instant, value_of

_OPERATIONS = {RowKind.INSERT: "insert", RowKind.UPDATE_AFTER: "update", RowKind.DELETE: "delete"}
_Found = tuple[dict[str, object], int]


class PureRegularJoin(PureOperatorBase):
    """A regular join; its results are history rows, with ``operation``, as appending sinks write them.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: RegularJoinNode, folds: Folds) -> None:
        del folds
        self._node = node
        contents: dict[str, TableContent[Arrived]] = {port: TableContent(side.ttl) for port, side in node.sides.items()}
        self._operator: tuple[dict[str, TableContent[Arrived]], int] = (contents, MIN_WATERMARK)
        self._processing_time = 0

    def begin_epoch(self, processing_time: int) -> None:
        """Drop the rows whose lifetime is over."""
        self._processing_time = processing_time
        contents, watermark = self._operator
        for port, content in contents.items():
            content.begin(self._now(port, watermark))

    def _now(self, port: str, watermark: int) -> int:
        return time_of(self._node.sides[port].ttl, watermark, self._processing_time)

    def process(self, element: Arrived) -> str | None:
        """Apply a change to the content of its input."""
        contents, _ = self._operator
        key = tuple(same_key(element.row[name]) for name in self._node.sides[element.port].keys)
        contents[element.port].apply(key, element.kind, element)
        return None

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return how the join of both contents has changed."""
        contents, _ = self._operator
        before, after = (self._content({port: rows(content) for port, content in contents.items()}) for rows in (_before, _after))
        for port, content in contents.items():
            content.end(self._now(port, watermark))
        self._operator = (contents, watermark)
        changes = net_changes(before, after, lambda one, other: one[0] == other[0])
        return [Emitted({**row, "operation": _OPERATIONS[kind]}, time) for kind, (row, time) in changes]

    def _content(self, tables: Mapping[str, Mapping[Hashable, Arrived]]) -> dict[Hashable, _Found]:
        node = self._node
        lefts, rights = ([(self._compared(each), each) for each in tables[port].values()] for port in node.PORTS)
        found: dict[Hashable, _Found] = {}
        for left, right in joined(lefts, rights, node.how):
            row: dict[str, object] = {name: None if left is None else left.row[name] for name in node.left.columns}
            row |= {name: None if right is None else right.row[name] for name in node.added}
            if left is None and right is not None:
                row |= {here: right.row[there] for there, here in node.shared.items()}
            key = tuple(same_key(row[name]) for name in node.result_keys)
            found[key] = row, max(each.time for each in (left, right) if each is not None)
        return found

    def _compared(self, element: Arrived) -> tuple[Hashable, ...]:
        on = self._node.sides[element.port].on
        values = (value_of(each, element.row, what=f"join of the {element.port} stream on", node=self._node) for each in on)
        return tuple(values)

    def state(self) -> list[dict[str, object]]:
        """Return the rows of the left input."""
        contents, _ = self._operator
        names = self._node.left.columns
        return [{**{name: each.row[name] for name in names}, "event_time": instant(each.time)} for each in contents["left"].rows.values()]


def _before(content: TableContent[Arrived]) -> Mapping[Hashable, Arrived]:
    return content.was


def _after(content: TableContent[Arrived]) -> Mapping[Hashable, Arrived]:
    return content.rows
