"""The node of asynchronous enrichment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.semantics.async_map.calls import AsyncSettings
from tidemark.semantics.element_process.calls import Method


@dataclass(frozen=True, eq=False, kw_only=True)
class AsyncMapNode(ElementProcessNode):
    """An asynchronous function that turns each element into one row."""

    method: Method = "map"
    settings: AsyncSettings = field(default_factory=AsyncSettings)

    KIND: ClassVar[str] = "async_map"

    @property
    def called(self) -> str:
        """The name of the method that calls the function."""
        return "async_map"
