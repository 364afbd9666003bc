"""State of each key that every element reads and replaces, and results of each element: the contract, element by element.

In an epoch a key's elements are processed in order of (event time, source position), late or not. State lives from when it was written,
in processing time or by the operator's watermark, which goes on with the elements, as for values of process functions: expired state
is never read, and gone at the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.keyed_process.times import EpochTimes

S = TypeVar("S")
E = TypeVar("E")
R = TypeVar("R")


class Stepped(NamedTuple, Generic[S, R]):
    """What an element does: the state after it, None for none, and its results."""

    state: S | None
    results: Iterable[R]


class Kept(NamedTuple, Generic[S]):
    """The state of a key, and the time from which its lifetime counts."""

    state: S
    renewed: int


@dataclass
class Expired:
    """What was dropped at the ends of epochs since its lifetime was over: keys."""

    keys: int = 0


@dataclass
class KeyedFold(Generic[S, E, R]):
    """The keys of an operator.

    Args:
        step: of a key's state, None for none, and an element, returns what follows.
        ttl: the lifetime of state.

    ``kept`` is the state of each key that has any; ``expired`` counts keys.
    """

    step: Callable[[S | None, E], Stepped[S, R]]
    ttl: StateTtl | None = None
    kept: dict[Hashable, Kept[S]] = field(default_factory=dict)
    expired: Expired = field(default_factory=Expired)

    def run(self, key: Hashable, elements: Iterable[tuple[E, int]], times: EpochTimes) -> Iterator[tuple[R, int]]:
        """Yield the results of a key's elements in an epoch, with their event times.

        Args:
            key: the key.
            elements: of the key with their event times, in order.
            times: of the epoch.
        """
        for element, time in elements:
            now = self._now(times.watermark_at(time), times)
            held = self.kept.get(key)
            before = None if held is None or self._is_expired(self._begun(held, times), now) else held.state
            after, results = self.step(before, element)
            if after is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = Kept(after, now)
            for result in results:
                yield result, time

    def end_epoch(self, times: EpochTimes) -> None:
        """Drop the state that has expired."""
        now = self._now(times.watermark, times)
        self.kept = {key: self._begun(held, times) for key, held in self.kept.items()}
        gone = [key for key, held in self.kept.items() if self._is_expired(held, now)]
        for key in gone:
            del self.kept[key]
        self.expired.keys += len(gone)

    def _now(self, watermark: int, times: EpochTimes) -> int:
        return watermark if self.ttl is not None and self.ttl.domain == "event" else times.processing_time

    def _begun(self, held: Kept[S], times: EpochTimes) -> Kept[S]:
        return held if self.ttl is None else Kept(held.state, self.ttl.begins(held.renewed, times.before, times.watermark))

    def _is_expired(self, held: Kept[S], now: int) -> bool:
        return self.ttl is not None and self.ttl.is_expired(held.renewed, now)
