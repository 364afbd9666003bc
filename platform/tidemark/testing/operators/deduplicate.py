"""Deduplication in plain Python, element by element."""

from __future__ import annotations

from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.semantics.deduplicate.deduplicate import DeduplicationByElement
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, instant, value_of


class PureDeduplicate(PureOperatorBase):
    """A deduplication.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: DeduplicateNode, folds: Folds) -> None:
        del folds
        self._node = node
        self._operator = DeduplicationByElement(node.rule)
        self._emitted: list[Emitted] = []

    def begin_epoch(self, processing_time: int) -> None:
        """Do nothing: only event time counts."""

    def process(self, element: Arrived) -> str | None:
        """Process an element; return ``duplicates`` or ``late`` where it is not emitted."""
        node = self._node
        key = tuple(value_of(expression, element.row, what=f"key {name!r}", node=node) for name, expression in node.keys)
        outcome: str = self._operator.process(key, element.time)
        if outcome != "kept":
            return outcome
        self._emitted.append(Emitted(dict(element.row), element.time))
        return None

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the emitted elements."""
        self._operator.advance_watermark(watermark)
        emitted, self._emitted = self._emitted, []
        return emitted

    def state(self) -> list[dict[str, object]]:
        """Return keys with the times of emitted elements."""
        names = [name for name, _ in self._node.keys]
        return [{**dict(zip(names, key, strict=True)), "event_time": instant(time)} for key, time in self._operator.kept()]
