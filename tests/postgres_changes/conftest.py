"""The server of the tests of Postgres, with a schema of its own for each test, whose connections and slots end with it."""

from collections.abc import Iterator

import pytest

from tests.postgres.conftest import schema, server
from tests.postgres.server import Server
from tests.postgres_changes.rig import OPENED

__all__ = ["left_behind", "schema", "server"]


@pytest.fixture(autouse=True)
def left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()
    if "server" in request.fixturenames:
        there: Server = request.getfixturevalue("server")
        there.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
