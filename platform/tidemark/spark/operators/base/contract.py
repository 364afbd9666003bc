"""What a window operator is to an epoch: a step of the run, and the step at work on one epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.graph.model.nodes import WindowNode
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.state.log.records import OperatorState
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

    from tidemark.spark.columns.tallies import Tally

MAX_LISTED_WINDOWS = 100


@dataclass(frozen=True)
class InputCounts:
    """Exact counts of one pass.

    ``groups`` were staged, ``refired_groups`` of them for windows that have fired already; ``late_windows`` are the starts of
    windows that late rows would have belonged to, the newest ones.
    """

    accepted: int
    late: int
    groups: int
    refired_groups: int
    late_windows: tuple[int, ...]


@dataclass(frozen=True)
class Emitted:
    """Panes that one firing emitted by timing, windows that had theirs on time, and the starts of windows that fired again.

    ``result_rows`` are the result rows, where a window function makes any number of them of a pane; None: one of each.
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


@dataclass(frozen=True)
class OperatorContext:
    """Where and when an operator works: the session, the job's folder, the state after the epoch before, the epoch at hand.

    ``processing_time`` is the epoch's; ``ends`` says that no input comes after it.
    """

    spark: SparkSession
    store: JobStore
    uid: str
    before: OperatorState
    definition: Mapping[str, object]
    epoch: int
    processing_time: int
    ends: bool = False


class OperatorRuntime(ABC):
    """An operator of a run: everything about it that no epoch changes.

    Args:
        node: its declaration.
    """

    def __init__(self, node: WindowNode) -> None:
        self.node = node

    @property
    def can_fuse_counts(self) -> bool:
        """Whether rows that dropped out before the window can be grouped beside the others, and tallied there."""
        return False

    @property
    def late_known_after_emit(self) -> bool:
        """Whether it is known only after ``emit`` how many rows of an epoch were late, and which."""
        return False

    @abstractmethod
    def begin(self, setting: OperatorContext) -> OperatorEpoch:
        """Return the operator at work on an epoch."""

    @abstractmethod
    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark, in the windows' domain, at which something is to fire; None where nothing waits."""

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the processing time at which something is to fire even without input, None for never."""
        if self.node.assigner.domain == "event":
            return None
        due = self.next_timer(state)
        return None if due is None else due + 1


class OperatorEpoch(ABC):
    """An operator at work on one epoch: ``process_batch`` if there is input, then ``emit``, then ``compact``, then ``snapshot``.

    ``input_counts`` is None until there was input, and for a step that ``late_known_after_emit`` until then; ``watermark`` is W(n-1) until
    ``emit`` is called with W(n).
    """

    def __init__(self, step: OperatorRuntime, setting: OperatorContext) -> None:
        self.step = step
        self.setting = setting
        self.input_counts: InputCounts | None = None
        self.watermark = setting.before.watermark

    @property
    def node(self) -> WindowNode:
        """The operator's declaration."""
        return self.step.node

    def watermark_of(self, event_time: int) -> int:
        """Return W(n) in the domain of the operator's windows, given that of its inputs."""
        if self.node.assigner.domain == "event":
            return event_time
        return MAX_WATERMARK if self.setting.ends else max(self.setting.before.watermark, self.setting.processing_time - 1)

    @abstractmethod
    def process_batch(self, rows: DataFrame, tally: Tally | None = None) -> InputCounts | None:
        """Take an epoch's input into state; returns None where the counts are known only when it has fired.

        Args:
            rows: living rows; with ``tally``, for a runtime that ``can_fuse_counts``, all of them with their verdicts.
            tally: gets its figures from the same pass.
        """

    @abstractmethod
    def side_rows(self, rows: DataFrame) -> DataFrame:
        """Return which rows of the epoch's input no window took; asked where some were counted, or before that."""

    @abstractmethod
    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the panes due at a watermark, None where there cannot be any. What it returns is written once.

        Args:
            watermark: W(n) in the windows' domain.
            observation: for the counts that ``emitted`` reads.
        """

    @abstractmethod
    def emitted(self, observation: Observation) -> Emitted:
        """Read the counts of panes that were written."""

    @abstractmethod
    def compact(self) -> Callable[[], None] | None:
        """Do at once what costs nothing for the state's upkeep, after firing; return the rest, Spark jobs that may run beside others.

        None where nothing is left to do.
        """

    @abstractmethod
    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""

    @property
    @abstractmethod
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that still takes elements, as far as the files' bounds tell; None where none is open."""


def bounded(watermark: int) -> int:
    """Return a watermark, or a time made of one, within what a watermark can be."""
    return max(MIN_WATERMARK, min(MAX_WATERMARK, watermark))


def in_turn(work: Sequence[Callable[[], None]]) -> None:
    """Do one thing after the other."""
    for each in work:
        each()
