"""Bearer tokens: each has a name, a role, and a prefix of the names of the jobs that it may see.

They are listed in a TOML file, or in an environment variable with the same text; it holds the tokens' SHA-256, never the tokens.
A token has 256 bits of randomness (``new_secret``), so that a fast hash suffices::

    [tokens.anna]
    role = "operator"
    jobs = "team-a-"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import threading
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from tidemark.control.alerts.model.config_table import ConfigTable
from tidemark.errors import DefinitionError, TidemarkError
from tidemark.names import validate_name
from tidemark.state.encoding.free_text import require_no_secret

Role = Literal["viewer", "operator", "admin"]
"""``viewer`` reads. ``operator`` also starts, stops, rescales and takes savepoints.
``admin`` also changes code and results, and deletes."""

ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "admin")
TOKENS_VARIABLE: Final = "TIDEMARK_UI_TOKENS"
MARK: Final = "tmk_"
"""With which secrets begin, so that scanners of code find one that was committed by mistake."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_HEADER: Final = re.compile(r"^\s*\[tokens\.([^\]\s]+)\]", re.MULTILINE)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_log = logging.getLogger("tidemark.web")


@dataclass(frozen=True)
class Token:
    """A token as it is stored: ``jobs`` is the prefix of the names of its jobs, empty for all of them."""

    name: str
    role: Role
    jobs: str
    sha256: str

    def covers(self, job: str) -> bool:
        """Return whether a job's name has its prefix."""
        return job.startswith(self.jobs)

    def permits(self, role: Role) -> bool:
        """Return whether its role includes another one."""
        return ROLES.index(role) <= ROLES.index(self.role)


class Tokens(Protocol):
    """Finds the token of a request."""

    def find(self, secret: str) -> Token | None:
        """Return the token with a secret, None for an unknown one."""
        ...


@dataclass(frozen=True)
class FixedTokens:
    """Tokens that do not change while the server runs."""

    tokens: tuple[Token, ...]

    def find(self, secret: str) -> Token | None:
        """Return the token with a secret, None for an unknown one; compares with all of them, each in constant time."""
        digest, found = digest_of(secret), None
        for token in self.tokens:
            if hmac.compare_digest(digest, token.sha256):
                found = token
        return found


class TokenFile:
    """Tokens of a file, which is read again when it has changed, so that a token that is taken out is refused at once.

    While the file cannot be read, or is invalid, every token is refused.

    Args:
        path: path of the file.

    Raises:
        DefinitionError: the file is invalid, or others than its owner may read or write it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._version: tuple[int, ...] | None = None
        self._tokens = FixedTokens(())
        self._refresh()

    def find(self, secret: str) -> Token | None:
        """Return the token with a secret, None for an unknown one."""
        with self._lock:
            try:
                self._refresh()
            except DefinitionError as error:
                if self._version is not None:
                    _log.error("no token is accepted: %s", error)
                self._version, self._tokens = None, FixedTokens(())
            tokens = self._tokens
        return tokens.find(secret)

    def _refresh(self) -> None:
        try:
            info = Path(self._path).stat()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        version = (info.st_mtime_ns, info.st_size, info.st_ino, info.st_mode)
        if version == self._version:
            return
        if stat.S_IMODE(info.st_mode) & _OTHERS:
            raise DefinitionError(
                f"the file of tokens may be read or written by others: its mode is {stat.S_IMODE(info.st_mode):04o}",
                fix=f"chmod 600 {self._path}",
                place=self._path,
            )
        try:
            text = Path(self._path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(self._path, error) from error
        self._tokens, self._version = FixedTokens(parse_tokens(text, place=self._path)), version


def load_tokens(path: str | None, environment: Mapping[str, str] | None = None) -> Tokens | None:
    """Return the tokens of a file, else of ``$TIDEMARK_UI_TOKENS``; None if there is neither.

    Args:
        path: path of the file.
        environment: environment variables; the process's own by default.

    Raises:
        DefinitionError: the file or the variable is invalid, or both are given.
    """
    text = (os.environ if environment is None else environment).get(TOKENS_VARIABLE)
    if path is not None and text:
        raise DefinitionError(f"both a file of tokens and ${TOKENS_VARIABLE} are given", fix="leave one of them out", place=path)
    if path is not None:
        return TokenFile(path)
    return FixedTokens(parse_tokens(text, place=f"${TOKENS_VARIABLE}")) if text else None


def parse_tokens(text: str, *, place: str) -> tuple[Token, ...]:
    """Parse the text of a file of tokens.

    Raises:
        DefinitionError: it is not TOML, lists no token, or one of them is invalid.
    """
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        twice = [name for name, count in Counter(_HEADER.findall(text)).items() if count > 1]
        if twice:
            what, fix = f"token {twice[0]!r} is in it twice", "remove the entry that is not used, or give one of them another name"
            raise DefinitionError(what, fix=fix, place=place) from error
        raise DefinitionError(f"the tokens are not TOML: {error}", fix="correct it at the named position", place=place) from error
    top = ConfigTable(plain, where="", place=place)
    found = tuple(_token(name, table) for name, table in top.tables("tokens"))
    top.reject_unknown_keys()
    if not found:
        raise DefinitionError("there is no token in it", fix="add one: `tidemark token NAME --role viewer` prints its entry", place=place)
    hashes = {token.sha256: token.name for token in found}
    for token in found:
        if hashes[token.sha256] != token.name:
            raise DefinitionError(
                f"tokens {token.name!r} and {hashes[token.sha256]!r} are the same secret", fix="make one for each", place=place
            )
    return found


def new_secret() -> str:
    """Return the secret of a new token."""
    return MARK + secrets.token_urlsafe(32)


def token_entry(token: Token) -> str:
    """Return a token as an entry of the file."""
    jobs = f'jobs = "{token.jobs}"\n' if token.jobs else ""
    return f'[tokens.{token.name}]\nrole = "{token.role}"\n{jobs}sha256 = "{token.sha256}"\n'


def new_token(name: str, role: Role, jobs: str) -> tuple[Token, str]:
    """Return a new token, and its secret, which is stored nowhere.

    Raises:
        DefinitionError: its name or its prefix is invalid.
    """
    secret = new_secret()
    return _checked(Token(name, role, jobs, digest_of(secret)), place=None), secret


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret, as hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(name: str, table: ConfigTable) -> Token:
    table.reject_secret("token", fix="write sha256 = ... instead: `tidemark token NAME` prints the entry")
    role = next(role for role in ROLES if role == table.choice("role", ROLES, "viewer"))
    token = Token(name, role, table.text("jobs", "") or "", table.required("sha256").lower())
    table.reject_unknown_keys()
    return _checked(token, place=table.place)


def _checked(token: Token, *, place: str | None) -> Token:
    # A token's name is the author in the history of jobs, where texts that look like credentials are refused.
    try:
        validate_name("token", token.name, place=place)
        require_no_secret(name=f"{token.name} (API)")
        if token.jobs:
            validate_name("prefix of jobs", token.jobs, place=place)
    except TidemarkError as error:
        raise DefinitionError(f"token {token.name!r} is invalid: {error.what}", fix=error.fix, place=place) from error
    if not _SHA256.fullmatch(token.sha256):
        raise DefinitionError(
            f"sha256 of token {token.name!r} is not 64 hexadecimal digits", fix="copy the entry that `tidemark token` prints", place=place
        )
    return token


def _unreadable(path: str, error: Exception) -> DefinitionError:
    return DefinitionError(f"the file of tokens cannot be read: {error}", fix="pass the path of a TOML file", place=path)
