"""When a window is due, when its elements are late, and when its state expires.

Elements of an epoch are compared with the watermark after the epoch before; firing and expiry go by the watermark after the
epoch itself. Sums saturate at ``MAX_WATERMARK``, so that no allowed lateness outlives the end of input.
"""

from __future__ import annotations

from typing import Literal

from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.windows import Window

Lateness = Literal["on_time", "late_accepted", "late"]
"""Of an element and a window: before the window is due; after that but within the allowed lateness; beyond it."""


def cleanup_time(window: Window, allowed_lateness_ms: int) -> int:
    """Return the watermark from which on the window accepts no element and keeps no state: ``end - 1 + allowed lateness``."""
    return min(window.max_timestamp + allowed_lateness_ms, MAX_WATERMARK)


def due_time(window: Window) -> int:
    """Return the watermark from which on the window is due: ``end - 1``, for the global window the end of input."""
    return min(window.max_timestamp, MAX_WATERMARK)


def is_due(window: Window, watermark: int) -> bool:
    """Return whether the watermark has reached the window's end: all its elements that are not late have arrived.

    >>> is_due(Window(0, 10), 8), is_due(Window(0, 10), 9)
    (False, True)
    """
    return due_time(window) <= watermark


def is_late(window: Window, allowed_lateness_ms: int, watermark: int) -> bool:
    """Return whether an element comes too late for the window. For a session, ask after merging.

    Args:
        window: one the element was assigned to.
        allowed_lateness_ms: the operator's.
        watermark: the operator's after the epoch before the element's.

    >>> is_late(Window(0, 10), 5, 13), is_late(Window(0, 10), 5, 14)
    (False, True)
    """
    return cleanup_time(window, allowed_lateness_ms) <= watermark


def is_expired(window: Window, allowed_lateness_ms: int, watermark: int) -> bool:
    """Return whether the window's state expires after an epoch with this watermark, once due panes have fired.

    The same bound as that of ``is_late``: only windows that the next epoch's elements could join are kept.
    """
    return cleanup_time(window, allowed_lateness_ms) <= watermark


def lateness_of(window: Window, allowed_lateness_ms: int, watermark: int) -> Lateness:
    """Return the lateness of an element for one of its windows; arguments as for ``is_late``.

    >>> [lateness_of(Window(0, 10), 5, watermark) for watermark in (8, 9, 13, 14)]
    ['on_time', 'late_accepted', 'late_accepted', 'late']
    """
    if is_late(window, allowed_lateness_ms, watermark):
        return "late"
    return "late_accepted" if is_due(window, watermark) else "on_time"
