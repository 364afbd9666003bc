"""What plans one source: looks for new input, and says what the next epoch reads of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidemark.graph.model.nodes import SourceNode
from tidemark.state.log.epoch_intent import EpochIntent
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class PlannedJob:
    """The job whose epochs are planned.

    ``store`` is at its folder, ``lineage`` that of the next epoch. ``planned`` are the positions, by source, after an epoch that was
    planned and not committed: its input is read again.
    """

    name: str
    store: JobStore
    lineage: str
    planned: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, store: JobStore, lineage: str, epoch: int, intent: EpochIntent | None) -> PlannedJob:
        """Return the job before the epoch of a number; ``intent`` is the newest plan, which may be of that epoch."""
        is_next = intent is not None and (intent.lineage, intent.epoch) == (lineage, epoch)
        return cls(name, store, lineage, intent.inputs if intent is not None and is_next else {})


@dataclass(frozen=True)
class Taken:
    """What an epoch reads of a source.

    ``position`` is the one after it, as in Spark's offset log. Of a folder, ``files`` are the addresses and ``bytes`` their size; of
    other sources ``read`` returns the rows, and ``rows`` is their number where it is known. ``caught_up`` says whether nothing is left to
    read, None where the position says how far the source was read. ``start`` is where the epoch begins, None for the position after the
    epoch before; ``topics`` are the ids of Kafka's topics.
    """

    position: object
    files: Sequence[str] = ()
    bytes: int | None = None
    read: Callable[[], DataFrame] | None = None
    rows: int | None = None
    caught_up: bool | None = None
    start: object = None
    topics: Mapping[str, str] = field(default_factory=dict)


class SourcePlanner(Protocol):
    """Plans one source of a run."""

    @property
    def has_unread(self) -> bool:
        """Whether the last look found input that is not read yet."""
        ...

    def look(self) -> None:
        """Look for new input, where none is known to be unread."""
        ...

    def fix_end(self) -> None:
        """Let the source end with the input that it has now."""
        ...

    def take(self, source: SourceNode, before: object) -> Taken | None:
        """Return what the next epoch reads, None where there is nothing.

        Args:
            source: with the bounds of an epoch.
            before: the position after the epoch before, None before the first.
        """
        ...

    def committed(self, position: object) -> None:
        """Note that the epoch after which a position is was committed and published: what is before it is not read again."""
        ...

    def metrics(self) -> Mapping[str, object]:
        """Return what Spark's progress of a query would say of the source; empty where the backlog is measured otherwise."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
