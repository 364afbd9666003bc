"""Keyed and windowed streams: the steps between ``key_by`` and ``aggregate``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.durations import to_ms
from tidemark.graph.aggregates import Aggregate
from tidemark.graph.nodes import Expression, Node, OutputTag, WindowNode
from tidemark.graph.places import user_place
from tidemark.graph.strategies import Duration
from tidemark.semantics.windows import WindowAssigner

if TYPE_CHECKING:
    from tidemark.graph.streams import Stream


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyedStream:
    """Elements grouped by key; made by ``Stream.key_by``."""

    node: Node
    keys: tuple[tuple[str, Expression], ...]
    place: str

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Put each key's elements into windows, such as ``tumbling("1 hour")``."""
        return WindowedStream(node=self.node, keys=self.keys, assigner=assigner, place=user_place())


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedStream:
    """Elements in windows, per key if there are keys; made by ``window`` or ``window_all``."""

    node: Node
    keys: tuple[tuple[str, Expression], ...]
    assigner: WindowAssigner
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    place: str = ""

    def allowed_lateness(self, lateness: Duration) -> WindowedStream:
        """Keep a window for so long after it fired; elements that come in that time fire it anew, with a LATE pane.

        Raises:
            DurationError: cannot be read or is negative.
        """
        milliseconds = to_ms(lateness, what="allowed_lateness", place=user_place())
        return dataclasses.replace(self, allowed_lateness_ms=milliseconds)

    def late_to(self, tag: OutputTag) -> WindowedStream:
        """Send elements that no window takes any more to a side output; without it they are counted only."""
        return dataclasses.replace(self, late_tag=tag)

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Compute aggregates per key and window.

        Result columns: the keys, ``window_start``, ``window_end``, the aggregates in this order, ``pane_timing``, ``pane_index``.
        The operator keeps state: name it with ``.uid("...")``.

        Raises:
            DefinitionError: no aggregate is given, or something that is not one.
            ColumnError: an aggregate reads a column that the stream does not have.
        """
        from tidemark.graph.streams import Stream

        return Stream(
            WindowNode(
                inputs=(self.node,),
                keys=self.keys,
                assigner=self.assigner,
                aggregates=tuple(aggregates.items()),
                allowed_lateness_ms=self.allowed_lateness_ms,
                late_to=self.late_tag,
                place=user_place(),
            )
        )
