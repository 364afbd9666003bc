"""The server that tests of Postgres share, and a schema of its own for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Final

import pytest

from tests.postgres.rig import VARIABLE
from tests.postgres.server import Server, binaries

_names: Final = count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if binaries() is None:
        pytest.skip("no initdb on PATH or in /usr/lib/postgresql: install postgresql")
    made = Server.make()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
def schema(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new schema; the variable that sinks read has the connection string."""
    name = f"shop{os.getpid()}_{next(_names)}"
    server.query(f"CREATE SCHEMA {name}")
    monkeypatch.setenv(VARIABLE, server.dsn())
    return name
