"""The common part of window operators: one port, late elements, panes, and the progress of windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.spark.operators.base.contract import LATE, InputCounts, Observed, OperatorContext, OperatorEpoch, OperatorRuntime, PortInput
from tidemark.state.log.progress import LateWindow, OperatorProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


MAX_LISTED_WINDOWS = 100


@dataclass(frozen=True)
class ElementCounts:
    """Exact counts of an epoch's elements.

    ``groups`` were staged, ``refired_groups`` of them for windows that have fired already; ``late_windows`` are the newest starts of
    windows that late elements would have belonged to, ``most_late`` those with the most of them; ``shortfalls`` are those of
    the late elements, None where there are none.
    """

    accepted: int
    late: int
    groups: int
    refired_groups: int
    late_windows: tuple[int, ...]
    shortfalls: Shortfalls | None = None
    most_late: tuple[LateWindow, ...] = ()


@dataclass(frozen=True)
class Panes:
    """Panes that one firing emitted, by timing, windows that closed on time, and the starts of windows that fired again.

    ``result_rows`` is the number of result rows, where a window function returns any number per pane; None: one per pane.
    """

    on_time: int = 0
    late: int = 0
    early: int = 0
    closed: int = 0
    refired: tuple[int, ...] = ()
    result_rows: int | None = None

    @property
    def panes(self) -> int:
        """All panes."""
        return self.early + self.on_time + self.late

    @property
    def rows(self) -> int:
        """All result rows."""
        return self.panes if self.result_rows is None else self.result_rows


class WindowRuntime(OperatorRuntime):
    """A window operator of a run.

    Args:
        node: its declaration.
    """

    def __init__(self, node: WindowNode) -> None:
        super().__init__(node)
        self._window = node

    @property
    def node(self) -> WindowNode:
        """The operator's declaration."""
        return self._window

    @abstractmethod
    def begin(self, context: OperatorContext) -> WindowEpoch:
        """Return the operator at work on an epoch."""


class WindowEpoch(OperatorEpoch):
    """A window operator in one epoch.

    ``counts`` is None until there was input and its counts are known, ``panes`` until results were written.
    """

    runtime: WindowRuntime

    def __init__(self, runtime: WindowRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self.counts: ElementCounts | None = None
        self.panes: Panes | None = None

    @property
    def node(self) -> WindowNode:
        """The operator's declaration."""
        return self.runtime.node

    @property
    def _port(self) -> str:
        (port,) = self.node.ports
        return port.name

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Process an epoch's elements into state."""
        self.process_elements(inputs[self._port])

    @abstractmethod
    def process_elements(self, elements: PortInput) -> ElementCounts | None:
        """Process an epoch's elements into state; return None where the counts are known only after ``emit``."""

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of accepted and late elements."""
        return None if self.counts is None else {self._port: InputCounts(self.counts.accepted, {LATE: self.counts.late})}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the late elements."""
        if counter != LATE:
            raise ValueError(counter)
        return self.late_rows(inputs[self._port])

    @abstractmethod
    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return the late rows of this epoch's input. May be called before counts are known, or only when the late count is positive."""

    def emitted(self, observation: Observed) -> int:
        """Read the counts of written panes; return the number of rows."""
        self.panes = self.emitted_panes(observation)
        return self.panes.rows

    @abstractmethod
    def emitted_panes(self, observation: Observed) -> Panes:
        """Read the counts of written panes."""

    @property
    @abstractmethod
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that still accepts elements, by the bounds of files; None where none is open."""

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with panes by timing, and open, late and refired windows."""
        panes, counts = self.panes or Panes(), self.counts
        shortfalls = None if counts is None else counts.shortfalls
        return replace(
            common,
            panes_on_time=panes.on_time,
            panes_late=panes.late,
            oldest_open_window=self.oldest_open_window,
            late_windows=() if counts is None else counts.late_windows,
            refired_windows=panes.refired,
            panes_early=panes.early,
            windows_closed=panes.closed,
            shortfalls={} if shortfalls is None else {LATE: shortfalls},
            most_late=() if counts is None else counts.most_late,
        )
