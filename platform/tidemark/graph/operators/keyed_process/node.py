"""The node of a keyed process function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from tidemark.graph.model.nodes import Expression
from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.graph.operators.emitting import EmittingNode
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.semantics.keyed_process.declarations import StateDeclaration

PROCESS_BATCH: Final = "process_batch"
"""The method of a function that takes elements in batches."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyedProcessNode(EmittingNode):
    """A function that is called for each element and for each timer of a key, with the key's states.

    ``fields`` says that the states are those of a dataclass.
    """

    keys: tuple[tuple[str, Expression], ...]
    states: tuple[tuple[str, StateDescriptor], ...] = ()
    fields: bool = False

    KIND: ClassVar[str] = "keyed_process"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def element_ports(self) -> tuple[str, ...]:
        """The ports whose elements the function is called with, in the order of its methods: all but that of a broadcast stream."""
        return self.PORTS[: len(self.methods)]

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``elements``."""
        return (self.keys,)

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
