"""The node of an interval join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.operators.join_node import ElementJoinNode
from tidemark.semantics.joins.interval import IntervalJoin


@dataclass(frozen=True, eq=False, kw_only=True)
class IntervalJoinNode(ElementJoinNode):
    """Pairs of elements with equal keys whose times differ by no more than an interval, and rows of elements without a partner."""

    lower_ms: int
    upper_ms: int

    KIND: ClassVar[str] = "interval_join"

    @property
    def rule(self) -> IntervalJoin:
        """The rule for pairs, late elements and outer rows."""
        return IntervalJoin(self.lower_ms, self.upper_ms, self.how)

    @property
    def result_delay_ms(self) -> int:
        """How long a row with its own time waits: one without a partner, and that of a semi join."""
        return self.rule.result_delay
