"""A route as data: method, path, role, form, answer. The application is built from these, and the OpenAPI document is written from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from tidemark.web.access.caller import Caller
from tidemark.web.access.tokens import Role
from tidemark.web.api.service import Service

Method = Literal["GET", "POST", "DELETE"]
PREFIX: Final = "/api/v1"

F = TypeVar("F")


@dataclass(frozen=True)
class NoForm:
    """A request without a body or parameters."""


@dataclass(frozen=True)
class Call:
    """One request: who sent it, and the parts of its path by name."""

    service: Service
    caller: Caller
    path: Mapping[str, str]

    @property
    def job(self) -> str:
        """The job's name."""
        return self.path["job"]


@dataclass(frozen=True)
class Accepted:
    """A change that was requested and takes effect later.

    ``generation`` is that of the job's spec, None where it was not changed. ``watch`` is the address of the operation, or of the job if a
    supervisor carries the request out.
    """

    job: str
    action: str
    watch: str
    generation: int | None = None
    operation: str | None = None


@dataclass(frozen=True)
class Tagged:
    """An answer with an entity tag; a request whose ``If-None-Match`` is that tag gets the status 304 instead."""

    document: Mapping[str, object]
    tag: str


Handler = Callable[[Call, F], object]
"""Carries a request out, and returns what ``to_jsonable`` makes the answer of; raises a ``TidemarkError``, which becomes a problem."""


@dataclass(frozen=True)
class ApiRoute:
    """A route.

    Args:
        method: the HTTP method; the form of a GET or DELETE is its query, of a POST its body.
        path: below ``PREFIX``; its parts in braces are parameters.
        name: unique name, the document's operationId.
        summary: one sentence.
        role: that a token needs.
        handler: carries a request out.
        form: the dataclass of its body or query.
        answer: the type of the answer.
        status: of the answer.
        group: in the document.
    """

    method: Method
    path: str
    name: str
    summary: str
    role: Role
    handler: Handler[Any]
    form: type = NoForm
    answer: object = Accepted
    status: int = 200
    group: str = "jobs"


def route(
    method: Method,
    path: str,
    handler: Callable[[Call, F], object],
    form: type[F],
    *,
    role: Role,
    answer: object,
    status: int = 200,
    group: str = "jobs",
) -> ApiRoute:
    """Return a route; its name and summary are those of its handler, which takes the form."""
    summary = (handler.__doc__ or "").partition("\n")[0].rstrip(".")
    return ApiRoute(method, path, handler.__name__, summary, role, handler, form, answer, status, group)
