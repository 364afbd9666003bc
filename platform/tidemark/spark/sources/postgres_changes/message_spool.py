"""The messages of an epoch as they came: a few in memory, more in a temporary file, so that a transaction may be larger than memory."""

from __future__ import annotations

import struct
import tempfile
import weakref
from collections.abc import Iterator
from typing import Final

from tidemark.spark.sources.postgres_changes.messages import Message, decode

HELD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of messages after which all of them are in a file."""

HELD_MESSAGES: Final = 200_000
"""Decoded messages that are kept; where there are more, they are decoded each time that they are needed."""

_SIZE: Final = struct.Struct(">I")


class MessageSpool:
    """Messages in their order. The temporary file is gone with the object, also when the process is killed."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=HELD_BYTES)  # noqa: SIM115 - closed with the object
        weakref.finalize(self, self._file.close)
        self._end = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_large(self) -> bool:
        """Whether its messages, decoded, take more memory than the driver should hold."""
        return self._end > HELD_BYTES or self._count > HELD_MESSAGES

    def append(self, data: bytes) -> None:
        """Add a message of pgoutput; all are added before one is read."""
        self._file.write(_SIZE.pack(len(data)))
        self._file.write(data)
        self._end += _SIZE.size + len(data)
        self._count += 1

    def messages(self, first: int = 0, end: int | None = None) -> Iterator[tuple[int, Message]]:
        """Yield the messages between two places, each with the place of the next one. Several may be read at the same time.

        Args:
            first: the place of the first message.
            end: the place after the last one, None for all.

        Raises:
            DecodeError: one is none of the protocol.
        """
        place, last = first, self._end if end is None else end
        while place < last:
            self._file.seek(place)
            (size,) = _SIZE.unpack(self._file.read(_SIZE.size))
            place += _SIZE.size + size
            yield place, decode(self._file.read(size))
