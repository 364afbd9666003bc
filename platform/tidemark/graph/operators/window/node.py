"""The node of windows, and the function that may compute their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.process.evictors import Evictor
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.windows.windows import TimeDomain, WindowAssigner


@dataclass(frozen=True)
class WindowFunction:
    """A Python function over a window, run once per pane: ``function(elements, context) -> iterable of dict``.

    ``elements`` are the window's elements as dicts; with ``batches`` an iterator of ``pyarrow.RecordBatch``. Behind aggregates there is
    one element: a dict of the aggregates' results by name. ``returns`` is Spark DDL of what it yields.
    """

    function: Callable[..., object]
    returns: str
    batches: bool = False
    place: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowNode(StatefulNode):
    """Keyed windows and their results. ``keys`` empty: one window over all rows (``window_all``).

    The results of a pane are: aggregates; or, with ``reduced``, one aggregate whose result is a struct of these columns, each
    with the SQL that merges it (None: in Python); or, with ``function`` and no aggregates, its rows for all elements; or, with
    both, its rows for the aggregates' results.

    ``trigger`` None is the assigner's default: for count windows their counts, else the end of the window in its time.
    Result columns: keys, window_start, window_end, then these results, pane_timing, pane_index, and ``replaces`` where windows merge.
    """

    keys: tuple[tuple[str, Expression], ...]
    assigner: WindowAssigner
    aggregates: tuple[tuple[str, Aggregate], ...]
    allowed_lateness_ms: int = 0
    late_to: OutputTag | None = None
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    function: WindowFunction | None = None
    reduced: tuple[tuple[str, str | None], ...] = ()

    KIND: ClassVar[str] = "window"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``elements``."""
        return (self.keys,)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The tag of ``late`` rows."""
        return {} if self.late_to is None else {"late": self.late_to}

    @property
    def time_domain(self) -> TimeDomain:
        """The time domain of the windows."""
        return self.assigner.domain
