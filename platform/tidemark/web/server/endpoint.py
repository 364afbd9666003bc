"""Answers a request by its route: who is it, may it, what does it ask for; then the handler, in a thread, since it reads files."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from tidemark.errors import LargeBodyError, RequestFormError, TidemarkError, UnsupportedBodyError
from tidemark.names import validate_name
from tidemark.state.encoding.codec import to_jsonable
from tidemark.web.access.caller import caller_of
from tidemark.web.access.tokens import Tokens
from tidemark.web.api.problems import PROBLEM_TYPE, Problem, problem_of
from tidemark.web.api.routes import Accepted, ApiRoute, Call, NoForm, Tagged
from tidemark.web.api.schemas import read_form, read_query, required_roles
from tidemark.web.api.service import Service

BODY_AT_MOST: Final = 64 * 1024
_log = logging.getLogger("tidemark.web")


class Endpoint:
    """The routes of one path, by method.

    Args:
        routes: these routes.
        service: what they work on.
        tokens: the server's tokens; None where it has none.
    """

    def __init__(self, routes: Sequence[ApiRoute], service: Service, tokens: Tokens | None) -> None:
        self._routes: Mapping[str, ApiRoute] = {route.method: route for route in routes}
        self._service = service
        self._tokens = tokens

    async def answer(self, request: Request) -> Response:
        """Return the answer, or the problem."""
        try:
            return await self._answer(request, self._routes["GET" if request.method == "HEAD" else request.method])
        except TidemarkError as error:
            return problem_response(problem_of(error))
        except ClientDisconnect:
            # Nobody receives this; it is no error of the server, whose log has no line of it.
            return Response(status_code=400)

    async def _answer(self, request: Request, route: ApiRoute) -> Response:
        caller = await run_in_threadpool(caller_of, request.headers.get("authorization"), self._tokens)
        path = {name: str(value) for name, value in request.path_params.items()}
        # Before anything is read: whether a job exists shows only to those who may see it.
        caller.require(route.role, path.get("job"))
        for kind, name in path.items():
            validate_name(kind, name)
        form = await _form(request, route)
        for role in required_roles(form):
            caller.require(role, path.get("job"))
        answer = await run_in_threadpool(route.handler, Call(self._service, caller, path), form)
        if isinstance(answer, Tagged):
            return _tagged_response(answer, request.headers.get("if-none-match"))
        headers = {"Location": answer.watch} if isinstance(answer, Accepted) else {}
        return JSONResponse(to_jsonable(answer), status_code=route.status, headers=headers)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem as an answer."""
    challenge = {"WWW-Authenticate": 'Bearer realm="tidemark"'} if problem.status == 401 else {}
    again = {"Retry-After": "5"} if problem.status == 503 else {}
    return JSONResponse(
        to_jsonable(problem), status_code=problem.status, media_type=PROBLEM_TYPE, headers={**(headers or {}), **challenge, **again}
    )


def _tagged_response(answer: Tagged, known: str | None) -> Response:
    """Return an answer with its tag, or only that the caller has it already."""
    tag = f'"{answer.tag}"'
    return Response(status_code=304, headers={"ETag": tag}) if known == tag else JSONResponse(answer.document, headers={"ETag": tag})


async def _form(request: Request, route: ApiRoute) -> object:
    """Return the form of a request: the body of a POST, else the query."""
    if route.method != "POST":
        names = [name for name, _ in request.query_params.multi_items()]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise RequestFormError(f"the query has {', '.join(repeated)} twice", fix="give each parameter once")
        return read_query(route.form, dict(request.query_params))
    body = await _body(request)
    if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedBodyError("the body is not JSON by its Content-Type", fix="send the header `Content-Type: application/json`")
    if route.form is NoForm and not body:
        return NoForm()
    return read_form(route.form, _decoded(body), what="the body")


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > BODY_AT_MOST:
            raise LargeBodyError(f"the body is larger than {BODY_AT_MOST} bytes", fix="send less")
    return bytes(found)


def _decoded(body: bytes) -> object:
    try:
        plain: object = json.loads(body or b"{}", parse_constant=_no_number, parse_float=_finite)
        # Text that is no Unicode, such as half of a pair, could not be stored.
        json.dumps(plain, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RequestFormError("the body is not JSON", fix="send a JSON object, or nothing") from error
    return plain


def _finite(text: str) -> float:
    """Return a number; JSON can write numbers that no float holds, and what became of one could not be stored."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _no_number(text: str) -> object:
    raise ValueError(text)
