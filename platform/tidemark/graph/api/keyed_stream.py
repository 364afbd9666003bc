"""Keyed streams: what can be done with the elements of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.api.changelogs import last_of_key
from tidemark.graph.api.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams, connected
from tidemark.graph.api.group_aggregates import KeyedAggregates
from tidemark.graph.api.process_functions import process_node
from tidemark.graph.api.states import require_ttl
from tidemark.graph.api.windows.windowed_stream import WindowedStream
from tidemark.graph.checks.descriptions import describe_node
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.expressions.expression_text import function_name, shortened
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Expression, Node, OutputTag
from tidemark.graph.model.unknown_members import unknown_member
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.model.wrong_operators import without_rows
from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.graph.operators.running.node import Extreme, RunningNode
from tidemark.graph.operators.sql_state.checks import require_alone
from tidemark.graph.operators.sql_state.declaration import SqlState
from tidemark.graph.operators.sql_state.node import SqlStateNode, StateField
from tidemark.graph.operators.window.checks import check_assigner
from tidemark.graph.operators.window.reduce_checks import sql_reduction
from tidemark.semantics.windows.windows import WindowAssigner

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream
    from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
    from tidemark.semantics.keyed_process.declarations import StateTtl


@checked_methods()
@without_rows("keyed stream")
@dataclass(frozen=True, eq=False, kw_only=True)
class KeyedStream(KeyedAggregates):
    """Elements grouped by key; made by ``Stream.key_by``."""

    node: Node
    keys: tuple[tuple[str, Expression], ...]
    place: str

    def __repr__(self) -> str:
        return f"<KeyedStream by {', '.join(name for name, _ in self.keys)}: {shortened(describe_node(self.node))}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "keyed stream", dir(self))

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Put each key's elements into windows, such as ``tumbling("1 hour")``.

        Raises:
            DefinitionError: not a window assigner.
        """
        place = call_site()
        check_assigner(assigner, place)
        return WindowedStream(node=self.node, keys=self.keys, assigner=assigner, place=place)

    def process(
        self,
        function: object,
        *,
        returns: str | type | None = None,
        state: Mapping[str, StateDescriptor] | type | None = None,
        side_outputs: Mapping[OutputTag, str | type] | None = None,
        on_error: OutputTag | None = None,
    ) -> Stream:
        """Call a Python function for each element, with the state of the element's key; and when a timer of the key is due.

        With ``sql_state(...)`` in its place, which needs no other argument, the state of keys is computed by SQL, without Python.

        Elements of a key come in order of (event time, source position) within an epoch. Between two elements time goes on: timers that
        are due before the second fire before it. The operator keeps states and timers: name it with ``.uid("...")``. It must be free of
        side effects: a replayed epoch calls it again.

        Args:
            function: an object, or a class, with ``process(element, ctx)`` and, where it sets timers, ``on_timer(timestamp, ctx)``; or a
                plain function of the element and the context. ``element`` is a dict of the stream's columns, ``ctx`` a ``ProcessContext``.
                Both yield rows as dicts, or return a list of them, or nothing. ``open(ctx)`` is called once per task, ``close()`` at its
                end.
            returns: Spark DDL of the rows, or a dataclass with their columns.
            state: states beside those that are class attributes of the function: descriptors by name (``value_state`` and the like), or a
                dataclass whose fields have defaults; ``ctx.state`` has them.
            side_outputs: the tags that ``ctx.output(tag, row)`` is called with, with the DDL of their rows, or a dataclass.
            on_error: takes elements whose call raises, with the error in a column ``error``; what the call had changed and emitted is
                undone. Without it the epoch fails.

        Raises:
            DefinitionError: the function does not have these methods, ``returns`` or a state's type cannot be read, or a state is declared
                twice or has a default that could be changed.

        >>> import tidemark as tm
        >>> rides = tm.source(
        ...     "rides", tm.files("in", format="json", schema="at TIMESTAMP, car INT, fare DOUBLE"), watermarks=tm.ascending(timestamp="at")
        ... )
        >>> def running(ride, ctx):
        ...     ctx.state.total.update(ctx.state.total.value() + ride["fare"])
        ...     yield {"car": ride["car"], "total": ctx.state.total.value()}
        >>> totals = {"total": tm.value_state("DOUBLE", default=0.0)}
        >>> rides.key_by("car").process(running, returns="car INT, total DOUBLE", state=totals).uid("running")
        <Stream: process by car with running, total: value of DOUBLE, returns car INT, total DOU…>
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        if isinstance(function, SqlState):
            given = {"returns": returns, "state": state, "side_outputs": side_outputs, "on_error": on_error}
            require_alone(given, place)
            node = SqlStateNode(
                inputs=(self.node,),
                keys=self.keys,
                fields=function.fields,
                returns=function.returns,
                emit_when=function.emit_when,
                ttl=function.ttl,
                place=place,
            )
            return Stream(node)
        if returns is None:
            raise DefinitionError(
                f"process({function_name(function)}) does not say which columns the rows have",
                fix="add returns='zone INT, fare DOUBLE'",
                place=place,
            )
        made = process_node(
            KeyedProcessNode,
            (self.node,),
            self.keys,
            function,
            returns=returns,
            state=state,
            side_outputs=side_outputs,
            on_error=on_error,
            place=place,
        )
        return Stream(made)

    def connect(self, other: KeyedStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect this stream with another one for a function that sees both: one keyed alike, or a broadcast one.

        Raises:
            DefinitionError: neither a keyed stream nor a broadcast one.
        """
        return connected(self, other, call_site())

    def deduplicate(
        self,
        *,
        within: Duration | None = None,
        keep: Literal["first", "last"] = "first",
        allowed_lateness: Duration = "0 seconds",
        late_to: OutputTag | None = None,
        duplicates_to: OutputTag | None = None,
        ttl: StateTtl | None = None,
    ) -> Stream:
        """Emit a key's first element, and drop those that are less than ``within`` from one that was emitted, in event time.

        With ``keep="last"`` the result is a changelog instead: a later element of a key replaces the one before, as ``latest(by=...)`` of
        the key's columns has it; ``within`` and what belongs to it are left out then.

        The operator keeps the key and time of each emitted element, for ``within`` and the allowed lateness: name it with
        ``.uid("...")``. An element is late when its time plus the allowed lateness is not after the watermark.

        Args:
            within: for how long an element makes others duplicates, counted from itself.
            keep: which element is emitted: ``first``, in order of (event time, source position) within an epoch, or ``last``, in the order
                of the source.
            allowed_lateness: how far behind the watermark elements are still accepted or recognized as duplicates.
            late_to: takes late elements; without it they are counted only.
            duplicates_to: takes duplicates; without it they are counted only.
            ttl: with ``keep="last"``, how long a key without elements is kept.

        Raises:
            DurationError: cannot be read or is negative.
            DefinitionError: no time, another ``keep``, or an argument that belongs to the other one.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        if keep == "last":
            given = {"within": within, "late_to": late_to, "duplicates_to": duplicates_to}
            given["allowed_lateness"] = None if allowed_lateness == "0 seconds" else allowed_lateness
            _refuse_of_first(given, place)
            return Stream(last_of_key(self.node, self.keys, require_ttl(ttl, "deduplicate", place), place))
        if within is None:
            raise DefinitionError(
                f"deduplicate(keep={keep!r}) has no within, so that it would keep every key for ever",
                fix="write within='1 hour', or keep='last' for the newest element of each key",
                place=place,
            )
        if ttl is not None:
            raise DefinitionError(
                f"deduplicate(keep={keep!r}) takes no ttl: within says how long a key is kept", fix="leave ttl out", place=place
            )
        return Stream(
            DeduplicateNode(
                inputs=(self.node,),
                keys=self.keys,
                within_ms=to_ms(within, what="within", place=place),
                keep=keep,
                allowed_lateness_ms=to_ms(allowed_lateness, what="allowed_lateness", place=place),
                late_to=late_to,
                duplicates_to=duplicates_to,
                place=place,
            )
        )

    def running_aggregate(self, *, ttl: StateTtl | None = None, **aggregates: Aggregate) -> Stream:
        """Emit for each element the aggregates over all elements of its key so far, without windows.

        Rows have the keys and the results, and the element's event time. Elements of a key come in order of (event time, source position)
        within an epoch. The operator keeps the partial results of each key: name it with ``.uid("...")``.

        Args:
            ttl: how long the results of a key without elements are kept; from then on a key begins again. For ever by default.
            aggregates: by result column, such as ``trips=count()``; all but ``python_aggregate``.

        Raises:
            DefinitionError: no aggregate is given, or something that is not one, or one in Python.
            ColumnError: an aggregate reads a column that the stream does not have.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        lives = require_ttl(ttl, "running_aggregate", place)
        return Stream(RunningNode(inputs=(self.node,), keys=self.keys, aggregates=tuple(aggregates.items()), ttl=lives, place=place))

    def reduce(self, function: Callable[..., object] | None = None, /, *, ttl: StateTtl | None = None, **merges: str) -> Stream:
        """Emit each element merged with all before it of its key: the first as it is, then the merged row and the next one, merged.

        ``.reduce(fare="a.fare + b.fare", top="greatest(a.top, b.top)")``: for each column of the stream that is to be in the result, how
        it is merged, as SQL over ``a`` and ``b``, the row so far and the element. Rows have the keys and these columns, and the
        element's event time. Order and ``.uid("...")`` as for ``running_aggregate``. Merging need not be associative;
        columns keep their types.

        Args:
            function: none: a process function with a reducing state merges rows in Python.
            ttl: how long the row of a key without elements is kept. For ever by default.
            merges: SQL expression by column.

        Raises:
            DefinitionError: no expressions, or a function.
            ColumnError: a column that the stream does not have.
            ExpressionError: SQL that cannot be parsed, reads anything but ``a`` and ``b``, or gives another type.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        if function is not None:
            raise DefinitionError(
                f"reduce is given the function {function_name(function)}, and elements are merged in SQL here",
                fix="write .reduce(fare='a.fare + b.fare'), or a process function with tm.reducing_state",
                place=place,
            )
        made = sql_reduction(merges, columns=(), returns=None, schema=schema_of(self.node), place=place)
        fields = tuple(StateField(name, str(merge)) for name, merge in made.columns)
        lives = require_ttl(ttl, "reduce", place)
        return Stream(SqlStateNode(inputs=(self.node,), keys=self.keys, fields=fields, ttl=lives, reduced=True, place=place))

    def max_by(self, by: str, *, ttl: StateTtl | None = None) -> Stream:
        """Emit for each element the one with the greatest value of its key so far, whole; of equal ones the first, as Flink does.

        Null is less than any value, NaN greater than any number. Rows have the stream's columns, and the event time of the element that
        came. Order and ``.uid("...")`` as for ``running_aggregate``.

        Args:
            by: a column, or an SQL expression over the columns.
            ttl: how long the element of a key without further ones is kept. For ever by default.

        Raises:
            ColumnError: a column that the stream does not have, or values without an order.
        """
        return self._extreme(Extreme("max_by", by), ttl, call_site())

    def min_by(self, by: str, *, ttl: StateTtl | None = None) -> Stream:
        """Emit for each element the one with the least value of its key so far; a null loses to any value; else as ``max_by``.

        Raises:
            ColumnError: a column that the stream does not have, or values without an order.
        """
        return self._extreme(Extreme("min_by", by), ttl, call_site())

    def _extreme(self, extreme: Extreme, ttl: StateTtl | None, place: str) -> Stream:
        from tidemark.graph.api.streams import Stream

        lives = require_ttl(ttl, extreme.kind, place)
        return Stream(RunningNode(inputs=(self.node,), keys=self.keys, extreme=extreme, ttl=lives, place=place))


def _refuse_of_first(given: Mapping[str, object], place: str) -> None:
    """Refuse arguments of ``deduplicate`` that belong to ``keep="first"``."""
    for name, value in given.items():
        if value is not None:
            raise DefinitionError(
                f"deduplicate(keep='last') takes no {name}: each element of a key replaces the one before, however far apart they are",
                fix=f"leave {name} out, or write keep='first'",
                place=place,
            )
