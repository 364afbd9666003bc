"""A kind of operator with two ports, for what the engine works out of a graph: it runs nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import tidemark as tm
from tidemark.graph.model.nodes import Node, StatefulNode
from tidemark.graph.operators.kind import OperatorKind
from tidemark.graph.operators.registry import kinds
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True)
class PairKind:
    """What the engine asks of the kind; ``late_after``: late rows are known once pairs were emitted, and their order matters."""

    late_after: bool = False

    def needs_order(self, node: StatefulNode) -> bool:
        """Return whether it goes by source positions."""
        del node
        return self.late_after

    def looks_up_side_rows(self, node: StatefulNode) -> bool:
        """Return that rows of side outputs are elements of its input, which are looked up."""
        del node
        return True

    def late_known_after_emit(self, node: StatefulNode) -> bool:
        """Return when late rows are known."""
        del node
        return self.late_after


def make_known(patch: pytest.MonkeyPatch, *, late_after: bool = False) -> None:
    """Let the engine know the kind while a test runs."""
    known: Mapping[str, OperatorKind[Any] | PairKind] = {**kinds(), PairNode.KIND: PairKind(late_after)}
    patch.setattr("tidemark.graph.operators.registry.kinds", lambda: known)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairNode(StatefulNode):
    """Pairs of rows from left and right; those that came late and those that never found another may be asked for."""

    late_to: tm.OutputTag | None = None
    unmatched_to: tm.OutputTag | None = None

    KIND: ClassVar[str] = "pair"
    PORTS: ClassVar[tuple[str, ...]] = ("left", "right")

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
