"""Process functions over two inputs as operator kinds: connected streams, and a stream with a broadcast one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins, merged
from tidemark.graph.expressions.expression_text import describe_columns
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.broadcast import (
    broadcast_changes,
    broadcast_expressions,
    check_broadcast,
    decode_broadcast,
    describe_broadcast,
    encode_broadcast,
)
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names
from tidemark.graph.operators.emitting import FAILED
from tidemark.graph.operators.keyed_process.kind import ERROR, KeyedProcessKind
from tidemark.graph.operators.keyed_process.node import BroadcastProcessNode, ConnectedProcessNode, KeyedProcessNode
from tidemark.graph.operators.keys import check_keys, encode_keys, typed
from tidemark.graph.operators.kind import Schemas

INPUT = "input"
ELEMENT = "element"


class ConnectedProcessKind(KeyedProcessKind):
    """``key_by(...).connect(other.key_by(...)).process(...)``."""

    name: ClassVar[str] = "connected_process"
    noun: ClassVar[str] = "process function of connected streams"
    nouns: ClassVar[str] = "process functions of connected streams"

    def validate(self, node: KeyedProcessNode, schemas: Schemas) -> None:
        """Check the keys of both inputs, which have to be of the same types, and the function."""
        connected = cast("ConnectedProcessNode", node)
        super().validate(node, schemas)
        check_keys(connected.second_keys, schemas[1], node.place, uid=node.uid)
        if len(connected.keys) != len(connected.second_keys):
            raise DefinitionError(
                f"the connected streams have {len(connected.keys)} and {len(connected.second_keys)} keys",
                fix="key both by the same number of columns",
                uid=node.uid,
                place=node.place,
            )
        for one, other in zip(typed(connected.keys, schemas[0]), typed(connected.second_keys, schemas[1]), strict=True):
            if one.type is not None and other.type is not None and one.type != other.type:
                raise DefinitionError(
                    f"the connected streams are keyed by {one.name!r}, of type {one.type}, and by {other.name!r}, of type {other.type}",
                    fix=f"cast one: .key_by({other.name}='CAST({other.name} AS {one.type})')",
                    uid=node.uid,
                    place=node.place,
                )

    def side_schema(self, node: KeyedProcessNode, counter: str, schemas: Schemas) -> Schema | None:
        """Return the declared columns; of failed elements the input, the element as JSON, and the error."""
        if counter == FAILED:
            return Schema.of([(INPUT, "STRING"), (ELEMENT, "STRING"), (ERROR, "STRING")])
        return super().side_schema(node, counter, schemas)

    def lineage(self, node: KeyedProcessNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return all columns of both inputs as the origin of each result."""
        return super().lineage(node, [_together(origins)])

    def side_lineage(self, node: KeyedProcessNode, counter: str, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return all columns of both inputs as the origin of each column."""
        given = _together(origins)
        if counter == FAILED:
            return ColumnOrigins(dict.fromkeys((ELEMENT, ERROR), given.every()), NO_ORIGINS, given.time)
        return super().side_lineage(node, counter, [given])

    def describe(self, node: KeyedProcessNode) -> str:
        """Return the keys of both inputs, the function, and the states."""
        second = describe_columns(cast("ConnectedProcessNode", node).second_keys)
        return f"{super().describe(node)}, connected by {second}"

    def expressions(self, node: KeyedProcessNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the keys of both inputs."""
        yield from super().expressions(node)
        second = cast("ConnectedProcessNode", node).second_keys
        yield from ((f"key {name!r} of the second input", expression) for name, expression in second)

    def encode(self, node: KeyedProcessNode) -> dict[str, object]:
        """Return the definition, with the keys of the second input."""
        return {**super().encode(node), "second_keys": encode_keys(cast("ConnectedProcessNode", node).second_keys)}

    def decode(self, definition: Definition, uid: str) -> KeyedProcessNode:
        """Return a node with the same state."""
        return ConnectedProcessNode(**_fields(super().decode(definition, uid)))

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences; another key of the second input finds other state."""
        found = super().changes(old, new, names, kept)
        if old.get("second_keys") != new.get("second_keys"):
            return (*found, DefinitionChange("key", "other", "the second input is keyed in another way", ""))
        return found


class BroadcastProcessKind(KeyedProcessKind):
    """``key_by(...).connect(rules.broadcast(...)).process(...)``."""

    name: ClassVar[str] = "broadcast_process"
    noun: ClassVar[str] = "process function with a broadcast stream"
    nouns: ClassVar[str] = "process functions with broadcast streams"
    state_noun: ClassVar[str] = "the states and timers of all keys, and the broadcast map"

    def validate(self, node: KeyedProcessNode, schemas: Schemas) -> None:
        """Check the keys, the function, and the broadcast map."""
        super().validate(node, schemas)
        check_broadcast(cast("BroadcastProcessNode", node).broadcast, schemas[1], node)

    def lineage(self, node: KeyedProcessNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return all columns of both inputs as the origin of each result."""
        return super().lineage(node, [_together(origins)])

    def describe(self, node: KeyedProcessNode) -> str:
        """Return the keys, the function, the states, and the broadcast map."""
        return f"{super().describe(node)}, {describe_broadcast(cast('BroadcastProcessNode', node).broadcast)}"

    def expressions(self, node: KeyedProcessNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the keys, and of the broadcast map."""
        yield from super().expressions(node)
        yield from broadcast_expressions(cast("BroadcastProcessNode", node).broadcast)

    def encode(self, node: KeyedProcessNode) -> dict[str, object]:
        """Return the definition, with the broadcast map."""
        return {**super().encode(node), "broadcast": encode_broadcast(cast("BroadcastProcessNode", node).broadcast)}

    def decode(self, definition: Definition, uid: str) -> KeyedProcessNode:
        """Return a node with the same state."""
        return BroadcastProcessNode(**_fields(super().decode(definition, uid)), broadcast=decode_broadcast(definition))

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences; a map of other keys or values cannot be read."""
        return (*super().changes(old, new, names, kept), *broadcast_changes(old, new))


def _together(origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
    every = merged(each.every() for each in origins)
    return ColumnOrigins({}, every, merged(each.time for each in origins))


def _fields(node: KeyedProcessNode) -> dict[str, Any]:
    names = ("uid", "keys", "function", "returns", "states")
    return {name: getattr(node, name) for name in names}
