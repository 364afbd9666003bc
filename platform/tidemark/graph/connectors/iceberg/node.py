"""The declaration of an Iceberg sink."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from tidemark.errors import SinkError
from tidemark.graph.checks.output_columns import HISTORY_COLUMNS
from tidemark.graph.connectors.tables import fork_table
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.schema import SchemaColumn

MAX_NAME: Final = 128
"""Greatest length of each part of a table's name; catalogs such as Glue take no longer ones."""

_SCHEME: Final = "iceberg://"
_LOCATION: Final = re.compile(rf"{_SCHEME}(?P<catalog>[A-Za-z][\w-]*)/(?P<name>\w+(?:\.\w+)+)", re.ASCII)


@dataclass(frozen=True)
class IcebergTable:
    """A table: the catalog by its name in PyIceberg's configuration, and the table's name with its namespace."""

    catalog: str
    name: str

    @property
    def location(self) -> str:
        """The table as records and errors show it."""
        return f"{_SCHEME}{self.catalog}/{self.name}"

    @property
    def namespace(self) -> str:
        """The part of the name before the last dot."""
        return self.name.rpartition(".")[0]

    @classmethod
    def of_location(cls, location: str) -> IcebergTable:
        """Return the table of a recorded location.

        Raises:
            SinkError: it is none of a table.

        >>> IcebergTable.of_location("iceberg://lake/shop.orders").namespace
        'shop'
        """
        found = _LOCATION.fullmatch(location)
        if found is None:
            raise SinkError("the recorded place of an output is no table of Iceberg", fix="report this", place=location)
        return cls(found["catalog"], found["name"])


@dataclass(frozen=True)
class PartitionBy:
    """One field of a table's partitions: a column, and Iceberg's transform of it, such as ``day`` or ``truncate[4]``."""

    column: str
    transform: str = "identity"

    def text(self) -> str:
        """Return the field as it is declared.

        >>> PartitionBy("at", "day").text(), PartitionBy("zone").text(), PartitionBy("zone", "truncate[4]").text()
        ('day(at)', 'zone', 'truncate(4, zone)')
        """
        kind, _, width = self.transform.partition("[")
        if kind == "identity":
            return self.column
        return f"{kind}({width.removesuffix(']')}, {self.column})" if width else f"{kind}({self.column})"


@dataclass(frozen=True)
class IcebergSpec(ConnectorSpec):
    """A table of Iceberg, to which rows are added; exactly once, by properties of the table that the same commit sets."""

    table: IcebergTable
    partition_by: tuple[PartitionBy, ...] = ()

    kind: ClassVar[str] = "iceberg"

    @property
    def location(self) -> str:
        """The table, by the name of its catalog."""
        return self.table.location

    @property
    def table_name(self) -> str:
        """Namespace and name."""
        return self.table.name

    @property
    def guarantee(self) -> str:
        """What it guarantees."""
        return "exactly once"

    @property
    def on_rewind(self) -> str:
        """What a rewind does."""
        return "the table returns to the snapshot of the savepoint's epoch; refused if others have written since, or it is expired"

    @property
    def row_keys(self) -> tuple[str, ...]:
        """None: all rows are added."""
        return ()

    def describe(self) -> str:
        """Return the table and its partitions."""
        parts = f", partitioned by {', '.join(field.text() for field in self.partition_by)}" if self.partition_by else ""
        return f"iceberg {self.table.name} in catalog {self.table.catalog}{parts}"

    def added_columns(self, *, changelog: bool) -> tuple[SchemaColumn, ...]:
        """Return operation and epoch of a changelog's history."""
        return HISTORY_COLUMNS if changelog else ()

    def encoded(self) -> list[object]:
        """Return the partitions."""
        return [type(self).__name__, [field.text() for field in self.partition_by]]

    def redirected(self, fork: str) -> IcebergSpec:
        """Return it with a table beside the original's: ``<fork>_<table>``, with a checksum where catalogs have no such names.

        >>> IcebergSpec(IcebergTable("lake", "shop.orders")).redirected("try").table.name
        'shop.try_orders'
        """
        name = fork_table(fork, self.table.name.rpartition(".")[2], longest=MAX_NAME)
        return replace(self, table=replace(self.table, name=f"{self.table.namespace}.{name}"))
