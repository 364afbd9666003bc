"""The node of aggregates of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupAggregateNode(StatefulNode):
    """A changelog with a row for each group: the aggregates over all its rows so far. Without ``keys`` there is one group.

    ``row_keys`` are the columns that identify a row of the input where that is a changelog: then rows are taken back. None over a
    stream that is only added to.
    """

    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    row_keys: tuple[str, ...] | None = None
    ttl: StateTtl | None = None

    KIND: ClassVar[str] = "group_aggregate"
    PORTS: ClassVar[tuple[str, ...]] = ("rows",)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``rows``."""
        return (self.keys,)

    @property
    def takes_back(self) -> bool:
        """Whether rows are taken back."""
        return self.row_keys is not None

    @property
    def reduced(self) -> tuple[tuple[str, str | None], ...]:
        """None: results are those of aggregates by their names."""
        return ()

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """None: it accepts all rows."""
        return {}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time; state of processing time has its own deadlines."""
        return "event"
