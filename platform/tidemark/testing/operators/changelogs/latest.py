"""The newest row of each key in plain Python."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.nodes import Expression
from tidemark.graph.operators.latest.node import INCOMPLETE, OUTDATED, LatestNode
from tidemark.semantics.changelog.contents import LatestByElement, changes_between
from tidemark.semantics.changelog.lifetimes import KeyLifetimes, time_of
from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, Row, value_of
from tidemark.testing.sql_values import sql_value

Key = tuple[object, ...]
_Kept = tuple[dict[str, object], int]


class PureLatest(PureOperatorBase):
    """The newest row of each key; its results have the kind of the change as ``operation``, as ``as_elements()`` has it.

    Args:
        node: its declaration.
        folds: not used.

    Raises:
        DefinitionError: it keeps panes of windows, which the harness of the window makes.
    """

    def __init__(self, node: LatestNode, folds: Folds) -> None:
        del folds
        if node.panes is not None:
            raise DefinitionError(
                "the harness has no panes of windows to give to latest_panes",
                fix="give the window's stream to the harness",
                uid=node.uid,
                place=node.place,
            )
        self._node = node
        # The rows, and the watermark of the epoch before.
        latest: LatestByElement[Key, _Kept] = LatestByElement(node.sequence is not None, KeyLifetimes(node.ttl))
        self._operator: tuple[LatestByElement[Key, _Kept], int] = (latest, MIN_WATERMARK)
        self._arrived: list[Arrived] = []
        self._others: dict[str, list[dict[str, object]]] = {}
        self._processing_time = 0

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        self._processing_time = processing_time

    def process(self, element: Arrived) -> None:
        """Take a row, whose turn comes in the order in which rows arrived."""
        self._arrived.append(element)

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Process the rows; return the net changes."""
        latest, before_watermark = self._operator
        latest.expire(self._now(before_watermark))
        before = dict(latest.rows)
        for element in sorted(self._arrived, key=lambda each: each.position):
            self._take(latest, element)
        self._arrived.clear()
        for key, (row, time) in before.items():
            # A row that users see as the same keeps its time.
            if key in latest.rows and latest.rows[key][0] == row:
                latest.rows[key] = (row, time)
        now = self._now(watermark)
        latest.lives.renew(now)
        changes = changes_between(before, latest.rows)
        self._operator = (latest, watermark)
        latest.expire(now)
        return [emitted_change(kind, row, time) for kind, _, (row, time) in changes]

    def take_side_rows(self) -> tuple[dict[str, list[dict[str, object]]], dict[str, int]]:
        """Return the outdated and the incomplete rows."""
        found, self._others = self._others, {}
        return found, {counter: len(rows) for counter, rows in found.items()}

    def state(self) -> list[dict[str, object]]:
        """Return the newest row of each key."""
        return [dict(row) for row, _ in self._operator[0].rows.values()]

    def _take(self, latest: LatestByElement[Key, _Kept], element: Arrived) -> None:
        node, row = self._node, element.row
        key = tuple(value_of(expression, row, what=f"key {name!r}", node=node) for name, expression in node.keys)
        sequence = self._value(node.sequence, row, "sequence")
        deleted = bool(self._value(node.deleted, row, "deleted"))
        whole = dict(row)
        if not deleted and not latest.is_outdated(key, sequence):
            lacking = [name for name, condition in node.unchanged if self._value(condition, row, f"unchanged {name!r}")]
            if lacking and key not in latest.rows:
                self._others.setdefault(INCOMPLETE, []).append(whole)
                return
            whole |= {name: latest.rows[key][0][name] for name in lacking}
        if latest.process(key, (whole, element.time), sequence=sequence, deleted=deleted) == OUTDATED:
            self._others.setdefault(OUTDATED, []).append(whole)

    def _value(self, expression: Expression | None, row: Row, what: str) -> object:
        if expression is None:
            return None
        site = Site(f"{self._node.method} {what}", self._node.place, self._node.uid)
        if not isinstance(expression, str):
            return value_of(expression, row, what=what, node=self._node)
        value: object = sql_value(expression, row, site)
        return value

    def _now(self, watermark: int) -> int:
        return time_of(self._node.ttl, watermark, self._processing_time)


def emitted_change(kind: RowKind, row: Row, time: int) -> Emitted:
    """Return a row of a changelog as a result, with the kind of its change."""
    return Emitted({**row, "operation": kind.name.lower()}, time)
