"""The output of a key's epoch: which windows fire, their panes, and when the key is due again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidemark.semantics.triggers.panes import PaneTiming, ReplacedSession
from tidemark.semantics.windows.windows import Window


@dataclass(frozen=True)
class Firing:
    """A window that fires: the parts of its pane that are known before its elements are read.

    ``window`` is the global one for count windows. ``replaces``: as of ``Pane``.
    """

    window: Window
    timing: PaneTiming
    index: int
    replaces: tuple[ReplacedSession, ...] = ()
    purge: bool = False


@dataclass(frozen=True)
class FiredPane:
    """A pane of one key and its rows.

    ``rows`` are dicts from the window function, or ``HeldElement``s if there is none (empty, if an evictor removed them). They
    can be iterated once, before the next pane. ``time`` is the event time of the result: ``end - 1``, or for count and global windows
    the greatest time of the elements that the window held, evicted ones too.
    """

    window: Window
    timing: PaneTiming
    index: int
    time: int
    replaces: tuple[ReplacedSession, ...]
    rows: Iterable[object]

    def complete(self) -> FiredPane:
        """Return the pane with its rows as a tuple."""
        return replace(self, rows=tuple(self.rows))


class Deadlines(NamedTuple):
    """When a key needs a call even if no element comes: at a watermark (event time), at a processing time; None for never.

    The watermark is that of the sources, also for windows of processing time, where it is only the greatest, the end of input.
    """

    watermark: int | None
    processing_time: int | None
