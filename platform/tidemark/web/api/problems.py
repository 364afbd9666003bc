"""Errors as answers: ``application/problem+json`` (RFC 9457) with Tidemark's code, and the HTTP status that fits the error's class."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from tidemark.errors import (
    AccessDeniedError,
    CorruptStoreError,
    DefinitionError,
    ForeignRequestError,
    JobRunningError,
    LargeBodyError,
    LaunchRefusedError,
    LinkedPathError,
    MissingEpochsError,
    NotReachedError,
    NotRetainedError,
    OvertakenError,
    RequestFormError,
    RewindError,
    SavepointInUseError,
    SpecConflictError,
    StateMismatchError,
    TakenNameError,
    TidemarkError,
    UnauthenticatedError,
    UnknownAddressError,
    UnknownJobError,
    UnknownSavepointError,
    UnsupportedBodyError,
    UpgradeError,
)
from tidemark.state.encoding.redaction import redacted

PROBLEM_TYPE: Final = "application/problem+json"

_STATUS: Final[tuple[tuple[type[TidemarkError], HTTPStatus], ...]] = (
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED),
    (ForeignRequestError, HTTPStatus.MISDIRECTED_REQUEST),
    (AccessDeniedError, HTTPStatus.FORBIDDEN),
    (LargeBodyError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (UnsupportedBodyError, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (RequestFormError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (UnknownAddressError, HTTPStatus.NOT_FOUND),
    (UnknownJobError, HTTPStatus.NOT_FOUND),
    (NotRetainedError, HTTPStatus.CONFLICT),
    (UnknownSavepointError, HTTPStatus.NOT_FOUND),
    (TakenNameError, HTTPStatus.CONFLICT),
    (DefinitionError, HTTPStatus.UNPROCESSABLE_ENTITY),
    *(
        (kind, HTTPStatus.CONFLICT)
        for kind in (
            JobRunningError,
            LinkedPathError,
            MissingEpochsError,
            NotReachedError,
            OvertakenError,
            RewindError,
            SavepointInUseError,
            SpecConflictError,
            StateMismatchError,
            UpgradeError,
        )
    ),
    (LaunchRefusedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (CorruptStoreError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""The first class that fits counts; another error is an answer of 503 if it is transient, else of 500."""


@dataclass(frozen=True)
class Problem:
    """An error. ``code`` is Tidemark's, ``fix`` what resolves it, ``transient`` whether the same request may succeed later."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fix: str
    transient: bool
    job: str | None = None
    uid: str | None = None
    epoch: int | None = None


def status_of(error: TidemarkError) -> HTTPStatus:
    """Return the HTTP status for an error."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return HTTPStatus.SERVICE_UNAVAILABLE if error.transient else HTTPStatus.INTERNAL_SERVER_ERROR


def problem_of(error: TidemarkError, status: HTTPStatus | None = None) -> Problem:
    """Return an error as a problem, without credentials.

    Args:
        error: the error.
        status: the answer's status; that of the error's class by default.
    """
    found = status or status_of(error)
    return Problem(
        f"urn:tidemark:error:{error.code}",
        found.phrase,
        found.value,
        redacted(error.what),
        error.code,
        redacted(error.fix),
        error.transient,
        error.job,
        error.uid,
        error.epoch,
    )
