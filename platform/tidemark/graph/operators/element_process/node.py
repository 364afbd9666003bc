"""The nodes of functions over elements without keys: alone, and with a map that a broadcast stream writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.graph.operators.emitting import EmittingNode
from tidemark.semantics.element_process.calls import Method


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementProcessNode(EmittingNode):
    """A function that is called for each element, without state.

    ``method`` is what the function is.
    """

    method: Method = "process"

    KIND: ClassVar[str] = "element_process"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def called(self) -> str:
        """The name of the method that calls the function."""
        return self.method

    @property
    def keeps_elements(self) -> bool:
        """Whether its rows are elements, unchanged."""
        return self.method == "filter"


@dataclass(frozen=True, eq=False, kw_only=True)
class BroadcastElementProcessNode(ElementProcessNode):
    """A function over elements, and an input that writes a map, which all calls read."""

    broadcast: BroadcastSpec

    KIND: ClassVar[str] = "broadcast_element_process"
    PORTS: ClassVar[tuple[str, ...]] = ("elements", "broadcast")
