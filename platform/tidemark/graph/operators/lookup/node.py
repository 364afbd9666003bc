"""The node of a join with a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.join_keys import JoinKey, left_keys
from tidemark.semantics.windows.windows import TimeDomain

_PARAMETERS: Final = re.compile(r"[?;]")
"""What the parameters of an address begin with."""


@dataclass(frozen=True)
class DatabaseAccess:
    """How the rows of a table of a database are read.

    ``table`` is its name, or a query; ``driver`` the Java class, None where the address says which. ``options`` are further ones of Spark's
    JDBC source. ``environment`` names, by option, the environment variables that hold the values: no password is in a definition.
    """

    table: str
    driver: str | None = None
    user: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_query(self) -> bool:
        """Whether ``table`` is a query."""
        return self.table.split(None, 1)[0].upper() in {"SELECT", "WITH"}


@dataclass(frozen=True)
class LookupTable:
    """A table that streams look rows up in; ``schema`` is the DDL of its columns, None if only the table says.

    ``path`` is that of its folder, or the address of its ``database``.
    """

    format: Literal["delta", "parquet", "jdbc"]
    path: str
    schema: str | None = None
    database: DatabaseAccess | None = None

    @property
    def label(self) -> str:
        """What messages call it: the path, or the table and the address of the database without its parameters."""
        if self.database is None:
            return self.path
        name = "a query" if self.database.is_query else self.database.table
        return f"{name} of {_PARAMETERS.split(self.path, maxsplit=1)[0]}"

    @property
    def has_versions(self) -> bool:
        """Whether the table keeps its versions itself; of others a copy is made."""
        return self.format == "delta"

    def encoded(self) -> dict[str, object]:
        """Return it as plain JSON."""
        found: dict[str, object] = {"format": self.format, "path": self.path, "schema": self.schema}
        if self.database is not None:
            found["database"] = {
                **vars(self.database),
                "options": dict(self.database.options),
                "environment": dict(self.database.environment),
            }
        return found

    @classmethod
    def decoded(cls, plain: Mapping[str, Any]) -> LookupTable:
        """Return the table of its JSON."""
        access = plain.get("database")
        return cls(plain["format"], plain["path"], plain["schema"], None if access is None else DatabaseAccess(**access))

    def columns(self, chosen: tuple[str, ...] | None, keys: frozenset[str]) -> Schema | None:
        """Return the columns that are read: those that are chosen and the keys, in the table's order; None where it is not known."""
        if self.schema is None:
            return None
        known = parse_schema(self.schema)
        if chosen is None:
            return known
        wanted = {name.lower() for name in chosen} | keys
        return Schema(tuple(column for column in known.columns if column.name.lower() in wanted))


@dataclass(frozen=True, eq=False, kw_only=True)
class LookupNode(StatefulNode):
    """Each element with the rows of a table that have its key, as the table is in the version of the epoch."""

    on: tuple[JoinKey, ...]
    table: LookupTable
    how: Literal["inner", "left"] = "left"
    columns: tuple[str, ...] | None = None
    refresh_ms: int = 60_000

    KIND: ClassVar[str] = "lookup"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """What elements are compared by."""
        return (left_keys(self.on),)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """None: every element is accepted."""
        return {}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time."""
        return "event"
