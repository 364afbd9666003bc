"""How much more allowed lateness would have kept late elements. Pure.

The *shortfall* of a late element is the least number of milliseconds by which a greater allowed lateness, or a watermark that is as much
further behind, would have kept it: its last window ends at ``e``, and it is late since ``e - 1 + L <= W``, so that it is
``W - (e - 1 + L) + 1``. Shortfalls are counted at fixed steps, so that counts of epochs and of tasks add up.

The count is of elements as they came. A greater lateness would also have kept state for longer: an element of a session may be kept by
one that was late itself, so that for sessions a count is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.durations import format_duration
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK

STEPS_MS: Final = (
    1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000,
    60_000, 120_000, 180_000, 300_000, 600_000, 900_000, 1_800_000,
    3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000,
)  # fmt: skip
"""The steps at which late rows are counted, milliseconds, from a second to a day: each at most twice the one before."""

_FORMER_STEPS_MS: Final = (1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000)
_STEPS: Final[Mapping[int, Sequence[int]]] = {len(steps): steps for steps in (_FORMER_STEPS_MS, STEPS_MS)}
"""The steps by their number: stored counts are a list, and those of earlier releases have fewer."""

ENOUGH: Final = 0.99
"""The share of late rows that the advised step keeps, of those that some lateness keeps."""

_HOUR_MS: Final = 3_600_000
_ANY_TIME: Final = 2**62


def least_kept(watermark: int, allowed_lateness_ms: int) -> int:
    """Return the least ``end - 1``, or for elements without a window the least time, that is not late.

    It is within a quarter of the range of watermarks, so that its distance from any event time is a 64-bit number.

    >>> least_kept(14, 5)
    10
    """
    return max(-_ANY_TIME, min(_ANY_TIME, watermark - allowed_lateness_ms + 1))


def shortfall(last: int, allowed_lateness_ms: int, watermark: int) -> int | None:
    """Return the shortfall of a late element, milliseconds; None where no lateness would have kept it: the input had ended.

    Args:
        last: ``end - 1`` of the last window that it belongs to; its own time where an operator has no windows.
        allowed_lateness_ms: the operator's.
        watermark: the operator's after the epoch before the element's.

    >>> shortfall(9, 5, 14), shortfall(9, 5, 20)
    (1, 7)
    """
    if watermark >= MAX_WATERMARK:
        return None
    # State that expired under a smaller lateness stays expired, so that an element may be late within the present one.
    return max(1, least_kept(watermark, allowed_lateness_ms) - last)


@dataclass(frozen=True)
class Shortfalls:
    """The shortfalls of an operator's late rows.

    Attributes:
        rows: all late rows that were counted.
        kept: for each of ``steps_ms`` how many of them so much more lateness would have kept.
        reachable: how many some lateness would have kept; the others are in no window, or came after the end of the input.
        greatest: the greatest shortfall of these, milliseconds; None where there are none.
        allowed_lateness_ms: the operator's at the time; None where it has no such setting, and only the watermark's bound remains.
    """

    rows: int
    kept: tuple[int, ...] = (0,) * len(STEPS_MS)
    reachable: int = 0
    greatest: int | None = None
    allowed_lateness_ms: int | None = 0

    @classmethod
    def of(cls, found: Iterable[int | None], allowed_lateness_ms: int | None = 0) -> Shortfalls:
        """Return the counts of single shortfalls.

        >>> Shortfalls.of([1, 1_001, None]).kept[:3]
        (1, 2, 2)
        """
        each = list(found)
        finite = [value for value in each if value is not None]
        kept = tuple(sum(value <= step for value in finite) for step in STEPS_MS)
        return cls(len(each), kept, len(finite), max(finite, default=None), allowed_lateness_ms)

    def __add__(self, later: Shortfalls) -> Shortfalls:
        """Return the counts of both; where the allowed lateness was changed in between, or the steps, the later ones alone."""
        if self.allowed_lateness_ms != later.allowed_lateness_ms or len(self.kept) != len(later.kept):
            return later
        known = [value for value in (self.greatest, later.greatest) if value is not None]
        kept = tuple(one + other for one, other in zip(self.kept, later.kept, strict=True))
        return Shortfalls(
            self.rows + later.rows, kept, self.reachable + later.reachable, max(known, default=None), later.allowed_lateness_ms
        )

    @property
    def steps_ms(self) -> Sequence[int]:
        """The steps of ``kept``: ``STEPS_MS``, or those of the earlier release that counted; none where that is not known."""
        return _STEPS.get(len(self.kept), ())

    @property
    def steps(self) -> Sequence[tuple[int, int]]:
        """Additional lateness in milliseconds, and the rows that it would have kept: up to the first step that keeps all that any does.

        Beyond the last of ``steps_ms`` that step is the greatest shortfall in whole hours.

        >>> Shortfalls.of([40_000, 90_000_000, None]).steps[-2:]
        ((86400000, 1), (90000000, 2))
        """
        if self.greatest is None:
            return ()
        fewer = [(step, rows) for step, rows in zip(self.steps_ms, self.kept, strict=False) if rows < self.reachable]
        enough = min((step for step in self.steps_ms if step >= self.greatest), default=-(-self.greatest // _HOUR_MS) * _HOUR_MS)
        return (*fewer, (enough, self.reachable))

    @property
    def advised(self) -> int | None:
        """The least of ``steps`` that would have kept ``ENOUGH`` of what any keeps, milliseconds; None where no lateness keeps a row."""
        return self._first(ENOUGH)[0] if self.reachable else None

    def _first(self, share: float) -> tuple[int, int]:
        return next((step, rows) for step, rows in self.steps if rows >= share * self.reachable)

    def setting(self, more_ms: int) -> str:
        """Return in words what to set for so much more lateness.

        >>> Shortfalls(1, allowed_lateness_ms=600_000).setting(300_000), Shortfalls(1, allowed_lateness_ms=None).setting(300_000)
        ('an allowed lateness of 15m', 'a bound of the watermark greater by 5m')
        """
        if self.allowed_lateness_ms is None:
            return f"a bound of the watermark greater by {format_duration(more_ms)}"
        return f"an allowed lateness of {format_duration(self.allowed_lateness_ms + more_ms)}"

    def share(self, rows: int) -> str:
        """Return so many of the late rows as a share; one that is not all is never rounded to all.

        >>> Shortfalls(1_000_000).share(999_999), Shortfalls(3).share(1), Shortfalls(3).share(3)
        ('99.9%', '33.3%', 'all')
        """
        return "all" if rows == self.rows else f"{min(max(100 * rows / self.rows, 0.1), 99.9):.3g}%"

    def __str__(self) -> str:
        """Return as a sentence what would have kept how many rows.

        >>> str(Shortfalls.of([40_000] * 92 + [2_000_000] * 8))
        'an allowed lateness of 1m would have kept 92% of 100 late rows, one of 1h all'
        """
        if not self.reachable:
            return f"no lateness would have kept any of {self.rows:,} late rows"
        (step, rows), *others = sorted({self._first(0.5), self._first(0.9), self.steps[-1]})
        one = "by " if self.allowed_lateness_ms is None else "one of "
        more = [f"{one}{format_duration((self.allowed_lateness_ms or 0) + step)} {self.share(rows)}" for step, rows in others]
        return ", ".join([f"{self.setting(step)} would have kept {self.share(rows)} of {self.rows:,} late rows", *more])
