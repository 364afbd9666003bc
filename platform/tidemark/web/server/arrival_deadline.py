"""Closes connections whose request does not arrive: a client that sends half a header would keep one for ever."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ARRIVAL_SECONDS: Final = 20.0
"""How long a request, header and body of at most 64 KiB each, may take to arrive."""

_ARRIVING: Final = (h11.IDLE, h11.SEND_BODY)


class ArrivalDeadlineProtocol(H11Protocol):
    """uvicorn's protocol, with a deadline for a request to arrive completely.

    uvicorn bounds only how long a connection stays open between two requests (``timeout_keep_alive``). The deadline runs from the
    connection's begin, and later from the first byte of the next request, and is not put off by further bytes.
    """

    arrival_seconds: float = ARRIVAL_SECONDS
    """The deadline, in seconds."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin the first request's deadline."""
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and begin or end the deadline of the request that they belong to."""
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadline."""
        super().connection_lost(exc)
        self._end_deadline()

    def on_response_complete(self) -> None:
        """Begin the deadline of a next request that has begun to arrive already."""
        super().on_response_complete()
        if self.conn.their_state in _ARRIVING and self.conn.trailing_data[0]:
            self._set_deadline()

    def _set_deadline(self) -> None:
        if self.conn.their_state not in _ARRIVING:
            self._end_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.arrival_seconds, self._close)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
