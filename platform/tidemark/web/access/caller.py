"""Who sends a request, and what that caller may do. Without tokens everybody may read, and nobody may change anything."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.errors import AccessDeniedError, UnauthenticatedError
from tidemark.web.access.tokens import ROLES, Role, Token, Tokens

_SCHEME = "bearer"


@dataclass(frozen=True)
class Caller:
    """The sender of a request; ``token`` is None where the server has no tokens."""

    token: Token | None = None

    @property
    def author(self) -> str:
        """The caller's name in the history of jobs."""
        return f"{self.token.name} (API)" if self.token is not None else ""

    def covers(self, job: str) -> bool:
        """Return whether the caller may see a job of that name, whether it exists or not."""
        return self.token is None or self.token.covers(job)

    def require(self, role: Role, job: str | None) -> None:
        """Raise unless the caller has a role for a job, whether it exists or not; None is none in particular.

        Raises:
            AccessDeniedError: it has not. The error is the same for jobs that exist and jobs that do not.
        """
        if self.token is None:
            if role != ROLES[0]:
                raise AccessDeniedError(
                    "this server has no tokens, so it only shows jobs and changes nothing",
                    fix="start it with --token-file, and send one of these tokens",
                )
            return
        if job is not None and not self.token.covers(job):
            raise AccessDeniedError(
                f"token {self.token.name!r} is for jobs whose names begin with {self.token.jobs!r}",
                fix="use a token for that job",
                job=job,
            )
        if not self.token.permits(role):
            raise AccessDeniedError(
                f"token {self.token.name!r} has the role {self.token.role}, and this requires {role}", fix=f"use a token of an {role}"
            )


def caller_of(authorization: str | None, tokens: Tokens | None) -> Caller:
    """Return the caller by the request's ``Authorization`` header.

    Args:
        authorization: its value, None without one.
        tokens: the server's tokens; None where it has none, and the header does not matter.

    Raises:
        UnauthenticatedError: there is no token, or an unknown one.
    """
    if tokens is None:
        return Caller()
    scheme, _, secret = (authorization or "").strip().partition(" ")
    if scheme.lower() != _SCHEME or not secret.strip():
        raise UnauthenticatedError("the request has no token", fix="send it in the header Authorization, after the word Bearer")
    token = tokens.find(secret.strip())
    if token is None:
        raise UnauthenticatedError("the token is not known", fix="send one of the tokens that the server was started with")
    return Caller(token)
