"""A small server of the page on loopback, with the strictest policy for content that a server may send."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files

import uvicorn
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tests.dagster.web_server import wait_for
from tidemark.errors import TidemarkError, UnknownJobError
from tidemark.web.page.document import tag_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STATIC = files("tidemark.web.page") / "static"
PageOf = Callable[[str], dict[str, object]]


class Asked:
    """What the server was asked: the paths of the API with the status of each answer, in order."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []

    def count(self, path: str, status: int) -> int:
        return self.answers.count((path, status))


def page_app(page_of: PageOf, jobs: Callable[[], list[Mapping[str, object]]], asked: Asked, token: str | None) -> Starlette:
    """Return the application.

    Args:
        page_of: returns the document of a job's page.
        jobs: returns the jobs as the list of the API has them.
        asked: takes what is asked.
        token: what callers have to send; None lets everybody in.
    """

    def listed(request: Request) -> Response:
        return _refusal(request, token) or JSONResponse({"at": 0, "jobs": jobs()})

    def page(request: Request) -> Response:
        return _refusal(request, token) or _answer(request, page_of)

    async def with_policy(request: Request, answer: RequestResponseEndpoint) -> Response:
        response = await answer(request)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        if request.url.path.startswith("/api/"):
            asked.answers.append((request.url.path, response.status_code))
        return response

    routes = [
        Route("/", _index),
        Route("/api/v1/jobs", listed),
        Route("/api/v1/jobs/{job}/page", page),
        Mount("/static", StaticFiles(directory=str(STATIC))),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(BaseHTTPMiddleware, dispatch=with_policy)
    return app


def _index(request: Request) -> Response:
    del request
    return FileResponse(str(STATIC / "index.html"))


def _refusal(request: Request, token: str | None) -> Response | None:
    if token is None or request.headers.get("authorization") == f"Bearer {token}":
        return None
    return JSONResponse({"detail": "no token"}, status_code=401)


def _answer(request: Request, page_of: PageOf) -> Response:
    try:
        document = page_of(request.path_params["job"])
    except TidemarkError as error:
        return JSONResponse({"detail": str(error)}, status_code=404 if isinstance(error, UnknownJobError) else 422)
    tag = f'"{tag_of(document)}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return JSONResponse(document, headers={"ETag": tag})


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Serve an application in a thread; gives its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for("the server", lambda: True if server.started else None, seconds=20)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(20)
