"""Deduplication that keeps the first element: which elements are duplicates, which are late, and when state is dropped.

In an epoch a key's elements are processed one by one, in order of (event time, source position). One is *late* when ``t + L <= W(n-1)``:
the state of elements that it could repeat may be dropped already. One that is not late is a *duplicate* if it is less than ``within``
away, earlier or later, from an element of its key that was kept. Any other is kept, and emitted at once. So ``within`` counts from the
element that was kept, and duplicates do not prolong it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK

DeduplicationOutcome = Literal["kept", "duplicates", "late"]


@dataclass(frozen=True)
class Deduplication:
    """The rule. ``within_ms`` is at least a millisecond; ``allowed_lateness_ms`` is ``L``: how far behind the watermark elements may be.

    >>> rule = Deduplication(within_ms=10)
    >>> [rule.outcome_of(time, kept=(100,), watermark=95) for time in (95, 96, 109, 110)]
    ['late', 'duplicates', 'duplicates', 'kept']
    """

    within_ms: int
    allowed_lateness_ms: int = 0

    def outcome_of(self, time: int, kept: Iterable[int], watermark: int) -> DeduplicationOutcome:
        """Return the outcome of an element.

        Args:
            time: its event time.
            kept: event times of elements of its key that were kept.
            watermark: the operator's after the epoch before, W(n-1).
        """
        if self.is_late(time, watermark):
            return "late"
        return "duplicates" if any(abs(time - other) < self.within_ms for other in kept) else "kept"

    def is_late(self, time: int, watermark: int) -> bool:
        """Return whether an element is too late to be checked for duplicates."""
        return min(time + self.allowed_lateness_ms, MAX_WATERMARK) <= watermark

    def last_expired(self, watermark: int) -> int:
        """Return the greatest time of a kept element that is no longer needed after an epoch with this watermark, W(n).

        It is ``W - L - within + 1``: an element that is not late then is ``within`` or more after it.

        >>> Deduplication(within_ms=10).last_expired(109)
        100
        """
        return watermark - self.allowed_lateness_ms - self.within_ms + 1


class DeduplicationByElement:
    """A reference of the contract, one element at a time: tests compare the engine with it."""

    def __init__(self, rule: Deduplication) -> None:
        self._rule = rule
        self._watermark = MIN_WATERMARK
        self._kept: dict[tuple[object, ...], list[int]] = {}

    def resume(self, kept: DeduplicationByElement) -> None:
        """Resume from what an operator kept that may have been declared otherwise."""
        self._watermark, self._kept = kept._watermark, kept._kept

    def process(self, key: tuple[object, ...], time: int) -> DeduplicationOutcome:
        """Process an element, in the contract's order."""
        kept = self._kept.get(key, [])
        outcome = self._rule.outcome_of(time, kept, self._watermark)
        if outcome == "kept":
            self._kept.setdefault(key, []).append(time)
        return outcome

    def advance_watermark(self, watermark: int) -> None:
        """End the epoch: drop elements that no later one can repeat."""
        self._watermark = watermark
        last = self._rule.last_expired(watermark)
        held = {key: [time for time in times if time > last] for key, times in self._kept.items()}
        self._kept = {key: times for key, times in held.items() if times}

    def kept(self) -> list[tuple[tuple[object, ...], int]]:
        """Return the state: keys with the times of elements that were kept, earliest first."""
        return sorted(((key, time) for key, times in self._kept.items() for time in times), key=lambda entry: entry[1])
