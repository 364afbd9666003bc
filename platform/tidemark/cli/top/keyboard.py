"""Single key presses of a terminal, without waiting for Enter."""

from __future__ import annotations

import os
import select
import termios
import tty
from types import TracebackType
from typing import Final, Self

_SEQUENCES: Final = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down",
    b"\x1b[C": "right", b"\x1bOC": "right", b"\x1b[D": "left", b"\x1bOD": "left",
    b"\x1b[H": "home", b"\x1bOH": "home", b"\x1b[1~": "home", b"\x1b[F": "end", b"\x1bOF": "end", b"\x1b[4~": "end",
    b"\x1b": "escape", b"\r": "enter", b"\n": "enter",
}  # fmt: skip
_ESCAPE_SECONDS: Final = 0.05
"""How long the rest of a sequence may take after its first byte; after that it was the key Esc."""


class Keyboard:
    """The terminal's keys; within the context they are neither shown nor kept until Enter. Ctrl-C interrupts as usual.

    Args:
        fd: the terminal's file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[int | list[bytes | int]] = []
        self._ended = False

    def __enter__(self) -> Self:
        """Take the keys as they are pressed."""
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Set the terminal back as it was."""
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def read(self, seconds: float) -> str | None:
        """Return the next key, None if none was pressed in time.

        It is a letter, or ``up``, ``down``, ``left``, ``right``, ``home``, ``end``, ``enter``, ``escape``; ``q`` at the end of the input.
        """
        if self._ended or not self._waits(seconds):
            return None
        first = os.read(self._fd, 1)
        if not first:
            self._ended = True
            return "q"
        if first == b"\x1b":
            return _SEQUENCES.get(self._sequence(first), "unknown")
        return _SEQUENCES.get(first, first.decode("latin-1"))

    def _sequence(self, first: bytes) -> bytes:
        """Return the bytes of one key: an escape sequence ends with a letter or ``~``."""
        found = first
        while self._waits(_ESCAPE_SECONDS):
            byte = os.read(self._fd, 1)
            found += byte
            if not byte or (len(found) > 2 and (byte.isalpha() or byte == b"~")):
                break
        return found

    def _waits(self, seconds: float) -> bool:
        return bool(select.select([self._fd], [], [], seconds)[0])
