"""Slices: the pieces that sliding and cumulative windows are made of, so that no element is copied into all of its windows.

A window is a whole number of slices. Windows are cut at the bounds of *blocks*, which are as long as the greatest window: each
is the rest of one block (a suffix of its slices) and the beginning of the next (a prefix), or a prefix alone. Suffixes are
merged once per block and a prefix grows slice by slice, so a window's result takes one merge, whatever the number of its slices
and whether or not the aggregate has an inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling


@dataclass(frozen=True)
class Slices:
    """How windows of one operator are cut. All times are milliseconds; slices are named by their start.

    ``width`` of a slice; ``span`` of the greatest window and of a block; ``ends`` is the distance from one window's end to the next,
    ``starts`` from one window's start to the next that differs; ``offset`` aligns them all.
    """

    width: int
    span: int
    ends: int
    starts: int
    offset: int
    growing: bool

    @staticmethod
    def of(assigner: Tumbling | Sliding | Cumulative) -> Slices:
        """Return the slices of an assigner; a tumbling window is one.

        >>> Slices.of(Sliding(30, 20)).width, Slices.of(Cumulative(30, 10)).width
        (10, 10)
        """
        if isinstance(assigner, Tumbling):
            size = assigner.size_ms
            return Slices(size, size, size, size, assigner.offset_ms, growing=False)
        if isinstance(assigner, Sliding):
            return Slices(assigner.slice_ms, assigner.size_ms, assigner.slide_ms, assigner.slide_ms, assigner.offset_ms, growing=False)
        return Slices(assigner.step_ms, assigner.max_size_ms, assigner.step_ms, assigner.max_size_ms, assigner.offset_ms, growing=True)

    @property
    def gaps(self) -> bool:
        """Whether there are slices that no window covers."""
        return self.starts > self.span

    def block_of(self, start: int) -> int:
        """Return the start of the block that a slice lies in."""
        return start - (start - self.offset) % self.span

    def last_end(self, watermark: int) -> int:
        """Return the end of the last window that is due at a watermark."""
        first = self.offset + (0 if self.growing else self.span)
        return watermark + 1 - (watermark + 1 - first) % self.ends

    def start_of(self, end: int) -> int:
        """Return the start of the window with this end."""
        return self.block_of(end - 1) if self.growing else end - self.span

    def first_end_of(self, start: int) -> int:
        """Return the end of the first window that covers a slice, or that comes after it if none does."""
        return self.last_end(start + self.width - 2) + self.ends

    def last_end_of(self, start: int) -> int:
        """Return the end of the last window that covers a slice, or that came before it if none does."""
        return start - (start - self.offset) % self.starts + self.span

    def last_window_of(self, start: int) -> int | None:
        """Return the start of the last window that covers a slice, None if none does."""
        covered = (start - self.offset) % self.starts < self.span
        return self.start_of(self.last_end_of(start)) if covered else None

    def last_expired(self, watermark: int, allowed_lateness_ms: int) -> int:
        """Return the last slice all of whose windows have expired at a watermark."""
        latest = watermark - allowed_lateness_ms + 1 - self.span
        return latest - (latest - self.offset) % self.starts + self.starts - self.width

    def last_fired(self, watermark: int) -> int:
        """Return the last slice that a window covers which has fired at a watermark."""
        return self.last_end(watermark) - self.width
