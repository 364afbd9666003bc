"""The columns that readers find at the place of an output: those of its stream, and those that its sink adds."""

from __future__ import annotations

from typing import Final

from tidemark.errors import ColumnError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import VALID_FROM, VALID_TO, DeltaSpec, Node, Output, SinkSpec
from tidemark.graph.model.schema import Schema, SchemaColumn

OPERATION: Final = "operation"
EPOCH: Final = "epoch"

_HISTORY: Final = (SchemaColumn(OPERATION, "STRING"), SchemaColumn(EPOCH, "BIGINT"))
_VALIDITY: Final = (SchemaColumn(VALID_FROM, "TIMESTAMP"), SchemaColumn(VALID_TO, "TIMESTAMP"))


def added_columns(node: Node, sink: SinkSpec) -> tuple[SchemaColumn, ...]:
    """Return the columns that a sink adds to the rows of a node: the operation and the epoch of a changelog's, the validity of versions."""
    if isinstance(sink, ConnectorSpec):
        return _HISTORY if sink.adds_history and changelog_keys(node) is not None else ()
    mode = sink.mode if isinstance(sink, DeltaSpec) else "append"
    if mode == "scd2":
        return _VALIDITY
    return _HISTORY if mode == "append" and changelog_keys(node) is not None else ()


def output_schema(output: Output) -> Schema | None:
    """Return the columns of an output, or None if they cannot be known before the job runs."""
    given = schema_of(output.node)
    return given.with_columns(added_columns(output.node, output.sink)) if given is not None else None


def check_added_columns(output: Output) -> None:
    """Check that the stream has none of the columns that its sink adds.

    Raises:
        ColumnError: it has one.
    """
    given = schema_of(output.node)
    for column in added_columns(output.node, output.sink):
        if given is not None and given.find(column.name) is not None:
            what = "of versions" if column in _VALIDITY else "of changes"
            raise ColumnError(
                f"the sink adds a column {column.name!r} {what}, and the stream has one already",
                fix=f"rename it before: .select(..., own_{column.name}='{column.name}')",
                place=output.place,
            )
