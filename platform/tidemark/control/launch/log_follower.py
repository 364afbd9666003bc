"""Follows a log as it grows, from one driver to the next, through rotations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from tidemark.clock import SYSTEM_CLOCK, Clock

POLL_SECONDS: Final = 0.5


class LogFollower:
    """Reads lines appended to a file, by name: a renamed file is read to its end, then the file that replaced it.

    Args:
        path: path of the log, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""

    def new_lines(self) -> tuple[str, ...]:
        """Return the complete lines since the last call; the first call returns all lines."""
        data = self._rest + self._read()
        while self._replaced():
            # Lines may have been appended before the renaming.
            data += self._read()
            self.close()
            data += self._read() if data.endswith(b"\n") or not data else b"\n" + self._read()
        *lines, self._rest = data.split(b"\n")
        return tuple(line.decode("utf-8", "replace") for line in lines)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> bytes:
        if self._file is None:
            with suppress(OSError):
                self._file = self._path.open("rb")
        return self._file.read() if self._file is not None else b""

    def _replaced(self) -> bool:
        """Return whether another file has the name now."""
        if self._file is None:
            return False
        try:
            there = self._path.stat()
        except OSError:
            return False
        mine = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)


def follow_log(path: Path, lines: int, *, clock: Clock = SYSTEM_CLOCK) -> Iterator[str]:
    """Yield the last lines of a log, then each line that is written to it, forever.

    Args:
        path: path of the log.
        lines: how many existing lines.
        clock: waits between two polls.
    """
    follower = LogFollower(path)
    try:
        yield from follower.new_lines()[-lines:]
        while True:
            clock.sleep(POLL_SECONDS)
            yield from follower.new_lines()
    finally:
        follower.close()
