"""The job that sinks belong to."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class SinkOwner:
    """The job whose outputs are published: the store at its folder, where connectors stage; the driver's term, by which they fence."""

    store: JobStore
    term: int = 0

    @property
    def job(self) -> str:
        """The job's name."""
        return self.store.prefix.rpartition("/")[2]
