"""The assigners: tumbling, sliding, cumulative, session, count and global windows. Plain settings and integer arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd

from tidemark.durations import format_duration
from tidemark.errors import DurationError
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, MergedWindow, TimeDomain, Window, merge_touching


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size, side by side, aligned to 1970-01-01 UTC plus the offset.

    Raises:
        DurationError: the size is not positive, or the offset not less than it, either way.
    """

    size_ms: int
    offset_ms: int = 0
    domain: TimeDomain = "event"

    def __post_init__(self) -> None:
        _require_positive("size", self.size_ms)
        _require_offset(self.offset_ms, "the size", self.size_ms)

    @property
    def merging(self) -> bool:
        """Tumbling windows never merge."""
        return False

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        """Return the one window of an element."""
        start = timestamp - (timestamp - self.offset_ms) % self.size_ms
        return (Window(start, start + self.size_ms),)

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return f"tumbling({_quoted(self.size_ms)}{_offset(self.offset_ms)})"


@dataclass(frozen=True)
class Sliding:
    """Windows of one size, a new one every slide, aligned to 1970-01-01 UTC plus the offset.

    An element is in each window that covers it: about ``size / slide`` of them; in one or none where the slide is greater than the size.

    Raises:
        DurationError: size or slide is not positive, or the offset not less than the slide, either way.

    >>> [window.start for window in Sliding(10, 5).assign(12)]
    [5, 10]
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    domain: TimeDomain = "event"

    def __post_init__(self) -> None:
        _require_positive("size", self.size_ms)
        _require_positive("slide", self.slide_ms)
        _require_offset(self.offset_ms, "the slide", self.slide_ms)

    @property
    def merging(self) -> bool:
        """Sliding windows never merge."""
        return False

    @property
    def slice_ms(self) -> int:
        """The length of the pieces that every window is made of: the greatest common divisor of size and slide."""
        return gcd(self.size_ms, self.slide_ms)

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        """Return the windows that cover an element."""
        last = timestamp - (timestamp - self.offset_ms) % self.slide_ms
        first = last - (self.size_ms - 1) // self.slide_ms * self.slide_ms
        starts = range(first, last + 1, self.slide_ms)
        return tuple(Window(start, start + self.size_ms) for start in starts if timestamp < start + self.size_ms)

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return f"sliding({_quoted(self.size_ms)}, {_quoted(self.slide_ms)}{_offset(self.offset_ms)})"


@dataclass(frozen=True)
class Cumulative:
    """Windows that begin together and end step by step, until the greatest size is reached and the next ones begin.

    ``cumulative(1 day, 1 hour)`` gives, for each day, the windows from midnight to 1:00, to 2:00, … to midnight.

    Raises:
        DurationError: size or step is not positive, the size no multiple of the step, or the offset not less than the size, either way.

    >>> [(window.start, window.end) for window in Cumulative(30, 10).assign(12)]
    [(0, 20), (0, 30)]
    """

    max_size_ms: int
    step_ms: int
    offset_ms: int = 0
    domain: TimeDomain = "event"

    def __post_init__(self) -> None:
        _require_positive("max_size", self.max_size_ms)
        _require_positive("step", self.step_ms)
        _require_offset(self.offset_ms, "the greatest size", self.max_size_ms)
        if self.max_size_ms % self.step_ms:
            raise DurationError(
                f"max_size={_quoted(self.max_size_ms)} is no multiple of step={_quoted(self.step_ms)}",
                fix="choose a step that divides the size, such as cumulative('1 day', '1 hour')",
            )

    @property
    def merging(self) -> bool:
        """Cumulative windows never merge."""
        return False

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        """Return the windows that cover an element: those that end after it."""
        start = timestamp - (timestamp - self.offset_ms) % self.max_size_ms
        first = start + ((timestamp - start) // self.step_ms + 1) * self.step_ms
        return tuple(Window(start, end) for end in range(first, start + self.max_size_ms + 1, self.step_ms))

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return f"cumulative({_quoted(self.max_size_ms)}, {_quoted(self.step_ms)}{_offset(self.offset_ms)})"


@dataclass(frozen=True)
class Session:
    """Windows that last while elements of the key are not further apart than the gap: each begins as ``[t, t + gap)``.

    Raises:
        DurationError: the gap is not positive.
    """

    gap_ms: int
    domain: TimeDomain = "event"

    def __post_init__(self) -> None:
        _require_positive("gap", self.gap_ms)

    @property
    def merging(self) -> bool:
        """Sessions merge where they overlap or touch."""
        return True

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        """Return the session that an element would be alone."""
        return (Window(timestamp, timestamp + self.gap_ms),)

    def merge(self, windows: Iterable[Window]) -> tuple[MergedWindow, ...]:
        """Return sessions merged where they overlap or touch."""
        return merge_touching(windows)

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return f"session({_quoted(self.gap_ms)})"


@dataclass(frozen=True)
class DynamicSession:
    """Sessions whose gap comes with each element; ``gap_by`` is the SQL expression that gives it, in milliseconds or as an interval."""

    gap_by: str
    domain: TimeDomain = "event"

    @property
    def merging(self) -> bool:
        """Sessions merge where they overlap or touch."""
        return True

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:
        """Return the session that an element would be alone.

        Raises:
            DurationError: the element's gap is missing or not positive.
        """
        if gap_ms is None or gap_ms <= 0:
            raise DurationError(
                f"the gap {self.gap_by!r} of an element is {gap_ms}, not a positive number of milliseconds",
                fix="filter such elements before the window, or give them a gap: coalesce(...)",
            )
        return (Window(timestamp, timestamp + gap_ms),)

    def merge(self, windows: Iterable[Window]) -> tuple[MergedWindow, ...]:
        """Return sessions merged where they overlap or touch."""
        return merge_touching(windows)

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return f"session(gap_by {self.gap_by})"


@dataclass(frozen=True)
class GlobalWindows:
    """One window per key for all of time; only a trigger makes it fire before the end of input."""

    @property
    def domain(self) -> TimeDomain:
        """Event time: the window is due when that ends."""
        return "event"

    @property
    def merging(self) -> bool:
        """A single window never merges."""
        return False

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        """Return the global window."""
        return (GLOBAL_WINDOW,)

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return "global_window()"


@dataclass(frozen=True)
class CountWindows:
    """Groups by number, per key, in the order of elements: unlike with a count trigger, independent of how the input is cut into epochs.

    Without a slide, each ``size`` elements are a group. With one, after each ``slide`` elements the last ``size`` or fewer are.

    Raises:
        DurationError: size or slide is not a positive whole number.
    """

    size: int
    slide: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("slide", 1 if self.slide is None else self.slide)):
            if type(value) is not int or value <= 0:
                raise DurationError(
                    f"{name}={value!r} is not a positive number of elements", fix=f"give a whole number, such as {name}=100"
                )

    @property
    def domain(self) -> TimeDomain:
        """Event time: it orders the elements of an epoch."""
        return "event"

    @property
    def merging(self) -> bool:
        """Groups do not merge."""
        return False

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        """Return the global window: elements are never late, and groups are counted within it."""
        return (GLOBAL_WINDOW,)

    def describe(self) -> str:
        """Return the assigner as a user would write it."""
        return f"count_window({self.size})" if self.slide is None else f"count_window({self.size}, slide {self.slide})"


def _quoted(milliseconds: int) -> str:
    return repr(format_duration(milliseconds))


def _offset(milliseconds: int) -> str:
    return f", offset={_quoted(milliseconds)}" if milliseconds else ""


def _require_positive(name: str, value: int) -> None:
    if type(value) is not int or value <= 0:
        raise DurationError(f"{name}={value!r} must be a positive number of milliseconds", fix=f"give a {name} such as '1 hour'")


def _require_offset(offset: int, what: str, size: int) -> None:
    if type(offset) is not int or abs(offset) >= size:
        shown = _quoted(offset) if type(offset) is int else repr(offset)
        raise DurationError(
            f"offset={shown} must be less than {what}, {format_duration(size)}, either way",
            fix=f"give the offset modulo {what}, such as '-8 hours' for days in UTC+8",
        )
