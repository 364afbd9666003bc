"""The node of the best rows of each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True, eq=False, kw_only=True)
class TopNode(StatefulNode):
    """The ``n`` first rows of each group in an order, as a changelog.

    ``by`` are the columns of a group, none for one group of all rows. ``order`` is SQL as after ORDER BY. ``rank`` is the column that is
    added with a row's place, from 1; without one rows are identified by ``key``. ``changelog`` are the columns of the key of the input,
    where that is a changelog, no column where it has one row at most; all its rows are kept then, else only the best. ``ttl`` is how long
    a group is kept after its newest row.
    """

    n: int
    by: tuple[str, ...]
    order: str
    rank: str | None = None
    key: tuple[str, ...] = ()
    changelog: tuple[str, ...] | None = None
    ttl: StateTtl | None = None

    KIND: ClassVar[str] = "top_n"
    PORTS: ClassVar[tuple[str, ...]] = ("rows",)

    @property
    def keys(self) -> tuple[tuple[str, Expression], ...]:
        """The columns of a group as named expressions."""
        return tuple((name, f"`{name}`" if not name.isidentifier() else name) for name in self.by)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a row of the input; none where only the source's position does."""
        return self.key if self.changelog is None else self.changelog

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns that identify a row of the results."""
        return self.row_key if self.rank is None else (*self.by, self.rank)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The group of the one input's rows."""
        return (self.keys,)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """None: it accepts all rows."""
        return {}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time; nothing waits for it."""
        return "event"
