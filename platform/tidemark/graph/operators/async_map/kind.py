"""Asynchronous enrichment as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from typing import ClassVar, cast

from tidemark.durations import format_duration
from tidemark.graph.operators.async_map.checks import check_async_function, check_settings
from tidemark.graph.operators.async_map.node import AsyncMapNode
from tidemark.graph.operators.changes import Definition
from tidemark.graph.operators.element_process.kind import ElementProcessKind, returns_of
from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.graph.operators.emitting import check_emitted
from tidemark.graph.operators.kind import Schemas


class AsyncMapKind(ElementProcessKind):
    """``stream.async_map(...)``."""

    name: ClassVar[str] = "async_map"
    noun: ClassVar[str] = "asynchronous function"
    nouns: ClassVar[str] = "asynchronous functions"

    def validate(self, node: ElementProcessNode, schemas: Schemas) -> None:
        """Check the function, its settings, and what it returns."""
        enriching = cast("AsyncMapNode", node)
        check_async_function(enriching)
        check_settings(enriching)
        check_emitted(node, node.called, schemas[0], returns=not node.keeps_elements)

    def describe(self, node: ElementProcessNode) -> str:
        """Return the function, how it is called, and what it returns."""
        settings = cast("AsyncMapNode", node).settings
        order = "in order" if settings.ordered else "in any order"
        how = f"{settings.capacity} at once, {order}, within {format_duration(settings.timeout_ms)}, {settings.retries} retries"
        return f"{super().describe(node)}, {how}"

    def describe_rows(self, node: ElementProcessNode) -> str:
        """Return who makes the rows."""
        return f"The row that `{node.function_name}` returns for each element"

    def describe_counter(self, counter: str) -> str:
        """Return what failed elements are."""
        del counter
        return "Failed elements: the last attempt raised an error, or their time ran out"

    def made_by(self, node: ElementProcessNode) -> tuple[str, str]:
        """Return the method."""
        return "async_map", f"calls {node.function_name}"

    def decode(self, definition: Definition, uid: str) -> AsyncMapNode:
        """Return a node whose function does nothing."""
        return AsyncMapNode(uid=uid, function=super().decode(definition, uid).function, returns=returns_of(definition))
