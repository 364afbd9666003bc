"""The node of a temporal (as-of) join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.graph.operators.join_keys import JoinKey, left_keys, right_keys
from tidemark.semantics.windows.windows import TimeDomain

LEFT: Final = "left"
RIGHT: Final = "right"
LATE_LEFT: Final = "late_left"
LATE_RIGHT: Final = "late_right"


@dataclass(frozen=True, eq=False, kw_only=True)
class AsofJoinNode(StatefulNode):
    """Each left element with the newest version of its key that is not after it.

    ``key`` are the left columns that identify an element, where corrections are made.
    """

    on: tuple[JoinKey, ...]
    how: Literal["inner", "left"] = "inner"
    allowed_lateness_ms: int = 0
    key: tuple[str, ...] = ()
    late_left_to: OutputTag | None = None
    late_right_to: OutputTag | None = None

    KIND: ClassVar[str] = "asof_join"
    PORTS: ClassVar[tuple[str, ...]] = (LEFT, RIGHT)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """What the elements of either input are compared by."""
        return (left_keys(self.on), right_keys(self.on))

    @property
    def corrects(self) -> bool:
        """Whether answers are corrected, so that results are a changelog."""
        return self.allowed_lateness_ms > 0

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The tags of late elements of either input."""
        tags = {LATE_LEFT: self.late_left_to, LATE_RIGHT: self.late_right_to}
        return {counter: tag for counter, tag in tags.items() if tag is not None}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time."""
        return "event"
