"""Requests that do not arrive: a client that sends half a header, or half a body, is not waited for."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.web.page_server import serving_store
from tests.web.served import Served
from tidemark.clock import SYSTEM_CLOCK
from tidemark.web.server.arrival_deadline import ArrivalDeadlineProtocol

DEADLINE: Final = 0.6
WHOLE: Final = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF: Final = WHOLE[:40]
BODY: Final = b"POST /api/v1/jobs/x/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(ArrivalDeadlineProtocol, "arrival_seconds", DEADLINE)
    with serving_store(Served().service) as url:
        found = urlsplit(url)
        assert found.hostname is not None
        assert found.port is not None
        yield found.hostname, found.port


def open_for(connection: socket.socket, *, sending: bytes = b"") -> float:
    """Return after how many seconds the server closes a connection, to which a byte is sent every tenth of a second."""
    begun, left = SYSTEM_CLOCK.monotonic(), sending
    connection.settimeout(0.1)
    while SYSTEM_CLOCK.monotonic() - begun < 20:
        try:
            if not connection.recv(65_536):
                return SYSTEM_CLOCK.monotonic() - begun
        except TimeoutError:
            pass
        except ConnectionError:
            return SYSTEM_CLOCK.monotonic() - begun
        if left:
            connection.sendall(left[:1])
            left = left[1:]
    raise AssertionError("the connection stays open")


@pytest.mark.parametrize("sent", [b"", HALF, BODY], ids=["nothing", "half a header", "half a body"])
def test_a_request_that_does_not_arrive_is_not_waited_for(address: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(sent)
        assert DEADLINE / 2 < open_for(connection) < 10


def test_further_bytes_do_not_put_the_deadline_off(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        assert open_for(connection, sending=b"GET / HTTP/1.1\r\nX: " + b"x" * 500) < 10


def test_the_second_request_of_a_connection_has_a_deadline_too(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(WHOLE + HALF)
        connection.settimeout(10)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        # The connection's own timeout between two requests is 5 seconds.
        assert open_for(connection) < 4


def test_requests_that_arrive_are_answered_on_one_connection(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.settimeout(10)
        for _ in range(3):
            connection.sendall(WHOLE)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(4_096)
            head, _, rest = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            while len(rest) < length:
                rest += connection.recv(65_536)
            SYSTEM_CLOCK.sleep(DEADLINE)
