"""The windows that a workload has, named once for every engine and for the check of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemark.durations import to_ms
from tidemark.errors import DefinitionError

WindowKind = Literal["tumbling", "sliding", "session"]


@dataclass(frozen=True)
class Shape:
    """Windows, as a user would ask for them.

    Args:
        kind: of window.
        size: length of a window, or the gap of a session.
        slide: of sliding windows, a divisor of the size.

    Raises:
        DefinitionError: a slide is missing, or does not divide the size.
    """

    kind: WindowKind
    size: str
    slide: str | None = None

    def __post_init__(self) -> None:
        if (self.slide is not None) != (self.kind == "sliding") or self.size_ms % self.slide_ms:
            raise DefinitionError(
                f"{self.kind} windows of {self.size} every {self.slide}", fix="give sliding windows a slide that divides them"
            )

    @property
    def size_ms(self) -> int:
        """Length of a window, or the gap of a session."""
        return to_ms(self.size, what="size", minimum=1)

    @property
    def slide_ms(self) -> int:
        """From the start of a window to that of the next; the size, where windows do not slide."""
        return self.size_ms if self.slide is None else to_ms(self.slide, what="slide", minimum=1)

    def describe(self) -> str:
        """Return the windows in words.

        >>> Shape("sliding", "24 hours", "15 minutes").describe()
        'sliding windows of 24 hours every 15 minutes'
        """
        if self.kind == "session":
            return f"sessions with a gap of {self.size}"
        return f"{self.kind} windows of {self.size}" + (f" every {self.slide}" if self.slide else "")
