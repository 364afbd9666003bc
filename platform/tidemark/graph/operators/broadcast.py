"""The map that a broadcast stream writes: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from tidemark.errors import DefinitionError, ExpressionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.expressions.expression_types import keeps_type
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.nodes import Expression, Node
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.changes import Definition, DefinitionChange
from tidemark.graph.operators.keys import encode_keys
from tidemark.graph.operators.latest.checks import check_condition


@dataclass(frozen=True)
class BroadcastSpec:
    """A map that a broadcast stream writes: its name, the expression of its keys, and the columns of its values."""

    name: str
    key: Expression
    value: str
    removes: Expression | None = None


def check_broadcast(spec: BroadcastSpec, schema: Schema | None, node: Node) -> None:
    """Check a map against the columns of the stream that writes it, if these are known.

    Raises:
        DefinitionError: or one of its kinds.
    """
    what = f"broadcast {spec.name!r}"
    site = Site(f"{what} key", node.place, node.uid)
    check_columns(parse_row_expression(spec.key, site), spec.key, schema, site)
    if spec.removes is not None:
        check_condition(spec.removes, Site(f"{what} removes", node.place, node.uid), "op = 'd'", schema)
    columns = parse_schema(spec.value, place=node.place, what=f"{what} value")
    check_column_names(columns.names, f"{what} value", node.place, uid=node.uid)
    missing = [name for name in columns.names if schema is not None and schema.find(name) is None]
    if missing and schema is not None:
        raise DefinitionError(
            f"{what} has a value {missing[0]!r}, and the stream has no such column; the columns are: {', '.join(schema.names)}",
            fix="name columns of the broadcast stream in value=...",
            uid=node.uid,
            place=node.place,
        )
    for column in columns.columns:
        given = None if schema is None else schema.find(column.name)
        if given is not None and given.type is not None and column.type is not None and not _is_kept(given.type, column.type):
            raise ExpressionError(
                f"{what} has a value {column.name!r} of type {column.type}, and the stream's column is of type {given.type}",
                fix=f"write value='{column.name} {given.type}', or cast it before: "
                f".with_columns({column.name}='CAST({column.name} AS {column.type})')",
                uid=node.uid,
                place=node.place,
            )


def _is_kept(kind: str, declared: str) -> bool:
    """Return whether values of a type can be those declared; of structs, lists and maps only this is compared."""
    outer, wanted = (each.partition("<")[0] for each in (kind, declared))
    return keeps_type(outer, wanted)


def broadcast_expressions(spec: BroadcastSpec) -> Iterator[tuple[str, Expression | None]]:
    """Yield a map's expressions, each with its role."""
    yield f"key of broadcast {spec.name!r}", spec.key
    yield f"removes of broadcast {spec.name!r}", spec.removes


def describe_broadcast(spec: BroadcastSpec) -> str:
    """Return a map's name, keys and values."""
    return f"with broadcast {spec.name}: {describe_expression(spec.key)} to {spec.value}"


def encode_broadcast(spec: BroadcastSpec) -> dict[str, object]:
    """Return a map's definition as plain JSON."""
    return {"name": spec.name, "key": encode_keys((("key", spec.key),))[0], "value": spec.value}


def decode_broadcast(definition: Definition) -> BroadcastSpec:
    """Return the map of an operator's stored definition."""
    spec = cast("Mapping[str, object]", definition["broadcast"])
    key = str(cast("Mapping[str, object]", spec["key"])["expression"])
    return BroadcastSpec(str(spec["name"]), key, str(spec["value"]))


def broadcast_changes(old: Definition, new: Definition) -> Iterator[DefinitionChange]:
    """Yield the differences of two definitions' maps; one of other keys or values cannot be read."""
    was, now = (cast("Mapping[str, object]", each["broadcast"]) for each in (old, new))
    if was.get("name") != now.get("name"):
        what = f"the broadcast map {was.get('name')!r} is now called {now.get('name')!r}"
        yield DefinitionChange("broadcast", "none", what)
    more = _further_columns(str(was.get("value")), str(now.get("value")))
    if was.get("key") != now.get("key") or more is None:
        yield DefinitionChange("broadcast", "other", f"the broadcast map {now.get('name')!r} has other keys or values")
    elif more:
        what = f"values of the broadcast map {now.get('name')!r} also have {', '.join(more)}, null in entries that are stored already"
        yield DefinitionChange("broadcast", "none", what)


def _further_columns(old: str, new: str) -> list[str] | None:
    """Return the columns that new values have beside the old ones, or None where they lack one, or have it with another type."""
    if old == new:
        return []
    was, now = ({column.name: column.type for column in parse_schema(ddl).columns} for ddl in (old, new))
    return [name for name in now if name not in was] if was.items() <= now.items() else None
