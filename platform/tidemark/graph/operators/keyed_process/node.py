"""The node of a keyed process function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from tidemark.graph.expressions.expression_text import function_name
from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.windows.windows import TimeDomain

FAILED: Final = "failed"
"""The counter of elements whose call failed."""


PROCESS_BATCH: Final = "process_batch"
"""The method of a function that takes elements in batches."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyedProcessNode(StatefulNode):
    """A function that is called for each element and for each timer of a key, with the key's states.

    ``returns`` is the DDL of its rows, ``side_outputs`` are the tags that it emits to, with the DDL of their rows; ``fields`` says that
    the states are those of a dataclass. ``on_error`` takes elements whose call fails.
    """

    keys: tuple[tuple[str, Expression], ...]
    function: object = field(repr=False)
    returns: str
    states: tuple[tuple[str, StateDescriptor], ...] = ()
    fields: bool = False
    side_outputs: tuple[tuple[OutputTag, str], ...] = ()
    on_error: OutputTag | None = None

    KIND: ClassVar[str] = "keyed_process"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``elements``."""
        return (self.keys,)

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
        """Event time; timers of processing time have their own deadlines."""
        return "event"

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the function that process an element, one for each input that has keys."""
        return (PROCESS_BATCH,) if self.by_batch else ("process",)

    @property
    def by_batch(self) -> bool:
        """Whether the function takes elements in batches."""
        return callable(getattr(self.function, PROCESS_BATCH, None))

    @property
    def declarations(self) -> dict[str, StateDeclaration]:
        """The states as the semantics knows them, by name."""
        return {name: descriptor.declaration(name) for name, descriptor in self.states}

    @property
    def function_name(self) -> str:
        """What users call the function."""
        return function_name(self.function)

    def bound_function(self) -> BoundFunction:
        """Return the function as it is called."""
        return BoundFunction(self.function, fields=self.fields, methods=self.methods)


@dataclass(frozen=True, eq=False, kw_only=True)
class ConnectedProcessNode(KeyedProcessNode):
    """A function over two inputs with keys of the same types, which share the states and timers of a key."""

    second_keys: tuple[tuple[str, Expression], ...] = ()

    KIND: ClassVar[str] = "connected_process"
    PORTS: ClassVar[tuple[str, ...]] = ("first", "second")

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The keys of both inputs; those of the second have the names of the first's."""
        return (self.keys, self.second_keys)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods for an element of either input."""
        return ("process1", "process2")

    @property
    def by_batch(self) -> bool:
        """Functions of two inputs take one element after the other."""
        return False


@dataclass(frozen=True, eq=False, kw_only=True)
class BroadcastProcessNode(KeyedProcessNode):
    """A function over an input with keys and one that writes a map, which all keys read."""

    broadcast: BroadcastSpec

    KIND: ClassVar[str] = "broadcast_process"
    PORTS: ClassVar[tuple[str, ...]] = ("elements", "broadcast")

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The keys of the first input; the second has none."""
        return (self.keys, ())


def emitted_counter(tag: OutputTag) -> str:
    """Return the name under which the rows that a function emits to a tag are counted."""
    return f"to:{tag.name}"
