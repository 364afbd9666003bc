"""Which columns and fields the expressions of a state machine read, and what their values are called."""

from __future__ import annotations

from typing import Final

from tidemark.graph.expressions.expressions import Site, column_names, parse_sql
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.sql_state.node import SqlStateNode, StateField
from tidemark.graph.operators.window.reduce import merged_columns

NEW: Final = "new"
"""The name of the fields' values after the element, in ``emit_when`` and ``returns``: ``new.last``."""


def names_read(text: str) -> frozenset[str]:
    """Return the columns and fields that an expression reads, in lower case."""
    return frozenset(name.lower() for name in column_names(parse_sql(text, Site("expression", ""))))


def depends_on_state(node: SqlStateNode) -> bool:
    """Return whether the next value of a field depends on the state, so that elements are processed one after the other.

    Otherwise a field is what the element before gave it.
    """
    return node.reduced or any(names_read(field.update) & node.field_names for field in node.fields)


def fields_read(node: SqlStateNode, field: StateField) -> frozenset[str]:
    """Return the fields that an update reads, directly or through others, with the field itself; in lower case."""
    updates = {each.name.lower(): each.update for each in node.fields}
    found: set[str] = set()
    pending = [field.name.lower()]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            read = merged_columns(updates[name], updates) if node.reduced else names_read(updates[name]) & node.field_names
            pending.extend(read)
    return frozenset(found)


def seen_by_updates(node: SqlStateNode, given: Schema | None) -> Schema | None:
    """Return the columns that updates see: those of the element, and the fields; None where the stream's are not known."""
    return None if given is None else given.with_columns([SchemaColumn(field.name, field.type) for field in node.fields])


def seen_by_results(node: SqlStateNode, given: Schema | None) -> Schema | None:
    """Return the columns that ``emit_when`` and ``returns`` see: those of updates, and ``new``."""
    seen = seen_by_updates(node, given)
    struct = ", ".join(f"`{field.name}`: {field.type}" for field in node.fields)
    return None if seen is None else seen.with_columns([SchemaColumn(NEW, f"STRUCT<{struct}>")])
