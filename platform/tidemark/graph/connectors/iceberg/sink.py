"""Declares an Iceberg sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from tidemark.errors import DefinitionError
from tidemark.graph.api.sinks import bind_output
from tidemark.graph.checks.output_columns import check_added_columns, output_schema
from tidemark.graph.checks.output_texts import ColumnTexts, described
from tidemark.graph.connectors.iceberg.checks import checked_partitions, checked_table, column_fault
from tidemark.graph.connectors.iceberg.node import IcebergSpec
from tidemark.graph.connectors.tables import check_table_columns
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Output

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


def iceberg(
    stream: Stream,
    *,
    table: str,
    catalog: str,
    mode: Literal["append"] = "append",
    partition_by: Sequence[str] = (),
    description: str = "",
    columns: ColumnTexts | None = None,
) -> Output:
    """Add a stream's rows to a table of Iceberg; the table is created if it does not exist. Needs ``.[iceberg]``.

    Guarantee: exactly once. All rows of an epoch appear in one snapshot; the same commit notes the epoch in the table's properties.

    A changelog is added as its history, with the columns ``operation`` (``insert``, ``update``, ``delete``) and ``epoch``.

    Args:
        stream: the stream to write.
        table: name with its namespace, ``shop.orders``. The namespace has to exist.
        catalog: its name in PyIceberg's configuration: ``.pyiceberg.yaml``, or variables of the driver's environment such as
            ``PYICEBERG_CATALOG__LAKE__URI``. The configuration, and what is secret in it, is stored nowhere.
        mode: ``append`` adds every row; there is no other.
        partition_by: of a table that is created: columns, or ``year(at)``, ``month(at)``, ``day(at)``, ``hour(at)``,
            ``truncate(4, zone)``. An existing table must have the same, if any are given.
        description: what the rows are, for readers: the table's property ``comment``, and the description of the asset in Dagster. One
            that was changed is in the table with the next epoch.
        columns: what the columns are, by name, likewise: the ``doc`` of the table's columns.

    Raises:
        DefinitionError: not a stream, no such table, catalog or mode.
        ColumnError: Iceberg has no type for a column, or the stream lacks a column of the partitions, or one that is described.
    """
    place = call_site()
    spec = IcebergSpec(checked_table(table, catalog, place))
    output = bind_output("iceberg", stream, spec)
    if mode != "append":
        raise DefinitionError(
            f"iceberg(mode={shortened(repr(mode))}): rows can only be added, since PyIceberg writes no delete files and would rewrite the "
            "files of every changed row",
            fix="leave mode out: a changelog is added as its history, of which the newest row of each key is its content; or upsert to a "
            "Delta table (tm.delta) or to Postgres (tm.postgres)",
            place=place,
        )
    check_added_columns(output)
    schema = output_schema(output)
    check_table_columns(schema.columns if schema is not None else (), column_fault, place, caller="iceberg")
    output = replace(output, sink=replace(spec, partition_by=checked_partitions(partition_by, schema, place)))
    return described(output, description, columns)
