"""Connection strings of MariaDB, MySQL and SQLite. They come from environment variables; they and their passwords get into no text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tidemark.errors import SinkError
from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.state.encoding.redaction import HIDDEN, redacted

CONNECT_SECONDS: Final = 10
"""How long an attempt to connect may take, unless the connection string says otherwise."""

_MARIADB: Final = "mariadb://user:password@host:3306/database, with special characters percent-encoded"
_SQLITE: Final = "sqlite:////folder/file.db, with an absolute path"
_OPTIONS: Final = frozenset({"connect_timeout", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity"})
_FLAGS: Final = ("false", "true")


@dataclass(frozen=True)
class ServerAddress:
    """What a connection string says of a server of MariaDB or MySQL, which is shown nowhere."""

    host: str = field(repr=False)
    port: int = field(repr=False)
    user: str = field(repr=False)
    password: str = field(repr=False)
    database: str = field(repr=False)
    options: Mapping[str, str | bool | int] = field(repr=False)

    def without_secrets(self, text: str) -> str:
        """Return a text in which the password is hidden."""
        for secret in {self.password, quote(self.password, safe="")} - {""}:
            text = text.replace(secret, HIDDEN)
        return redacted(text)


def server_address(table: DatabaseTable) -> ServerAddress:
    """Return the server that a table's variable names.

    Raises:
        SinkError: the variable is not set, or holds no such string.
    """
    text = _given(table, _MARIADB)
    try:
        found = _parsed(text)
    except ValueError:
        # Its text may repeat parts of the string.
        found = None
    if found is None:
        raise _no_string(table, _MARIADB, f"; options: {', '.join(sorted(_OPTIONS))}")
    return found


def _parsed(text: str) -> ServerAddress | None:
    parts = urlsplit(text)
    given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    database = unquote(parts.path.removeprefix("/"))
    if parts.scheme not in ("mariadb", "mysql") or parts.fragment or not given.keys() <= _OPTIONS:
        return None
    if not parts.hostname or not parts.username or not database or "/" in database:
        return None
    options: dict[str, str | bool | int] = {"connect_timeout": int(given.pop("connect_timeout", CONNECT_SECONDS))}
    if "ssl_verify_identity" in given:
        options["ssl_verify_identity"] = _FLAGS.index(given.pop("ssl_verify_identity")) == 1
    options |= given
    return ServerAddress(parts.hostname, parts.port or 3306, unquote(parts.username), unquote(parts.password or ""), database, options)


def sqlite_file(table: DatabaseTable) -> str:
    """Return the file that a table's variable names.

    Raises:
        SinkError: the variable is not set, or names no file by its absolute path, or its folder does not exist.
    """
    text = _given(table, _SQLITE)
    path = unquote(text.removeprefix("sqlite://"))[1:] if text.startswith("sqlite:///") else ""
    if not Path(path).is_absolute() or "?" in path or "#" in path or "\0" in path or path.endswith("/"):
        raise _no_string(table, _SQLITE)
    if not Path(path).parent.is_dir():
        raise SinkError(
            f"the folder of the file that {table.dsn_env} names for the table {table.label} does not exist",
            fix="make the folder where the driver runs",
            place=table.location,
        )
    return path


def _given(table: DatabaseTable, example: str) -> str:
    text = os.environ.get(table.dsn_env, "").strip()
    if not text:
        raise SinkError(
            f"the environment variable {table.dsn_env}, which holds the connection string for the table {table.label}, is not set",
            fix=f"set {table.dsn_env} where this process runs, such as {example}",
            place=table.location,
        )
    return text


def _no_string(table: DatabaseTable, example: str, more: str = "") -> SinkError:
    return SinkError(
        f"the environment variable {table.dsn_env} holds no connection string for the table at {table.location}",
        fix=f"set {table.dsn_env} to {example}{more}",
        place=table.location,
    )
