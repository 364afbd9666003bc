"""Windowed streams: the steps between ``window`` and the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.api.windows.evictors import require_evictor
from tidemark.graph.api.windows.functions import function_on_results, process_function
from tidemark.graph.api.windows.triggers import require_trigger
from tidemark.graph.checks.descriptions import describe_node
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Expression, Node, OutputTag
from tidemark.graph.model.unknown_members import unknown_member
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.model.wrong_operators import without_rows
from tidemark.graph.operators.window.descriptions import describe_assigner
from tidemark.graph.operators.window.node import WindowFunction, WindowNode
from tidemark.graph.operators.window.reduce import REDUCED
from tidemark.graph.operators.window.reduce_checks import python_reduction, sql_reduction
from tidemark.graph.operators.window.trigger_rules import discarding
from tidemark.semantics.process.evictors import Evictor
from tidemark.semantics.triggers.builtin_triggers import PurgingTrigger
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.windows.windows import WindowAssigner

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


@checked_methods()
@without_rows("windowed stream")
@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedStream:
    """Elements in windows, per key if there are keys; made by ``window`` or ``window_all``.

    First come, in any order, the settings of firing and lateness: ``trigger``, ``evictor``, ``discarding`` or ``accumulating``,
    ``allowed_lateness``, ``late_to``. Then the results, which are a stream again: ``aggregate``, ``reduce`` or ``process``.
    That operator keeps state: name it with ``.uid("...")``.

    Its rows: the keys, ``window_start``, ``window_end``, the results, ``pane_timing`` (EARLY, ON_TIME or LATE), ``pane_index`` (0, 1, … per
    key and window), and for sessions ``replaces``. Their event time is the window's end less a millisecond; for count and global
    windows the greatest in the pane.
    """

    node: Node
    keys: tuple[tuple[str, Expression], ...]
    assigner: WindowAssigner
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    place: str = ""
    fires_by: Trigger | None = None
    evicts_by: Evictor | None = None
    purges: bool | None = None

    def __repr__(self) -> str:
        return f"<WindowedStream {describe_assigner(self.assigner)}: {shortened(describe_node(self.node))}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "windowed stream", dir(self))

    def allowed_lateness(self, lateness: Duration) -> WindowedStream:
        """Keep a window for this long after its end; elements that come in that time fire it again, with a LATE pane.

        Raises:
            DurationError: cannot be read or is negative.
        """
        milliseconds = to_ms(lateness, what="allowed_lateness", place=call_site())
        return dataclasses.replace(self, allowed_lateness_ms=milliseconds)

    def late_to(self, tag: OutputTag) -> WindowedStream:
        """Send late elements, which no window accepts, to a side output; without it they are counted only."""
        return dataclasses.replace(self, late_tag=tag)

    def trigger(self, trigger: Trigger) -> WindowedStream:
        """Let a trigger decide when windows fire, such as ``event_time_trigger(early=count_trigger(100))``.

        A key's window has at most one pane per epoch, whatever it returns. A custom trigger is any immutable object with the members
        of ``Trigger``.

        Raises:
            DefinitionError: not a trigger, or a second one.
        """
        place = call_site()
        required = require_trigger(trigger, "trigger", place)
        if self.fires_by is not None:
            raise DefinitionError(
                f"the windows have the trigger {self.fires_by.describe()} already, and are given {required.describe()}",
                fix="give one; tm.event_time_trigger(early=..., late=...) joins several",
                place=place,
            )
        return dataclasses.replace(self, fires_by=required)

    def evictor(self, evictor: Evictor) -> WindowedStream:
        """Let an evictor drop elements of a window before or after the process function is called, such as ``count_evictor(10)``.

        Raises:
            DefinitionError: not an evictor, or a second one.
        """
        place = call_site()
        required = require_evictor(evictor, place)
        if self.evicts_by is not None:
            raise DefinitionError("the windows have an evictor already", fix="give one .evictor(...)", place=place)
        return dataclasses.replace(self, evicts_by=required)

    def discarding(self) -> WindowedStream:
        """Drop a window's elements after each pane, so that every pane holds only elements that came since the one before.

        Raises:
            DefinitionError: ``accumulating`` was called, or ``discarding`` already.
        """
        return self._purging(purges=True)

    def accumulating(self) -> WindowedStream:
        """Keep a window's elements after each pane, so that every pane holds the whole result; the default.

        Raises:
            DefinitionError: ``discarding`` was called, or ``accumulating`` already.
        """
        return self._purging(purges=False)

    def _purging(self, *, purges: bool) -> WindowedStream:
        if self.purges is not None:
            names = {True: "discarding", False: "accumulating"}
            raise DefinitionError(f"{names[purges]}() comes after {names[self.purges]}()", fix="call one of them, once", place=call_site())
        return dataclasses.replace(self, purges=purges)

    def aggregate(self, then: WindowFunction | None = None, /, **aggregates: Aggregate) -> Stream:
        """Compute aggregates per key and window, as elements come.

        Args:
            then: from ``window_function``; makes the result rows from the aggregates' results, once per pane.
            aggregates: by result column, such as ``trips=count()``.

        Raises:
            DefinitionError: no aggregate is given, or something that is not one; trigger, evictor, lateness and windows do not go together.
            ColumnError: an aggregate reads a column that the stream does not have.
        """
        place = call_site()
        return self._made(place, aggregates=tuple(aggregates.items()), function=function_on_results(then, aggregates, place))

    def reduce(
        self,
        function: Callable[..., object] | None = None,
        /,
        *,
        columns: Sequence[str] = (),
        returns: str | None = None,
        **merges: str,
    ) -> Stream:
        """Merge the elements of each key and window two by two into one row, as they come.

        ``.reduce(fare="a.fare + b.fare", top="greatest(a.top, b.top)")``: for each column of the stream that is to be in the result,
        how it is merged, as SQL over ``a`` and ``b``, the earlier and the later row. Or in Python:
        ``.reduce(function, columns=["fare", "top"])``, where ``function(a, b)`` takes and returns dicts of these columns.

        Rows are merged in order of (event time, source position) within an epoch, and the rows of epochs in that of their first
        elements. Merging must be associative; if elements come out of order, also commutative, or the result depends on how
        the input was cut into epochs. Columns keep their types; a type without order (MAP, VARIANT) cannot be reduced in SQL.

        Args:
            function: merges two rows; free of side effects.
            columns: which columns the function is given and returns; not needed with ``returns``.
            returns: Spark DDL of these columns, where their types are not known from the stream.
            merges: SQL expression by column.

        Raises:
            DefinitionError: neither expressions nor a function, or both; trigger, evictor, lateness and windows do not go together.
            ColumnError: a column that the stream does not have, or whose type is not known.
            ExpressionError: SQL that cannot be parsed, reads anything but ``a`` and ``b``, or gives another type.
        """
        place = call_site()
        schema = schema_of(self.node)
        if function is None:
            reduced = sql_reduction(merges, columns=columns, returns=returns, schema=schema, place=place)
        else:
            reduced = python_reduction(function, merges, columns=columns, returns=returns, schema=schema, place=place)
        return self._made(place, aggregates=((REDUCED, reduced.aggregate),), reduced=reduced.columns)

    def process(self, function: Callable[..., object] | WindowFunction, returns: str | None = None) -> Stream:
        """Make result rows from all elements of each key and window, once per pane. The engine keeps the elements until then.

        Args:
            function: ``function(elements, context)`` yields dicts, as described at ``window_function``; or the result of that.
            returns: Spark DDL of the result rows' columns, where ``function`` is a plain function.

        Raises:
            DefinitionError: not a function of two arguments, ``returns`` cannot be read or is missing or given twice; trigger, evictor,
                lateness and windows do not go together.
        """
        place = call_site()
        return self._made(place, aggregates=(), function=process_function(function, returns, place))

    def _made(
        self,
        place: str,
        *,
        aggregates: tuple[tuple[str, Aggregate], ...],
        function: WindowFunction | None = None,
        reduced: tuple[tuple[str, str | None], ...] = (),
    ) -> Stream:
        from tidemark.graph.api.streams import Stream

        return Stream(
            WindowNode(
                inputs=(self.node,),
                keys=self.keys,
                assigner=self.assigner,
                aggregates=aggregates,
                allowed_lateness_ms=self.allowed_lateness_ms,
                late_to=self.late_tag,
                trigger=self._trigger_in_effect(place),
                evictor=self.evicts_by,
                function=function,
                reduced=reduced,
                place=place,
            )
        )

    def _trigger_in_effect(self, place: str) -> Trigger | None:
        if self.purges:
            return discarding(self.assigner, self.fires_by, lateness_ms=self.allowed_lateness_ms, place=place)
        if self.purges is False and isinstance(self.fires_by, PurgingTrigger):
            raise DefinitionError(
                f"accumulating() contradicts the trigger {self.fires_by.describe()}, which drops elements after each pane",
                fix="leave out accumulating(), or purging_trigger(...)",
                place=place,
            )
        return self.fires_by
