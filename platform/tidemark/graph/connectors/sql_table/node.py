"""The declaration of a sink to a table of MariaDB, MySQL or SQLite."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from tidemark.errors import SinkError
from tidemark.graph.connectors.database.node import DatabaseSpec, DatabaseTable

SqlDatabase = Literal["mariadb", "mysql", "sqlite"]

MAX_NAME: Final = 64
"""MariaDB and MySQL take no longer names."""

_LOCATION: Final = re.compile(r"(?P<database>mariadb|mysql|sqlite)://(?P<variable>[A-Z][A-Z0-9_]*)/(?P<table>\w+)", re.ASCII)


@dataclass(frozen=True)
class SqlTable(DatabaseTable):
    """A table of the database that the connection string names; ``schema`` is empty."""

    database: SqlDatabase

    longest_name: ClassVar[int] = MAX_NAME

    @property
    def location(self) -> str:
        """The table as records and errors show it."""
        return f"{self.database}://{self.dsn_env}/{self.name}"

    @classmethod
    def of_location(cls, location: str) -> SqlTable:
        """Return the table of a recorded location.

        Raises:
            SinkError: it is none of a table.

        >>> SqlTable.of_location("sqlite://SHOP_DSN/orders").label
        'orders'
        """
        found = _LOCATION.fullmatch(location)
        if found is None:
            raise SinkError("the recorded place of an output is no table of MariaDB, MySQL or SQLite", fix="report this", place=location)
        database: SqlDatabase = "sqlite" if found["database"] == "sqlite" else "mysql" if found["database"] == "mysql" else "mariadb"
        return cls(found["variable"], "", found["table"], database)


@dataclass(frozen=True)
class SqlTableSpec(DatabaseSpec):
    """A table of MariaDB, MySQL or SQLite.

    >>> SqlTableSpec(SqlTable("DSN", "", "orders", "sqlite")).redirected("try").table.label
    'try_orders'
    """

    table: SqlTable

    kind: ClassVar[str] = "sql_table"

    @property
    def database(self) -> str:
        """The database's name."""
        return self.table.database
