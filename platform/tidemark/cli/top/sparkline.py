"""Numbers over time as a line of bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.-:=+*#"


def sparkline(values: Sequence[float | None], *, width: int, ascii_only: bool = False) -> str:
    """Return the newest values as bars of 0 up to the greatest of them, the newest at the right; only 0 has the lowest bar.

    Args:
        values: oldest first; None, of what is not known, is a blank.
        width: number of characters; blanks are before fewer values.
        ascii_only: for terminals without block elements.

    >>> sparkline([5, 0, 1, 4, None, 8], width=5)
    '▁▂▅ █'
    >>> sparkline([0, 0], width=3)
    ' ▁▁'
    """
    bars, shown = _ASCII if ascii_only else _BARS, values[-width:] if width > 0 else ()
    most = max((value for value in shown if value is not None), default=0)
    return "".join(" " if value is None else bars[_height(value, most, len(bars) - 1)] for value in shown).rjust(width)


def _height(value: float, most: float, highest: int) -> int:
    return 0 if value <= 0 else max(1, round(value / most * highest))
