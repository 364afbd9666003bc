"""What a press of a key does: which job is selected, and whether its page is open. Without a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

_STEPS: Final = {"up": -1, "k": -1, "down": 1, "j": 1, "left": -1, "h": -1, "right": 1, "l": 1}
_QUIT: Final = frozenset({"q", "Q"})


@dataclass(frozen=True)
class Selection:
    """The selected job, and whether its page is shown instead of the table of all jobs.

    Args:
        job: its name; empty selects the first.
        is_open: whether its page is shown.
    """

    job: str = ""
    is_open: bool = False

    def among(self, names: Sequence[str]) -> Selection:
        """Return the selection among the jobs there are: of one that is gone, the first, in the table of all."""
        if self.job in names:
            return self
        return Selection(names[0] if names else "", is_open=False)

    def press(self, key: str, names: Sequence[str]) -> Selection | None:
        """Return the selection after a key, None to quit. A key without a meaning changes nothing.

        Args:
            key: as ``Keyboard.read`` returns it.
            names: of the jobs, in the order of the table.

        >>> Selection("a").press("down", ["a", "b"])
        Selection(job='b', is_open=False)
        """
        now = self.among(names)
        if key in _QUIT:
            return None
        if key == "escape":
            return replace(now, is_open=False)
        if key == "enter":
            return replace(now, is_open=bool(now.job))
        if key in {"home", "end"} and names:
            return replace(now, job=names[0 if key == "home" else -1])
        if key in _STEPS and names:
            position = names.index(now.job) + _STEPS[key]
            return replace(now, job=names[min(max(position, 0), len(names) - 1)])
        return now

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The keys of the footer, each with what it does."""
        if self.is_open:
            return (("arrows", "other job"), ("Esc", "all jobs"), ("q", "quit"))
        return (("arrows", "select"), ("Enter", "open"), ("q", "quit"))
