"""Functions over elements that read a map, which a broadcast stream writes, as an operator kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

from tidemark.graph.expressions.column_origins import ColumnOrigins, merged
from tidemark.graph.model.nodes import Expression
from tidemark.graph.operators.broadcast import (
    broadcast_changes,
    broadcast_expressions,
    check_broadcast,
    decode_broadcast,
    describe_broadcast,
    encode_broadcast,
)
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names
from tidemark.graph.operators.element_process.kind import ElementProcessKind, method_of, returns_of
from tidemark.graph.operators.element_process.node import BroadcastElementProcessNode, ElementProcessNode
from tidemark.graph.operators.kind import Schemas


class BroadcastElementProcessKind(ElementProcessKind):
    """``stream.connect(rules.broadcast(...)).process(...)``, and its ``map``, ``flat_map`` and ``filter``."""

    name: ClassVar[str] = "broadcast_element_process"
    noun: ClassVar[str] = "function over elements with a broadcast stream"
    nouns: ClassVar[str] = "functions over elements with broadcast streams"
    state_noun: ClassVar[str] = "the broadcast map"
    part_noun: ClassVar[str] = "map"
    keeps_state: ClassVar[bool] = True

    def validate(self, node: ElementProcessNode, schemas: Schemas) -> None:
        """Check the function, and the broadcast map."""
        super().validate(node, schemas)
        check_broadcast(_spec_node(node).broadcast, schemas[1], node)

    def lineage(self, node: ElementProcessNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return all columns of both inputs as the origin of each result; of a filter's each its own."""
        return super().lineage(node, [origins[0] if node.keeps_elements else _together(origins)])

    def describe(self, node: ElementProcessNode) -> str:
        """Return the function, and the broadcast map."""
        return f"{super().describe(node)}, {describe_broadcast(_spec_node(node).broadcast)}"

    def expressions(self, node: ElementProcessNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the broadcast map."""
        yield from broadcast_expressions(_spec_node(node).broadcast)

    def encode(self, node: ElementProcessNode) -> dict[str, object]:
        """Return the definition, with the broadcast map."""
        return {**super().encode(node), "broadcast": encode_broadcast(_spec_node(node).broadcast)}

    def decode(self, definition: Definition, uid: str) -> ElementProcessNode:
        """Return a node with the same map, whose function does nothing."""
        return BroadcastElementProcessNode(
            uid=uid,
            function=super().decode(definition, uid).function,
            method=method_of(definition),
            returns=returns_of(definition),
            broadcast=decode_broadcast(definition),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences; a map of other keys or values cannot be read."""
        return (*super().changes(old, new, names, kept), *broadcast_changes(old, new))

    def keeps(self, node: ElementProcessNode) -> Kept:
        """Return ``partials``: the map."""
        del node
        return "partials"


def _spec_node(node: ElementProcessNode) -> BroadcastElementProcessNode:
    return cast("BroadcastElementProcessNode", node)


def _together(origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
    every = merged(each.every() for each in origins)
    return ColumnOrigins({}, every, merged(each.time for each in origins))
