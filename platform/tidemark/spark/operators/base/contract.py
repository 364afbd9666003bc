"""What a stateful operator is to an epoch: its runtime, made once per run, and the operator at work on one epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.graph.model.nodes import StatefulNode
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

    from tidemark.spark.columns.row_counts import RowCounter

LATE = "late"
"""The counter of rows that came after their time; it has a field of its own in progress."""


@dataclass(frozen=True)
class PortInput:
    """The rows of one port in an epoch.

    With ``counter``, for a runtime that ``can_fuse_counts``, they are all rows with their verdicts, and the tally gets its figures from
    the pass that takes them in; without, only the rows that are alive.
    """

    rows: DataFrame
    counter: RowCounter | None = None


@dataclass(frozen=True)
class InputCounts:
    """What became of the rows of one port: exact counts of those accepted, and of the others by the name of their counter (``late``)."""

    accepted: int
    others: Mapping[str, int]

    @property
    def rows(self) -> int:
        """All rows that came in."""
        return self.accepted + sum(self.others.values())


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

    def __init__(self, node: StatefulNode) -> None:
        self._node = node

    @property
    def node(self) -> StatefulNode:
        """The operator's declaration."""
        return self._node

    @property
    def can_fuse_counts(self) -> bool:
        """Whether rows that dropped out before the operator can be grouped beside the others, and tallied there."""
        return False

    @abstractmethod
    def begin(self, context: OperatorContext) -> OperatorEpoch:
        """Return the operator at work on an epoch."""

    @abstractmethod
    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark, in the operator's time domain, at which something is to fire; None where nothing waits."""

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the processing time at which something is to fire even without input, None for never."""
        if self._node.time_domain == "event":
            return None
        due = self.next_timer(state)
        return None if due is None else due + 1


class OperatorEpoch(ABC):
    """An operator at work on one epoch: ``process_batch`` if there is input, then ``emit``, ``compact`` and ``snapshot``.

    ``watermark`` is W(n-1) until ``emit`` is called with W(n).
    """

    def __init__(self, runtime: OperatorRuntime, context: OperatorContext) -> None:
        self.runtime = runtime
        self.context = context
        self.watermark = context.before.watermark

    @property
    def node(self) -> StatefulNode:
        """The operator's declaration."""
        return self.runtime.node

    def watermark_of(self, event_time: int) -> int:
        """Return W(n) in the operator's time domain, given that of its inputs."""
        if self.runtime.node.time_domain == "event":
            return event_time
        return MAX_WATERMARK if self.context.ends else max(self.context.before.watermark, self.context.processing_time - 1)

    @abstractmethod
    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Take an epoch's input into state.

        Args:
            inputs: by the name of the port; only of ports that have rows in this epoch.
        """

    @property
    @abstractmethod
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The counts of ports that had input; None without any, and until they are known: for some kinds that is after ``emit``."""

    @abstractmethod
    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of the epoch's input that a counter is of. May be called before the counts are known.

        Args:
            counter: one of the node's ``side_tags``.
            inputs: living rows by port, read a second time; only of ports that have rows in this epoch.
        """

    @abstractmethod
    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the results due at a watermark, None where there cannot be any. They may be read until ``snapshot`` is called.

        Args:
            watermark: W(n) in the operator's time domain.
            observation: for the counts that ``emitted`` reads.
        """

    @abstractmethod
    def emitted(self, observation: Observation) -> int:
        """Read the counts of results that were written; return how many rows they are."""

    @abstractmethod
    def compact(self) -> Callable[[], None] | None:
        """Do at once what costs nothing to keep the state small, after ``emit``; return the rest, Spark jobs that may run beside others.

        None where nothing is left to do.
        """

    @abstractmethod
    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return what is kept, as tables by name, the main one first; nothing is changed, and nothing was processed before.

        Windows have none here: ``StoredState`` has methods of its own for theirs.
        """
        return {}

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress: what all kinds have in common, with what only this kind can say."""
        return common


def clamp_watermark(watermark: int) -> int:
    """Return a watermark, or a time made of one, within what a watermark can be."""
    return max(MIN_WATERMARK, min(MAX_WATERMARK, watermark))


def run_in_order(work: Sequence[Callable[[], None]]) -> None:
    """Do one thing after the other."""
    for each in work:
        each()
