"""What an epoch's late rows missed their windows by: as the engine reports it, and as the element-by-element rule of lateness decides it.

The rule is asked again for each element with a greater lateness, so that no formula of the engine's is part of the expected account.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

from tidemark.semantics.watermarks.lateness import is_late
from tidemark.semantics.watermarks.shortfalls import STEPS_MS
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.windows import Window
from tidemark.state.log.progress import OperatorProgress

Facts = dict[str, object]

FAR_MS = 2**55
"""More than any two event times are apart."""

LateWith = Callable[[int], bool]
"""Whether an element would be late with so much more lateness."""


def facts_of_progress(found: OperatorProgress, counter: str = "late") -> Facts:
    """Return what the engine reports of late rows; nothing where it reports none."""
    one = found.shortfalls.get(counter)
    return {
        "shortfalls": None if one is None else (one.rows, one.kept, one.reachable, one.greatest, one.allowed_lateness_ms),
        "most_late": tuple((window.start, window.end, window.rows) for window in found.most_late),
    }


def expected_facts(late: Sequence[Sequence[Window]], lateness: int, watermark: int) -> Facts:
    """Return what the engine has to report of late elements, each given by its windows, which are compared with a watermark."""
    rules = [_late_with(windows, lateness, watermark) for windows in late]
    last = Counter(windows[-1] for windows in late if windows)
    most = sorted(last.items(), key=lambda item: (-item[1], item[0]))[:20]
    return {
        "shortfalls": expected_shortfalls(rules, lateness),
        "most_late": tuple((window.start, window.end, rows) for window, rows in most if window.end < MAX_WATERMARK),
    }


def expected_shortfalls(rules: Sequence[LateWith], lateness: int | None) -> tuple[object, ...] | None:
    """Return the shortfalls of elements, each given by its rule; None without any."""
    if not rules:
        return None
    some = [rule for rule in rules if not rule(FAR_MS)]
    needed = [bisect_left(range(FAR_MS), True, key=lambda more, rule=rule: not rule(more)) for rule in some]  # type: ignore[misc]
    kept = tuple(sum(not rule(step) for rule in rules) for step in STEPS_MS)
    return len(rules), kept, len(some), max((max(1, more) for more in needed), default=None), lateness


def _late_with(windows: Sequence[Window], lateness: int, watermark: int) -> LateWith:
    def late(more: int) -> bool:
        return all(is_late(window, lateness + more, watermark) for window in windows) or watermark == MAX_WATERMARK

    return late
