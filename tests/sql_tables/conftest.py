"""The server that tests of MariaDB share, and a database of its own for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.postgres.rig import VARIABLE
from tests.sql_tables.place import MariadbPlace, Place, SqlitePlace
from tests.sql_tables.server import NEEDS_MARIADB, MariadbServer

_names: Final = count()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    made = MariadbServer.make()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
def mariadb(mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> MariadbPlace:
    """A new database; the variable that sinks read has the connection string."""
    place = MariadbPlace(mariadb_server, f"shop{os.getpid()}_{next(_names)}")
    mariadb_server.query("admin", f"CREATE DATABASE {place.name}")
    monkeypatch.setenv(VARIABLE, place.dsn())
    return place


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlitePlace:
    """A file that does not exist yet; the variable that sinks read has the connection string."""
    (tmp_path / "database").mkdir()
    made = SqlitePlace(tmp_path / "database" / "shop.db")
    monkeypatch.setenv(VARIABLE, made.dsn())
    return made


@pytest.fixture(params=[pytest.param("mariadb", marks=NEEDS_MARIADB), "sqlite"])
def place(request: pytest.FixtureRequest) -> Place:
    """A database of each kind."""
    found: Place = request.getfixturevalue(request.param)
    return found
