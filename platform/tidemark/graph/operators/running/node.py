"""The node of running results of a keyed stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True)
class Extreme:
    """The element with the greatest or least value of an expression so far; of equal ones the first."""

    kind: Literal["max_by", "min_by"]
    by: Expression


@dataclass(frozen=True, eq=False, kw_only=True)
class RunningNode(StatefulNode):
    """A row for each element, with the results over all elements of its key so far: aggregates, or the element of ``extreme``."""

    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, Aggregate], ...] = ()
    extreme: Extreme | None = None
    ttl: StateTtl | None = None

    KIND: ClassVar[str] = "running"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``elements``."""
        return (self.keys,)

    @property
    def reduced(self) -> tuple[tuple[str, str | None], ...]:
        """None: results are those of aggregates by their names."""
        return ()

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """None: it accepts all elements."""
        return {}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time; state of processing time has its own deadlines."""
        return "event"
