"""The node of a deduplication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.deduplicate.deduplicate import Deduplication
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True, eq=False, kw_only=True)
class DeduplicateNode(StatefulNode):
    """The first element of each key, and others only when ``within_ms`` have passed since one was kept."""

    keys: tuple[tuple[str, Expression], ...]
    within_ms: int
    keep: Literal["first"] = "first"
    allowed_lateness_ms: int = 0
    late_to: OutputTag | None = None
    duplicates_to: OutputTag | None = None

    KIND: ClassVar[str] = "deduplicate"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``elements``."""
        return (self.keys,)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The tags of ``duplicates`` and of ``late`` rows."""
        tags = {"duplicates": self.duplicates_to, "late": self.late_to}
        return {counter: tag for counter, tag in tags.items() if tag is not None}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time."""
        return "event"

    @property
    def rule(self) -> Deduplication:
        """The rule for duplicates and late elements."""
        return Deduplication(self.within_ms, self.allowed_lateness_ms)
