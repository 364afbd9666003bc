"""The OpenAPI document: written from the routes, so that what is served and what is described cannot differ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

from tidemark.web.api.problems import PROBLEM_TYPE, Problem
from tidemark.web.api.routes import PREFIX, Accepted, ApiRoute, NoForm
from tidemark.web.api.schemas import Schema, Schemas

JSON: Final = "application/json"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_NAME: Final = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"}
_DESCRIPTION: Final = (
    "Jobs of a Tidemark store: their state and history, and changes of them. Times are milliseconds since 1970-01-01 UTC. "
    "Without tokens the server only reads. An error is a problem (RFC 9457) with Tidemark's code and a fix. A change is recorded in the "
    "history of its job under the token's name."
)
_ERRORS: Final = {
    "401": "There is no token, or an unknown one.",
    "403": "The token's role, or its prefix of job names, does not allow it.",
    "404": "There is no such job, savepoint or operation.",
    "409": "The state of the job does not allow it now.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "421": "The host is not one of this server, or the request comes from a page of another server.",
    "422": "The request cannot be read, or asks for what is not possible; the problem says what is wrong.",
    "500": "A file of the store is damaged, or an unexpected error.",
    "503": "The store cannot be reached, or the server is busy; the same request may succeed later.",
}


def openapi_document(routes: Iterable[ApiRoute], *, with_tokens: bool) -> dict[str, Any]:
    """Return the document.

    Args:
        routes: the routes that are served.
        with_tokens: whether requests need a token.
    """
    schemas = Schemas()
    problem = schemas.of(Problem)
    responses = {status: {"description": text, "content": {PROBLEM_TYPE: {"schema": problem}}} for status, text in _ERRORS.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(f"{PREFIX}{route.path}", {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidemark", "version": version("tidemark"), "description": _DESCRIPTION, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": {f"Error{status}": response for status, response in responses.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}] if with_tokens else [],
    }


def _operation(route: ApiRoute, schemas: Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": f"{route.summary}.",
        "description": f"Needs the role {route.role}.",
        "tags": [route.group],
        "parameters": [*_path_parameters(route), *(_query(route) if route.method != "POST" else ())],
        "responses": {str(route.status): _answer(route, schemas), **_errors(route)},
    }
    if route.method == "POST" and route.form is not NoForm:
        form = schemas.of(route.form, strict=True)
        needed = bool(schemas.components[route.form.__name__]["required"])
        described["requestBody"] = {"required": needed, "content": {JSON: {"schema": form}}}
    return described


def _path_parameters(route: ApiRoute) -> list[Schema]:
    return [{"name": name, "in": "path", "required": True, "schema": dict(_NAME)} for name in _PARAMETER.findall(route.path)]


def _query(route: ApiRoute) -> list[Schema]:
    """Return the fields of a form as parameters; they are scalars, so the form itself is no schema of the document."""
    schemas = Schemas()
    schemas.of(route.form, strict=True)
    form = schemas.components[route.form.__name__]
    return [
        {"name": name, "in": "query", "required": name in form["required"], "schema": value} for name, value in form["properties"].items()
    ]


def _answer(route: ApiRoute, schemas: Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary, "content": {JSON: {"schema": schemas.of(route.answer)}}}
    if route.answer is Accepted:
        answer["headers"] = {"Location": {"description": "What to watch: the operation, or the job.", "schema": {"type": "string"}}}
    return answer


def _errors(route: ApiRoute) -> dict[str, Any]:
    changes = route.method != "GET"
    left_out = {"409", "413", "415"} - ({"409"} if "{" in route.path or changes else set()) - ({"413", "415"} if changes else set())
    return {status: {"$ref": f"#/components/responses/Error{status}"} for status in _ERRORS if status not in left_out}
