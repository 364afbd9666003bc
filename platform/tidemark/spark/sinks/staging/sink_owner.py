"""The job that sinks belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.state.log.joblog import Driver
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class SinkOwner:
    """The job whose outputs are published.

    Args:
        store: at the job's folder, where connectors stage.
        term: the driver's, by which connectors refuse older drivers.
        confirm: raises FencedError when a newer driver has begun. A connector that fences older drivers by means of its own calls it after
            it has done so: then a driver that was taken over before cannot publish any more, and one that is taken over later is fenced.
    """

    store: JobStore
    term: int = 0
    confirm: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, driver: Driver) -> SinkOwner:
        """Return a driver as the owner."""
        return cls(driver.log.store, driver.term, driver.confirm)

    @property
    def job(self) -> str:
        """The job's name."""
        return self.store.prefix.rpartition("/")[2]
