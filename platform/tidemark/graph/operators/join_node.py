"""What nodes of joins that keep the elements of two streams have in common."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.graph.operators.join_keys import JoinKey, left_keys, right_keys
from tidemark.semantics.joins.interval import How, Side
from tidemark.semantics.windows.windows import TimeDomain

LATE_OF: Final[Mapping[str, Side]] = {"late_left": "left", "late_right": "right"}
"""The sides by the counters of their late rows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementJoinNode(StatefulNode, ABC):
    """A join of the elements of two streams by keys and event time."""

    on: tuple[JoinKey, ...]
    how: How = "inner"
    late_left_to: OutputTag | None = None
    late_right_to: OutputTag | None = None

    PORTS: ClassVar[tuple[str, ...]] = ("left", "right")

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The keys of both sides, under the same names."""
        return left_keys(self.on), right_keys(self.on)

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
    def one_sided(self) -> bool:
        """Whether results have the left columns only."""
        return self.how in ("semi", "anti")
