"""What is known of columns at definition: schemas and lineage."""

from __future__ import annotations

from tidemark.graph.column_lineage import lineage
from tidemark.graph.expressions import referenced_columns
from tidemark.graph.propagation import MALFORMED_COLUMNS, schema_of
from tidemark.graph.schema import Schema, SchemaColumn

__all__ = [
    "MALFORMED_COLUMNS",
    "Schema",
    "SchemaColumn",
    "lineage",
    "referenced_columns",
    "schema_of",
]
