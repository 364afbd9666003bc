"""The declaration of a Postgres sink."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from tidemark.errors import SinkError
from tidemark.graph.connectors.database.node import DatabaseSpec, DatabaseTable

MAX_NAME_BYTES: Final = 63
"""Postgres silently cuts longer names off."""

_SCHEME: Final = "postgres://"
_LOCATION: Final = re.compile(rf"{_SCHEME}(?P<variable>[A-Z][A-Z0-9_]*)/(?P<schema>\w+)\.(?P<table>\w+)", re.ASCII)


@dataclass(frozen=True)
class PostgresTable(DatabaseTable):
    """A table: the environment variable that holds the connection string, the schema and the name."""

    longest_name: ClassVar[int] = MAX_NAME_BYTES

    @property
    def location(self) -> str:
        """The table as records and errors show it."""
        return f"{_SCHEME}{self.dsn_env}/{self.label}"

    @classmethod
    def of_location(cls, location: str) -> PostgresTable:
        """Return the table of a recorded location.

        Raises:
            SinkError: it is none of a table.

        >>> PostgresTable.of_location("postgres://SHOP_DSN/public.orders").label
        'public.orders'
        """
        found = _LOCATION.fullmatch(location)
        if found is None:
            raise SinkError("the recorded place of an output is no table of Postgres", fix="report this", place=location)
        return cls(found["variable"], found["schema"], found["table"])


@dataclass(frozen=True)
class PostgresSpec(DatabaseSpec):
    """A table of Postgres.

    >>> PostgresSpec(PostgresTable("DSN", "shop", "orders")).redirected("try").table.label
    'shop.try_orders'
    """

    table: PostgresTable

    kind: ClassVar[str] = "postgres"

    @property
    def database(self) -> str:
        """Its name."""
        return "postgres"
