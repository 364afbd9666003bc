"""Listens: in the foreground for ``tidemark ui``, in a thread beside a supervisor."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import uvicorn

from tidemark.errors import DefinitionError, SetupError
from tidemark.web.access.guard import is_loopback
from tidemark.web.access.tokens import TOKENS_VARIABLE, Tokens
from tidemark.web.api.service import Service
from tidemark.web.server.app import build_app
from tidemark.web.server.arrival_deadline import ArrivalDeadlineProtocol

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8787
CONNECTIONS_AT_MOST: Final = 500
"""With more open connections, a request is answered 503."""

_LONGEST_END_SECONDS: Final = 5
_ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on
_log = logging.getLogger("tidemark.web")


@dataclass
class UiServer:
    """A server that listens at ``url``, and answers once ``run`` or ``start`` was called."""

    url: str
    server: uvicorn.Server
    listening: socket.socket
    thread: threading.Thread | None = None

    def run(self) -> None:
        """Answer requests until SIGINT or SIGTERM."""
        self.server.run(sockets=[self.listening])

    def start(self) -> None:
        """Answer requests in a thread, until closed."""
        self.thread = threading.Thread(target=self.run, name="tidemark-ui", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """End the server, and wait a few seconds for the thread."""
        self.server.should_exit = True
        if self.thread is not None:
            self.thread.join(2 * _LONGEST_END_SECONDS)
        self.listening.close()


def serve(
    service: Service, *, host: str = LOOPBACK, port: int = PORT, tokens: Tokens | None = None, host_names: Iterable[str] = ()
) -> UiServer:
    """Return a server of the page and the API that listens already.

    Args:
        service: the store, and what works on it.
        host: the address to listen on; another than loopback requires tokens.
        port: the port; 0 takes a free one.
        tokens: the tokens of callers; None lets everybody on this machine read, and nobody change anything.
        host_names: names of the server besides ``localhost``, such as that of a proxy.

    Raises:
        DefinitionError: other machines could read the jobs without a token, or a name of the server is none.
        SetupError: the port is taken, or the address is not this machine's.
    """
    if tokens is None and not is_loopback(host):
        raise DefinitionError(
            f"{host} can be reached from other machines, and without tokens everybody there could read the jobs",
            fix=f"give --token-file or set {TOKENS_VARIABLE} (`tidemark token NAME` makes one), or listen on {LOOPBACK}",
        )
    names = [*host_names] if is_loopback(host) or host in _ANY else [*host_names, host]
    app = build_app(service, tokens=tokens, host_names=names)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise SetupError(
            f"nothing can listen on {host}:{port}: {error}",
            fix="use another port with `--port N` (0 takes a free one; of a supervisor `--ui N`), or stop the process that uses it",
        ) from error
    # What the server logs goes through this process's own log, which hides credentials.
    # h11 bounds the size of a request's headers, which come before its token; httptools, the default where it is installed, does not.
    # Without a bound in time, a client could keep connections open that send no complete request.
    config = uvicorn.Config(
        app,
        http=ArrivalDeadlineProtocol,
        limit_concurrency=CONNECTIONS_AT_MOST,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_LONGEST_END_SECONDS,
    )
    shown = f"[{host}]" if ":" in host else host
    return UiServer(f"http://{shown}:{listening.getsockname()[1]}/", uvicorn.Server(config), listening)
