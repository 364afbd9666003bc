"""An HTTP server on loopback that answers as it is told and keeps what it was asked."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class Receiver(BaseHTTPRequestHandler):
    status: ClassVar[int] = 200
    answer: ClassVar[bytes] = b"{}"
    location: ClassVar[str | None] = None
    seen: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).seen.append((self.path, dict(self.headers), body))
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.answer)))
        if self.location is not None:
            self.send_header("Location", self.location)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def http_server(
    status: int = 200, answer: bytes = b"{}", location: str | None = None
) -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    class Here(Receiver):
        seen: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    Here.status, Here.answer, Here.location = status, answer, location
    with ThreadingHTTPServer(("127.0.0.1", 0), Here) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", Here.seen
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        return int(server.server_address[1])
