"""Two streams for one function: keyed alike, or one of them broadcast to all keys of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.errors import DefinitionError
from tidemark.graph.api.process_functions import element_node, process_node
from tidemark.graph.checks.descriptions import describe_node
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Expression, Node, OutputTag
from tidemark.graph.model.unknown_members import unknown_member
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.model.wrong_operators import without_rows
from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.graph.operators.element_process.node import BroadcastElementProcessNode
from tidemark.graph.operators.keyed_process.node import BroadcastProcessNode, ConnectedProcessNode
from tidemark.semantics.element_process.calls import Method

if TYPE_CHECKING:
    from tidemark.graph.api.keyed_stream import KeyedStream
    from tidemark.graph.api.streams import Stream
    from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor

Keys = tuple[tuple[str, Expression], ...]


@checked_methods()
@without_rows("broadcast stream")
@dataclass(frozen=True, eq=False, kw_only=True)
class BroadcastStream:
    """A stream whose rows write a map that all keys of another stream read; made by ``Stream.broadcast``."""

    node: Node
    spec: BroadcastSpec
    place: str

    def __repr__(self) -> str:
        return f"<BroadcastStream {self.spec.name}: {shortened(describe_node(self.node))}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "broadcast stream", dir(self))


@checked_methods()
@without_rows("connected stream")
@dataclass(frozen=True, eq=False, kw_only=True)
class ConnectedStreams:
    """Two streams that are keyed alike; made by ``KeyedStream.connect``."""

    first: Node
    second: Node
    keys: Keys
    second_keys: Keys
    place: str

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.keys)
        return f"<ConnectedStreams by {names}: {shortened(describe_node(self.first))}; {shortened(describe_node(self.second))}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "connected stream", dir(self))

    def process(
        self,
        function: object,
        *,
        returns: str | type,
        state: Mapping[str, StateDescriptor] | type | None = None,
        side_outputs: Mapping[OutputTag, str | type] | None = None,
        on_error: OutputTag | None = None,
    ) -> Stream:
        """Call ``process1`` for elements of the first stream and ``process2`` for those of the second, with the state of their key.

        Elements of a key come in order of their event time, whatever their stream; of those of one time the first stream's come first.

        Args:
            function: an object, or a class, with ``process1(element, ctx)`` and ``process2(element, ctx)``; the rest is as for
                ``KeyedStream.process``.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            state: states beside those that are class attributes of the function.
            side_outputs: the tags that ``ctx.output(tag, row)`` is called with, with the DDL of their rows, or a dataclass.
            on_error: takes elements whose call raises, as ``input`` (``first`` or ``second``), ``element`` (JSON) and ``error``.

        Raises:
            DefinitionError: as ``KeyedStream.process``; or the keys are of other types.
        """
        from tidemark.graph.api.streams import Stream

        made = process_node(
            ConnectedProcessNode,
            (self.first, self.second),
            self.keys,
            function,
            returns=returns,
            state=state,
            side_outputs=side_outputs,
            on_error=on_error,
            place=call_site(),
            second_keys=self.second_keys,
        )
        return Stream(made)


@checked_methods()
@without_rows("connected stream")
@dataclass(frozen=True, eq=False, kw_only=True)
class BroadcastConnectedStream:
    """A keyed stream, and a broadcast one; made by ``KeyedStream.connect``."""

    node: Node
    keys: Keys
    broadcast: BroadcastStream
    place: str

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.keys)
        return f"<BroadcastConnectedStream by {names}: {shortened(describe_node(self.node))}; {self.broadcast!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "connected stream", dir(self))

    def process(
        self,
        function: object,
        *,
        returns: str | type,
        state: Mapping[str, StateDescriptor] | type | None = None,
        side_outputs: Mapping[OutputTag, str | type] | None = None,
        on_error: OutputTag | None = None,
    ) -> Stream:
        """Call ``process`` for each element of the keyed stream, which reads the map by ``ctx.broadcast[name]``.

        An epoch applies the rows of the broadcast stream before it calls the function. The map is part of the operator's state.

        Args:
            function: as for ``KeyedStream.process``; so are the other arguments.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            state: states beside those that are class attributes of the function.
            side_outputs: the tags that ``ctx.output(tag, row)`` is called with, with the DDL of their rows, or a dataclass.
            on_error: takes elements whose call raises, with the error in a column ``error``.

        Raises:
            DefinitionError: as ``KeyedStream.process``; or the broadcast stream lacks columns of the map.
        """
        from tidemark.graph.api.streams import Stream

        made = process_node(
            BroadcastProcessNode,
            (self.node, self.broadcast.node),
            self.keys,
            function,
            returns=returns,
            state=state,
            side_outputs=side_outputs,
            on_error=on_error,
            place=call_site(),
            broadcast=self.broadcast.spec,
        )
        return Stream(made)


@checked_methods()
@without_rows("connected stream")
@dataclass(frozen=True, eq=False, kw_only=True)
class BroadcastConnectedElements:
    """A stream without keys, and a broadcast one; made by ``Stream.connect``.

    Functions take an element and the context, and read the map by ``ctx.broadcast[name]``. An epoch applies the rows of the broadcast
    stream before it calls them. The map is state: name the operator with ``.uid("...")``.
    """

    node: Node
    broadcast: BroadcastStream
    place: str

    def __repr__(self) -> str:
        return f"<BroadcastConnectedElements: {shortened(describe_node(self.node))}; {self.broadcast!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "connected stream", dir(self))

    def process(
        self,
        function: object,
        *,
        returns: str | type,
        side_outputs: Mapping[OutputTag, str | type] | None = None,
        on_error: OutputTag | None = None,
    ) -> Stream:
        """Call a function for each element; it emits any number of rows, also to side outputs.

        Args:
            function: as for ``Stream.process``; so are the other arguments.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            side_outputs: the tags that ``ctx.output(tag, row)`` is called with, with the DDL of their rows, or a dataclass.
            on_error: takes elements whose call raises, with the error in a column ``error``.

        Raises:
            DefinitionError: as ``Stream.process``; or the broadcast stream lacks columns of the map.
        """
        return self._made("process", function, call_site(), returns=returns, side_outputs=side_outputs, on_error=on_error)

    def map(self, function: object, *, returns: str | type, on_error: OutputTag | None = None) -> Stream:
        """Turn each element into one row.

        Args:
            function: takes the element, a dict, and the context; returns a dict. Or an object, or a class, with ``map(element, ctx)``.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            on_error: takes elements whose call raises, with the error in a column ``error``.

        Raises:
            DefinitionError: as ``process``.
        """
        return self._made("map", function, call_site(), returns=returns, on_error=on_error)

    def flat_map(self, function: object, *, returns: str | type, on_error: OutputTag | None = None) -> Stream:
        """Turn each element into any number of rows.

        Args:
            function: takes the element, a dict, and the context; returns or yields dicts. Or an object, or a class, with
                ``flat_map(element, ctx)``.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            on_error: takes elements whose call raises, with the error in a column ``error``.

        Raises:
            DefinitionError: as ``process``.
        """
        return self._made("flat_map", function, call_site(), returns=returns, on_error=on_error)

    def filter(self, function: object, *, on_error: OutputTag | None = None) -> Stream:
        """Keep the elements for which a function returns true.

        Args:
            function: takes the element, a dict, and the context; returns a bool. Or an object, or a class, with ``filter(element, ctx)``.
            on_error: takes elements whose call raises, with the error in a column ``error``.

        Raises:
            DefinitionError: as ``process``.
        """
        return self._made("filter", function, call_site(), on_error=on_error)

    def _made(self, method: Method, function: object, place: str, *, returns: object = "", **more: Any) -> Stream:  # noqa: ANN401  # checked there
        from tidemark.graph.api.streams import Stream

        return Stream(
            element_node(
                BroadcastElementProcessNode,
                (self.node, self.broadcast.node),
                function,
                called=method,
                returns=returns,
                place=place,
                method=method,
                broadcast=self.broadcast.spec,
                **more,
            )
        )


def connected_elements(node: Node, other: object, place: str) -> BroadcastConnectedElements:
    """Return a stream without keys with a broadcast one.

    Raises:
        DefinitionError: the other is not broadcast.
    """
    if not isinstance(other, BroadcastStream):
        raise DefinitionError(
            f"connect is given {shortened(repr(other))}, and a stream without keys is connected to a broadcast stream only",
            fix="broadcast it: .connect(rules.broadcast('rules', key='id', value='limit DOUBLE')); or key both: "
            ".key_by('id').connect(other.key_by('id'))",
            place=place,
        )
    return BroadcastConnectedElements(node=node, broadcast=other, place=place)


def connected(stream: KeyedStream, other: object, place: str) -> ConnectedStreams | BroadcastConnectedStream:
    """Return a keyed stream with another one.

    Raises:
        DefinitionError: the other is neither keyed nor broadcast.
    """
    if isinstance(other, BroadcastStream):
        return BroadcastConnectedStream(node=stream.node, keys=stream.keys, broadcast=other, place=place)
    if not isinstance(other, type(stream)):
        raise DefinitionError(
            f"connect is given {shortened(repr(other))}, neither a keyed stream nor a broadcast one",
            fix="key it: .connect(other.key_by('id')); or broadcast it: .connect(rules.broadcast('rules', key='id', value='limit DOUBLE'))",
            place=place,
        )
    return ConnectedStreams(first=stream.node, second=other.node, keys=stream.keys, second_keys=other.keys, place=place)
