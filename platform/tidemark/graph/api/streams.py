"""Streams: the immutable, fluent API of the graph. Every method returns a new stream and leaves the old one unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.api.changelogs import ChangelogMethods
from tidemark.graph.api.connected_streams import BroadcastConnectedElements, BroadcastStream, connected_elements
from tidemark.graph.api.group_aggregates import StreamAggregates
from tidemark.graph.api.joins import JoinMethods
from tidemark.graph.api.keyed_stream import KeyedStream
from tidemark.graph.api.process_functions import element_node
from tidemark.graph.api.temporal_joins import TemporalJoinMethods
from tidemark.graph.api.windows.windowed_stream import WindowedStream
from tidemark.graph.checks.descriptions import describe_node
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.checks.side_outputs import check_has_rows, emitter_of
from tidemark.graph.checks.validation import check_node, check_uid
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.expressions.expressions import named_expressions
from tidemark.graph.expressions.name_checks import check_tag
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import (
    ExplodeNode,
    Expression,
    FilterNode,
    FunctionNode,
    Node,
    OutputTag,
    SelectNode,
    SideOutputNode,
    SplitNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from tidemark.graph.model.unknown_members import unknown_member
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.model.wrong_operators import without_rows
from tidemark.graph.operators.async_map.node import AsyncMapNode
from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.graph.operators.keys import check_keys
from tidemark.graph.operators.window.checks import check_assigner
from tidemark.names import validate_name
from tidemark.semantics.async_map.calls import AsyncSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.semantics.windows.windows import WindowAssigner


@checked_methods()
@without_rows("stream")
@dataclass(frozen=True, eq=False)
class Stream(ChangelogMethods, JoinMethods, TemporalJoinMethods, StreamAggregates):
    """Elements with columns and an event time. Started by ``source``; ``node`` is its place in the graph.

    Expressions are SQL text over the stream's columns, or functions without arguments that return a Column and are
    called when the job runs. Each method checks what can be known at definition; see the errors of each.
    """

    node: Node

    def __post_init__(self) -> None:
        """Check the newest operator."""
        check_node(self.node)

    def __repr__(self) -> str:
        return f"<Stream: {shortened(describe_node(self.node))}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "stream", dir(self))

    def select(self, /, *columns: str, **named: Expression) -> Stream:
        """Keep exactly these columns: first the positional ones (a column, or ``"expression AS name"``), then the named.

        Raises:
            ColumnError: a column does not exist.
            ExpressionError: SQL that cannot be parsed or is not an expression over one row.
        """
        place = call_site()
        return Stream(SelectNode(inputs=(self.node,), columns=named_expressions("select", columns, named, place), place=place))

    def with_columns(self, /, **named: Expression) -> Stream:
        """Add columns, or replace those of the same name; each expression sees the columns from before.

        Raises:
            ColumnError: a column does not exist.
            ExpressionError: SQL that cannot be parsed or is not an expression over one row.
        """
        return Stream(WithColumnsNode(inputs=(self.node,), columns=tuple(named.items()), place=call_site()))

    def filter(self, condition: Expression, *, rejects_to: OutputTag | None = None) -> Stream:
        """Keep the rows for which the condition is true; send the others (false or null) to a side output, if one is named.

        Raises:
            ColumnError: a column does not exist.
            ExpressionError: the condition cannot be parsed or is not a condition.
        """
        return Stream(FilterNode(inputs=(self.node,), condition=condition, rejects_to=rejects_to, place=call_site()))

    def explode(self, expression: Expression, *, as_: str, outer: bool = False) -> Stream:
        """Make one row per item of an array, in the column ``as_`` beside all others; of a map, per entry (``key``, ``value``).

        Args:
            expression: an array or a map, such as ``"items"`` or ``"split(tags, ',')"``.
            as_: name of the new column.
            outer: keep rows whose array is empty or null, with a null item.

        Raises:
            ColumnError: a column does not exist, or ``as_`` does already.
        """
        return Stream(ExplodeNode(inputs=(self.node,), expression=expression, as_=as_, outer=outer, place=call_site()))

    def map(self, function: Callable[..., object], *, returns: str, batches: bool = False) -> Stream:
        """Turn each row into another with a Python function, run on Arrow batches.

        Args:
            function: takes a dict of the row's columns, returns a dict of the new ones. With ``batches`` it takes and
                returns a ``pyarrow.RecordBatch`` of the same length.
            returns: Spark DDL of the new columns; they replace all columns.
            batches: give the function whole batches, which is far faster.

        Raises:
            DefinitionError: ``returns`` cannot be read, or the function is not callable.
        """
        return Stream(FunctionNode(inputs=(self.node,), kind="map", function=function, schema=returns, batches=batches, place=call_site()))

    def flat_map(self, function: Callable[..., object], *, returns: str) -> Stream:
        """Turn each row into any number of others; the function takes a dict and returns an iterable of dicts.

        Raises:
            DefinitionError: ``returns`` cannot be read, or the function is not callable.
        """
        return Stream(FunctionNode(inputs=(self.node,), kind="flat_map", function=function, schema=returns, place=call_site()))

    def process(
        self,
        function: object,
        *,
        returns: str | type,
        side_outputs: Mapping[OutputTag, str | type] | None = None,
        on_error: OutputTag | None = None,
    ) -> Stream:
        """Call a function for each element; it emits any number of rows, also to side outputs. State and timers need ``key_by``.

        Args:
            function: an object, or a class, with ``process(element, ctx)`` and, where needed, ``open(ctx)`` and ``close()``; or a plain
                function of both. It returns or yields dicts. ``ctx`` has ``timestamp``, ``current_watermark()``,
                ``current_processing_time()`` and ``output(tag, row)``.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            side_outputs: the tags that ``ctx.output(tag, row)`` is called with, with the DDL of their rows, or a dataclass.
            on_error: takes elements whose call raises, with the error in a column ``error``; what the call emitted is dropped.

        Raises:
            DefinitionError: not a function of these, ``returns`` cannot be read, or a tag is used twice.
        """
        return Stream(
            element_node(
                ElementProcessNode,
                (self.node,),
                function,
                called="process",
                returns=returns,
                side_outputs=side_outputs,
                on_error=on_error,
                place=call_site(),
            )
        )

    def async_map(
        self,
        function: object,
        *,
        returns: str | type,
        ordered: bool = True,
        timeout: Duration = "30 seconds",
        capacity: int = 100,
        retries: int = 3,
        backoff: Duration = "1 second",
        on_error: OutputTag | None = None,
    ) -> Stream:
        """Turn each row into another with an asynchronous function, such as a request to a service, many at once.

        The results are written once per epoch, however many outputs read them. An epoch that fails and is repeated calls the function
        again: calls are made at least once, results are there exactly once.

        Args:
            function: ``async def function(row)``, or an object or a class with ``async def invoke(self, row)`` (or ``__call__``) and,
                where needed, ``open()`` and ``close()``, which may be asynchronous and run once per task. It returns a dict.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            ordered: whether a task writes rows in the order of its elements; else as they are ready. Their event times are the same.
            timeout: the time of one element, all its attempts and pauses together.
            capacity: the number of elements that a task has in flight at once.
            retries: how often a call that raises is repeated.
            backoff: the pause before the first repetition; each further one is twice as long.
            on_error: takes elements for which the last attempt raised, or whose time ran out, with the error in a column ``error``.

        Raises:
            DefinitionError: not an async function of one argument, ``returns`` cannot be read, or a number is out of range.
        """
        place = call_site()
        settings = AsyncSettings(
            ordered=ordered,
            timeout_ms=to_ms(timeout, what="async_map timeout", minimum=1, place=place),
            capacity=capacity,
            retries=retries,
            backoff_ms=to_ms(backoff, what="async_map backoff", place=place),
        )
        return Stream(
            element_node(
                AsyncMapNode,
                (self.node,),
                function,
                called="async_map",
                returns=returns,
                on_error=on_error,
                place=place,
                settings=settings,
            )
        )

    def connect(self, other: BroadcastStream) -> BroadcastConnectedElements:
        """Have functions over this stream read the map that a broadcast stream writes.

        Raises:
            DefinitionError: the other stream is not a broadcast one.
        """
        place = call_site()
        check_has_rows(self.node, place)
        return connected_elements(self.node, other, place)

    def transform(self, function: Callable[[DataFrame], DataFrame], *, columns: tuple[str, ...] | list[str] | None = None) -> Stream:
        """Apply a function from DataFrame to DataFrame, called once per epoch, to an epoch's rows.

        The function works within one row or one epoch, and must keep the column ``__tm_meta``, which times the rows.

        Args:
            function: the function, ``DataFrame`` to ``DataFrame``.
            columns: names of the resulting columns, so that later expressions can be checked; None leaves them unknown.
        """
        names = None if columns is None else tuple(columns)
        return Stream(TransformNode(inputs=(self.node,), function=function, columns=names, place=call_site()))

    def split(self, branches: Mapping[OutputTag, Expression], *, otherwise: OutputTag | None = None) -> Stream:
        """Send each row to the first branch whose condition is true; take the branches with ``side_output(tag)``.

        Args:
            branches: condition by tag, tried in order.
            otherwise: tag for the rows that no branch takes; without it they are dropped and counted.

        Raises:
            ColumnError: a column does not exist.
        """
        place = call_site()
        if not isinstance(branches, Mapping):
            raise DefinitionError(
                f"split is given {branches!r}, not conditions by tag", fix="give {tm.OutputTag('big'): 'fare > 100', ...}", place=place
            )
        return Stream(SplitNode(inputs=(self.node,), branches=tuple(branches.items()), otherwise=otherwise, place=place))

    def union(self, *others: Stream) -> Stream:
        """Take all rows of this stream and others, matched by column name; the watermark is the least of theirs.

        Raises:
            DefinitionError: the streams have different columns.
        """
        place = call_site()
        for other in others:
            if not isinstance(other, Stream):
                raise DefinitionError(
                    f"union is given {shortened(repr(other))}, not a stream", fix="pass streams: .union(other, ...)", place=place
                )
        return Stream(UnionNode(inputs=(self.node, *(other.node for other in others)), place=place))

    def key_by(self, /, *columns: str, **named: Expression) -> KeyedStream:
        """Group elements by key: columns, or named expressions. A null key is a key like any other.

        Raises:
            ColumnError: a column does not exist.
            DefinitionError: no column is named.
        """
        place = call_site()
        if not columns and not named:
            raise DefinitionError("key_by() names no column", fix="name at least one, or use .window_all(...)", place=place)
        check_has_rows(self.node, place)
        keys = named_expressions("key_by", columns, named, place)
        check_keys(keys, schema_of(self.node), place)
        return KeyedStream(node=self.node, keys=keys, place=place)

    def broadcast(self, name: str, *, key: Expression, value: str, removes: Expression | None = None) -> BroadcastStream:
        """Have the rows of this stream write a map that all keys of another stream read.

        Rows are applied in order of their event time; a later row of a key replaces an earlier one.

        Args:
            name: of the map: ``ctx.broadcast[name]``.
            key: a column, or an expression, by which the map is read.
            value: Spark DDL of the columns of this stream that a value has: it is a dict of these.
            removes: a condition; a row for which it is true removes its key.

        Raises:
            InvalidNameError: the name is not allowed.
        """
        place = call_site()
        validate_name("broadcast map", name, place=place)
        check_has_rows(self.node, place)
        return BroadcastStream(node=self.node, spec=BroadcastSpec(name, key, value, removes), place=place)

    def window_all(self, assigner: WindowAssigner) -> WindowedStream:
        """Put all elements, whatever their key, into windows.

        Raises:
            DefinitionError: not a window assigner.
        """
        place = call_site()
        check_assigner(assigner, place)
        return WindowedStream(node=self.node, keys=(), assigner=assigner, place=place)

    def side_output(self, tag: OutputTag) -> Stream:
        """Return the rows that this operator, or one before it, emits under a tag: late, rejected, malformed, split.

        Raises:
            DefinitionError: nothing before this point emits the tag.
        """
        place = call_site()
        check_tag(tag, "side_output", place)
        return Stream(SideOutputNode(inputs=(emitter_of(self.node, tag, place),), tag=tag, place=place))

    def uid(self, uid: str) -> Stream:
        """Name the operator permanently: its state is found by this name after every change of the job.

        Side outputs belong to the stream this returns, so take them from it.

        Raises:
            InvalidNameError: the uid is not allowed.
        """
        place = call_site()
        check_uid(self.node, uid, place)
        return Stream(dataclasses.replace(self.node, uid=uid))
