"""Columns at definition: schemas and lineage."""

from __future__ import annotations

from tidemark.graph.checks.column_lineage import lineage
from tidemark.graph.checks.schema_inference import MALFORMED_COLUMNS, schema_of
from tidemark.graph.expressions.expressions import referenced_columns
from tidemark.graph.model.schema import Schema, SchemaColumn

__all__ = [
    "MALFORMED_COLUMNS",
    "Schema",
    "SchemaColumn",
    "lineage",
    "referenced_columns",
    "schema_of",
]
