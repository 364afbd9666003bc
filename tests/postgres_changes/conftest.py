"""The server of the tests of Postgres, with a schema of its own for each test."""

from tests.postgres.conftest import jvm, schema, server

__all__ = ["jvm", "schema", "server"]
