"""The temporal (as-of) join in plain Python, element by element."""

from __future__ import annotations

import copy

from tidemark.graph.operators.asof_join.node import LATE_LEFT, LATE_RIGHT, LEFT, AsofJoinNode
from tidemark.graph.operators.join_keys import added_names
from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.semantics.joins.asof import AsofByElement
from tidemark.testing.operators.changelogs.latest import emitted_change
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, Row, instant, value_of


class PureAsofJoin(PureOperatorBase):
    """A temporal join; both inputs have the watermark that the harness is given.

    With ``allowed_lateness`` its results have the kind of the change as ``operation``, as ``as_elements()`` has it: a correction is the row
    before it and the row after it.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: AsofJoinNode, folds: Folds) -> None:
        del folds
        self._node = node
        self._operator: tuple[AsofByElement[Row, Row], int, list[str]] = (AsofByElement(node.allowed_lateness_ms), 0, [])

    def begin_epoch(self, processing_time: int) -> None:
        """Do nothing: only event time counts."""

    def process(self, element: Arrived) -> str | None:
        """Process an element; return ``late_left`` or ``late_right`` where it is late."""
        node, (operator, epoch, _) = self._node, self._operator
        keys = node.port_keys[node.PORTS.index(element.port)]
        key = tuple(value_of(expression, element.row, what=f"key {name!r}", node=node) for name, expression in keys)
        if element.port == LEFT:
            return None if operator.left(key, element.time, element.row) else LATE_LEFT
        kept = {name: element.row[name] for name in added_names(node.on, list(element.row))}
        self._operator = operator, epoch, list(kept)
        return None if operator.right(key, element.time, (epoch, *element.position), kept) else LATE_RIGHT

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the answers."""
        operator, epoch, names = self._operator
        self._operator = operator, epoch + 1, names
        found = []
        for answer in operator.advance(watermark, watermark):
            after = self._row(answer.element, answer.after, names)
            if not self._node.corrects:
                found += [] if after is None else [Emitted(after, answer.time)]
                continue
            before = None if answer.first else self._row(answer.element, answer.before, names)
            if before != after:
                found += _changes(before, after, answer.time)
        return found

    def _row(self, element: Row, version: Row | None, names: list[str]) -> dict[str, object] | None:
        """Return the row of an element with its version, None where it has no row."""
        if version is None and self._node.how != "left":
            return None
        return {**element, **(dict.fromkeys(names) if version is None else version)}

    def state(self) -> list[dict[str, object]]:
        """Return the left elements that are kept; not those that match nothing and are not emitted."""
        keeps_null = self._node.how == "left"
        kept = [(time, element) for key, time, element in self._operator[0].lefts() if keeps_null or None not in key]
        return [{**element, "event_time": instant(time)} for time, element in kept]

    def snapshot(self) -> object:
        """Return a copy of the state."""
        return copy.deepcopy(self._operator)


def _changes(before: dict[str, object] | None, after: dict[str, object] | None, time: int) -> list[Emitted]:
    """Return how a row becomes another one."""
    gone, new = (RowKind.DELETE, RowKind.INSERT) if before is None or after is None else (RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER)
    pairs = ((gone, before), (new, after))
    return [emitted_change(kind, row, time) for kind, row in pairs if row is not None]
