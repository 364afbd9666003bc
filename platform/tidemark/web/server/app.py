"""The application: the API's routes, the OpenAPI document, and the page's files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemark.errors import ForeignRequestError, TidemarkError, UnknownAddressError
from tidemark.web.access.guard import Guard
from tidemark.web.access.tokens import Tokens
from tidemark.web.api.openapi import openapi_document
from tidemark.web.api.problems import problem_of, status_of
from tidemark.web.api.routes import PREFIX, ApiRoute
from tidemark.web.api.service import Service
from tidemark.web.api.table import ROUTES
from tidemark.web.server.endpoint import Endpoint, problem_response

OPENAPI_PATH: Final = "/openapi.json"
_log = logging.getLogger("tidemark.web")

_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
_HEADERS: Final = (
    (b"content-security-policy", "; ".join(_POLICY).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Sent with every answer: the page runs only its own scripts, in no frame; what it shows is in no cache."""


def build_app(
    service: Service, *, tokens: Tokens | None = None, host_names: Iterable[str] = (), routes: Sequence[ApiRoute] = ROUTES
) -> Starlette:
    """Return the application for a job store.

    Args:
        service: the store, and what works on it.
        tokens: the tokens of callers; None lets everybody read and nobody change anything.
        host_names: names of the server besides ``localhost``.
        routes: the routes of the API.

    Raises:
        DefinitionError: a name of the server is none.
    """
    document = openapi_document(routes, with_tokens=tokens is not None)

    def openapi(request: Request) -> Response:
        del request
        return JSONResponse(document)

    app = Starlette(
        routes=[
            *_api_routes(routes, service, tokens),
            Route(OPENAPI_PATH, openapi),
            *_page_routes(),
        ],
        middleware=[Middleware(_GuardedApp, guard=Guard(host_names))],
        exception_handlers={HTTPException: _http_error, Exception: _unexpected_error},
    )
    # An address with a slash at its end is unknown, rather than a redirect to a host that the request names.
    app.router.redirect_slashes = False
    return app


def _api_routes(routes: Sequence[ApiRoute], service: Service, tokens: Tokens | None) -> list[BaseRoute]:
    found: list[BaseRoute] = []
    for path, group in groupby(sorted(routes, key=lambda route: route.path), key=lambda route: route.path):
        alike = tuple(group)
        found.append(Route(f"{PREFIX}{path}", Endpoint(alike, service, tokens).answer, methods=[route.method for route in alike]))
    return found


def _page_routes() -> list[BaseRoute]:
    """Return the routes of the page: its first file, and all others."""
    folder = Path(str(files("tidemark.web"))) / "page" / "static"

    def index(request: Request) -> Response:
        del request
        return FileResponse(folder / "index.html")

    return [Route("/", index), Mount("/static", StaticFiles(directory=folder))]


class _GuardedApp:
    """Answers only requests for this server and from its own page, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = Request(scope).headers
        try:
            self._guard.check(headers.get("host"), headers.get("origin"))
        except ForeignRequestError as error:
            await problem_response(problem_of(error))(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def _http_error(request: Request, error: Exception) -> Response:
    """Return Starlette's own errors, of unknown paths and methods, as problems."""
    if not isinstance(error, HTTPException):
        raise error
    unknown = UnknownAddressError(
        f"the server has nothing at {request.method} {request.url.path}", fix="see the OpenAPI document: /openapi.json"
    )
    status = status_of(unknown)
    return problem_response(problem_of(unknown, type(status)(error.status_code)), error.headers)


def _unexpected_error(request: Request, error: Exception) -> Response:
    """Return a problem without the error's text, which may hold anything; Starlette raises it again, so that the server logs it."""
    del request
    response = problem_response(problem_of(TidemarkError(f"an unexpected error, {type(error).__name__}", fix="see the server's log")))
    # Starlette sends this answer around all middleware, and with it around the guard.
    response.raw_headers.extend(_HEADERS)
    return response
