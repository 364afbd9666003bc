"""The node of a window join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.operators.join_node import ElementJoinNode
from tidemark.semantics.joins.window import AlignedWindows, WindowJoin


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowJoinNode(ElementJoinNode):
    """Pairs of elements that are in the same window of a key, and rows of elements without a partner in it."""

    assigner: AlignedWindows
    allowed_lateness_ms: int = 0

    KIND: ClassVar[str] = "window_join"

    @property
    def rule(self) -> WindowJoin:
        """The rule for pairs, firings and late elements."""
        return WindowJoin(self.assigner, self.how, self.allowed_lateness_ms)
