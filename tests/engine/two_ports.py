"""A kind of operator with two ports, for what the engine works out of a graph: it runs nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import tidemark as tm
from tidemark.graph.model.nodes import Node, Port, StatefulNode
from tidemark.semantics.windows.windows import TimeDomain
from tidemark.spark.operators.registry.capabilities import Capabilities

CAPABILITIES = Capabilities(needs_order=lambda _: False, late_known_after_emit=lambda _: False)
LATE_AFTER = Capabilities(needs_order=lambda _: True, late_known_after_emit=lambda _: True)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairNode(StatefulNode):
    """Pairs of rows from left and right; those that came late and those that never found another may be asked for."""

    late_to: tm.OutputTag | None = None
    unmatched_to: tm.OutputTag | None = None

    KIND: ClassVar[str] = "pair"

    @property
    def ports(self) -> tuple[Port, ...]:
        """Left and right."""
        left, right = self.inputs
        return Port("left", left), Port("right", right)

    @property
    def side_tags(self) -> Mapping[str, tm.OutputTag]:
        """Of late and unmatched rows."""
        tags = {"late": self.late_to, "unmatched": self.unmatched_to}
        return {name: tag for name, tag in tags.items() if tag is not None}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time."""
        return "event"


def pair(left: Node, right: Node, uid: str = "pairs", *, late_to: str = "", unmatched_to: str = "") -> PairNode:
    """Return such an operator."""
    late, unmatched = (tm.OutputTag(name) if name else None for name in (late_to, unmatched_to))
    return PairNode(inputs=(left, right), uid=uid, late_to=late, unmatched_to=unmatched)
