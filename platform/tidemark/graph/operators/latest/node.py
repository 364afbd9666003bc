"""The node of the newest row of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.windows.windows import TimeDomain

OUTDATED = "outdated"
"""The counter of rows that are older, by their sequence, than one of their key that came before."""

INCOMPLETE = "incomplete"
"""The counter of rows that leave a column unchanged, and whose key has no row before."""


@dataclass(frozen=True)
class PaneRules:
    """Rows that are panes of windows: the newest pane of a window counts, and a session deletes those whose place it takes.

    ``final_after_ms`` is how long after a window's last instant panes of it may come; None where windows have no end.
    ``domain`` is the windows' time.
    """

    domain: TimeDomain
    final_after_ms: int | None
    merging: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class LatestNode(StatefulNode):
    """The newest row of each key, as a changelog.

    ``by`` are the columns of the key. Rows are ordered by ``sequence``, or else as they came; one for which ``deleted`` is true deletes its
    key. ``unchanged`` are columns, each with the condition under which a row has no value of it and keeps that of the row before.
    ``method`` is the one that made it: ``latest``, ``deduplicate`` or ``latest_panes``.
    """

    by: tuple[str, ...]
    sequence: Expression | None = None
    deleted: Expression | None = None
    unchanged: tuple[tuple[str, Expression], ...] = ()
    ttl: StateTtl | None = None
    outdated_to: OutputTag | None = None
    incomplete_to: OutputTag | None = None
    panes: PaneRules | None = None
    method: str = "latest"

    KIND: ClassVar[str] = "latest"
    PORTS: ClassVar[tuple[str, ...]] = ("rows",)

    @property
    def keys(self) -> tuple[tuple[str, Expression], ...]:
        """The key as named expressions."""
        return tuple((name, f"`{name}`" if not name.isidentifier() else name) for name in self.by)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``rows``."""
        return (self.keys,)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The tags of ``outdated`` and of ``incomplete`` rows."""
        tags = {OUTDATED: self.outdated_to, INCOMPLETE: self.incomplete_to}
        return {counter: tag for counter, tag in tags.items() if tag is not None}

    @property
    def time_domain(self) -> TimeDomain:
        """The windows' for panes, else event time."""
        return "event" if self.panes is None else self.panes.domain
