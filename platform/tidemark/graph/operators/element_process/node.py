"""The nodes of functions over elements without keys: alone, and with a map that a broadcast stream writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tidemark.graph.expressions.expression_text import function_name
from tidemark.graph.model.nodes import OutputTag, StatefulNode
from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.graph.operators.keyed_process.node import FAILED, emitted_counter
from tidemark.semantics.element_process.calls import Method
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementProcessNode(StatefulNode):
    """A function that is called for each element, without state.

    ``method`` is what the function is. ``returns`` is the DDL of its rows, empty for a filter. ``side_outputs`` are the tags that it emits
    to, with the DDL of their rows. ``on_error`` takes elements whose call fails.
    """

    function: object = field(repr=False)
    method: Method = "process"
    returns: str = ""
    side_outputs: tuple[tuple[OutputTag, str], ...] = ()
    on_error: OutputTag | None = None

    KIND: ClassVar[str] = "element_process"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The tag of ``failed`` elements."""
        return {} if self.on_error is None else {FAILED: self.on_error}

    @property
    def emitted_tags(self) -> Mapping[str, OutputTag]:
        """The tags that the function emits to."""
        return {emitted_counter(tag): tag for tag, _ in self.side_outputs}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time; there are no timers."""
        return "event"

    @property
    def called(self) -> str:
        """The name of the method that calls the function."""
        return self.method

    @property
    def keeps_elements(self) -> bool:
        """Whether its rows are elements, unchanged."""
        return self.method == "filter"

    @property
    def function_name(self) -> str:
        """What users call the function."""
        return function_name(self.function)


@dataclass(frozen=True, eq=False, kw_only=True)
class BroadcastElementProcessNode(ElementProcessNode):
    """A function over elements, and an input that writes a map, which all calls read."""

    broadcast: BroadcastSpec

    KIND: ClassVar[str] = "broadcast_element_process"
    PORTS: ClassVar[tuple[str, ...]] = ("elements", "broadcast")
