"""The node of a join with a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.join_keys import JoinKey, left_keys
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True)
class LookupTable:
    """A table that streams look rows up in; ``schema`` is the DDL of its columns, None if only the table says."""

    format: Literal["delta", "parquet"]
    path: str
    schema: str | None = None

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
