"""Connections to Postgres. Connection strings come from environment variables; neither they nor their parts get into any text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tidemark.errors import SetupError, SinkError, TidemarkError
from tidemark.savepoints.database.session import DatabaseError
from tidemark.state.encoding.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    from psycopg import Connection

    PostgresConnection = Connection[tuple[Any, ...]]

CONNECT_SECONDS: Final = 10
"""How long an attempt to connect may take, unless the connection string says otherwise."""

LEAST_VERSION: Final = 15
"""The first release whose unique indexes can take nulls as equal."""

_KEEPALIVES: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""By which a connection breaks a minute after its machine was switched off; the connection string may have others."""

_SECRET_PARTS: Final = ("password", "sslpassword")


@dataclass(frozen=True)
class ConnectionString:
    """What an environment variable holds, which is shown nowhere; made by ``of``."""

    text: str = field(repr=False)
    parts: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, variable: str, *, what: str, place: str, error: type[TidemarkError] = SinkError) -> ConnectionString:
        """Return the connection string in an environment variable.

        Args:
            variable: its name.
            what: what is read or written, for errors, such as ``the table shop.orders``.
            place: of that, for errors.
            error: the class of errors about the variable.

        Raises:
            SetupError: psycopg is not installed.
            TidemarkError: of the class ``error``: the variable is not set, or holds no connection string.
        """
        try:
            from psycopg import ProgrammingError
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as missing:
            raise SetupError(
                f"{what} is one of Postgres, and psycopg is not installed", fix="run pip install -e '.[postgres]' in the checkout"
            ) from missing
        dsn = os.environ.get(variable, "")
        if not dsn.strip():
            raise error(
                f"the environment variable {variable}, which holds the connection string for {what}, is not set",
                fix=f"set {variable} where this process runs, such as postgresql://user:password@host/database",
                place=place,
            )
        try:
            return cls(dsn, conninfo_to_dict(dsn))
        except ProgrammingError:
            # The library's text repeats parts of it.
            raise error(
                f"the environment variable {variable} holds no connection string of Postgres",
                fix=f"set {variable} to postgresql://user:password@host/database, with special characters percent-encoded",
                place=place,
            ) from None

    def connect(self, **options: str) -> PostgresConnection:
        """Return a new connection, whose text is UTF-8; call it within ``translating``.

        Args:
            options: settings of the session, such as ``TimeZone="UTC"``.
        """
        import psycopg

        given = " ".join(f"-c {name}={value}" for name, value in options.items())
        whole = " ".join(filter(None, [str(self.parts.get("options", "")), given]))
        parameters: dict[str, Any] = {
            "connect_timeout": self.parts.get("connect_timeout", CONNECT_SECONDS),
            "application_name": self.parts.get("application_name", "tidemark"),
            "client_encoding": "utf8",
            **{name: self.parts.get(name, value) for name, value in _KEEPALIVES.items()},
            **({"options": whole} if whole else {}),
        }
        return psycopg.connect(self.text, prepare_threshold=None, **parameters)

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Translate errors of psycopg in the block.

        Raises:
            DatabaseError: the server cannot be reached, or refuses a statement.
        """
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.errors.IdleInTransactionSessionTimeout)
            # Neither the error nor its text is kept: both may repeat what they were given.
            raise DatabaseError(self._text(error), state=error.sqlstate or "", lost=lost) from None

    def _text(self, error: Any) -> str:  # noqa: ANN401 - an error of a library that need not be installed
        """Return the first line of an error, without secrets and without the values of rows, which the server's details have."""
        lines = (error.diag.message_primary or str(error)).strip().splitlines() or [type(error).__name__]
        text = " ".join(line.strip() for line in lines[:2])
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return redacted(text)

    @property
    def _secrets(self) -> tuple[str, ...]:
        values = [str(self.parts[name]) for name in _SECRET_PARTS if self.parts.get(name)]
        found = {self.text, *values, *(quote(value, safe="") for value in values)}
        return tuple(sorted(found, key=len, reverse=True))
