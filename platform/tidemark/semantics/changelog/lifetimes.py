"""Lifetimes of keys in plain Python: a key lives for some time after the end of the epoch that wrote it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK

K = TypeVar("K", bound=Hashable)


@dataclass
class KeyLifetimes(Generic[K]):
    """When keys were renewed; without ``ttl`` they live for ever, and nothing is remembered.

    >>> lives = KeyLifetimes(StateTtl(10))
    >>> lives.touch("a")
    >>> lives.renew(5)
    >>> lives.expire(14), lives.expire(15), lives.expire(16)
    ([], ['a'], [])
    """

    ttl: StateTtl | None = None
    renewed: dict[K, int] = field(default_factory=dict)
    _touched: set[K] = field(default_factory=set)

    def resume_keys(self, kept: KeyLifetimes[K], keys: Iterable[K]) -> None:
        """Resume from lifetimes that may have been others; keys without a time in the domain of these begin with the next epoch."""
        same = self.ttl is not None and kept.ttl is not None and self.ttl.domain == kept.ttl.domain
        self.renewed = kept.renewed if same else {}
        self._touched = {key for key in keys if key not in self.renewed}

    def touch(self, key: K) -> None:
        """Note that the epoch writes a key."""
        self._touched.add(key)

    def expire(self, now: int) -> list[K]:
        """Forget the keys whose lifetime is over; return them. Called before an epoch's rows."""
        if self.ttl is None:
            return []
        gone = [key for key, renewed in self.renewed.items() if self.ttl.is_expired(renewed, now)]
        for key in gone:
            del self.renewed[key]
        return gone

    def renew(self, now: int) -> None:
        """Have the keys that were written since the last call live from a time on."""
        if self.ttl is not None:
            self.renewed |= dict.fromkeys(self._touched, min(now, MAX_WATERMARK - self.ttl.ms))
        self._touched.clear()


def time_of(ttl: StateTtl | None, watermark: int, processing_time: int) -> int:
    """Return the time that a lifetime counts in."""
    return watermark if ttl is None or ttl.domain == "event" else processing_time
