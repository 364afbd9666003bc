"""The node of an interval join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.graph.operators.join_keys import JoinKey
from tidemark.semantics.joins.interval import How, IntervalJoin, Side
from tidemark.semantics.windows.windows import TimeDomain

LATE_OF: Final[Mapping[str, Side]] = {"late_left": "left", "late_right": "right"}
"""The sides by the counters of their late rows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IntervalJoinNode(StatefulNode):
    """Pairs of elements with equal keys whose times differ by no more than an interval, and rows of elements without a partner."""

    on: tuple[JoinKey, ...]
    lower_ms: int
    upper_ms: int
    how: How = "inner"
    late_left_to: OutputTag | None = None
    late_right_to: OutputTag | None = None

    KIND: ClassVar[str] = "interval_join"
    PORTS: ClassVar[tuple[str, ...]] = ("left", "right")

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The keys of both sides, under the same names."""
        return tuple((each.name, each.left) for each in self.on), tuple((each.name, each.right) for each in self.on)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The tags of late rows, by side."""
        tags = {"late_left": self.late_left_to, "late_right": self.late_right_to}
        return {counter: tag for counter, tag in tags.items() if tag is not None}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time."""
        return "event"

    @property
    def rule(self) -> IntervalJoin:
        """The rule for pairs, late elements and outer rows."""
        return IntervalJoin(self.lower_ms, self.upper_ms, self.how)

    @property
    def result_delay_ms(self) -> int:
        """How long a row with its own time waits: one without a partner, and that of a semi join."""
        return self.rule.result_delay

    @property
    def one_sided(self) -> bool:
        """Whether results have the left columns only."""
        return self.how in ("semi", "anti")
