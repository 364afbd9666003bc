"""The server of the page and the API, in a thread of the test, with what it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.web.recorded_job import RecordedJob
from tidemark.web.access.tokens import Tokens
from tidemark.web.api.service import Service
from tidemark.web.server.serving import serve


class Asked:
    """What the server was asked: the paths of the API with the status of each answer, in order."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []

    def count(self, path: str, status: int) -> int:
        return self.answers.count((path, status))

    def watch(self, app: ASGIApp) -> ASGIApp:
        """Return the application, which notes from then on what it answers."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start" and scope["path"].startswith("/api/"):
                    self.answers.append((scope["path"], message["status"]))
                await send(message)

            await app(scope, receive, noted)

        return watched


@contextmanager
def serving(job: RecordedJob, asked: Asked | None = None, tokens: Tokens | None = None) -> Iterator[str]:
    """Serve the jobs of a world; gives the server's address."""
    with serving_store(Service(job.world.store, job.launchers, job.world.clock), asked, tokens) as url:
        yield url


@contextmanager
def serving_store(service: Service, asked: Asked | None = None, tokens: Tokens | None = None) -> Iterator[str]:
    """Serve the jobs of a store; gives the server's address."""
    server = serve(service, port=0, tokens=tokens)
    app: Any = server.server.config.app
    server.server.config.app = (asked or Asked()).watch(app)
    server.start()
    try:
        yield server.url
    finally:
        server.close()
