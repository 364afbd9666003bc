"""The interface of a stateful operator in the engine: its runtime, created once per run, and the operator in one epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from tidemark.graph.model.nodes import StatefulNode
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, SourceState
from tidemark.spark.prepared.prepared_pass import Build, PreparedPasses
from tidemark.spark.prepared.prepared_plan import PassRows
from tidemark.state.log.epoch_intent import TableVersion
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

    from tidemark.spark.columns.row_counts import RowCounter

LATE = "late"
"""The counter of late rows, which has its own field in progress."""


def run_in_order(work: Sequence[Callable[[], None]]) -> None:
    """Run work items one after the other."""
    for each in work:
        each()


@dataclass(frozen=True)
class PortInput:
    """The rows of one port in an epoch, made into a DataFrame where that is needed.

    With ``counter``, for a runtime that ``can_fuse_counts``, they are all rows with their status, and the counter gets its values from
    the operator's pass; without, only the passing rows. ``build`` makes them from ``numbers``. ``files`` are the ones that they are read
    from, where they are few, and ``several`` those of each scan, where there is more than one. The DataFrames of one ``shape`` differ
    between epochs only by files and numbers. Of a pass over them that was prepared, ``set_counts`` takes the values of the observations
    that ``build`` returned, in their order. ``alone`` is whether they are computed from their source's files at each use: no frame that is
    kept in memory is behind them, which another port may read at the same time, and whose counts would then be those of neither.
    ``scanned`` are the same rows with the files that they are read from, where these are many, so that a pass over them has several tasks;
    ``small`` is whether these files are small, so that one task reads them as fast.
    """

    build: Build
    counter: RowCounter | None = None
    numbers: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    shape: str = ""
    set_counts: Callable[[Iterator[Mapping[str, object]]], None] | None = None
    several: tuple[tuple[str, ...], ...] = ()
    alone: bool = False
    scanned: PortInput | None = None
    small: bool = False

    @property
    def scans(self) -> tuple[tuple[str, ...], ...]:
        """The files of each scan."""
        return self.several or (self.files,)

    @cached_property
    def rows(self) -> DataFrame:
        """The rows."""
        rows, _ = self.build(self.numbers)
        return rows

    def take_counts(self, observed: Sequence[Mapping[str, object]]) -> None:
        """Pass on the values of the observations that ``build`` returned, as a prepared pass found them."""
        if self.set_counts is not None and observed:
            self.set_counts(iter(observed))


class Observed(Protocol):
    """Values that a pass observed, known once it ran: an ``Observation``, or what took its place."""

    @property
    def get(self) -> Mapping[str, Any]:
        """The values by name."""
        ...


@dataclass(frozen=True)
class Results:
    """Results of an operator, made into a DataFrame where that is needed.

    ``build`` makes it from ``numbers`` and an observation for the counts that ``emitted`` reads. ``files`` are the ones that it is read
    from, where they have few rows, ``several`` those of each scan where there is more than one, and the DataFrames of one ``shape`` differ
    between epochs only by files and numbers. ``read`` returns the visible columns without a Spark job, where the driver can read them. With
    ``several_tasks`` they are put into one task only for a prepared pass: functions in Python that take them may be slow. ``many`` are the
    files that it is read from, where they have many rows, which several tasks write.
    """

    build: Callable[[Sequence[int], Observation], DataFrame]
    numbers: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    shape: str = ""
    several: tuple[tuple[str, ...], ...] = ()
    read: Callable[[], PassRows | None] | None = None
    several_tasks: bool = False
    many: tuple[str, ...] = ()

    @property
    def scans(self) -> tuple[tuple[str, ...], ...]:
        """The files of each scan."""
        return self.several or (self.files,)


def rows_of(results: DataFrame | Results, observation: Observation) -> DataFrame:
    """Return results as a DataFrame, with the observation that ``emit`` was called with."""
    return results.build(results.numbers, observation) if isinstance(results, Results) else results


@dataclass(frozen=True)
class InputCounts:
    """Exact counts of the rows of one port: those accepted, and the others by the name of their counter (``late``)."""

    accepted: int
    others: Mapping[str, int]

    @property
    def rows(self) -> int:
        """All input rows."""
        return self.accepted + sum(self.others.values())


@dataclass(frozen=True)
class OperatorContext:
    """The context of an operator in an epoch: the session, the job's folder, the state after the epoch before, the current epoch.

    ``processing_time`` is the epoch's; ``ends`` is whether no input comes after it; ``native`` whether the job runs no Python function, so
    that few rows of state are read in one task. ``prepared`` are the run's passes over few rows, whose plans are kept between epochs.
    ``port_types`` returns the columns of the inputs, by port, also of those without rows; nothing where state is only read.
    ``table`` is the version of the table that the operator reads, as the epoch's plan fixed it.
    ``at_once`` does work, each a Spark job of its own, and returns when all is done; by default one after the other.
    """

    spark: SparkSession
    store: JobStore
    uid: str
    before: OperatorState
    definition: Mapping[str, object]
    epoch: int
    processing_time: int
    ends: bool = False
    native: bool = False
    prepared: PreparedPasses = field(default_factory=PreparedPasses)
    table: TableVersion | None = None
    port_types: Callable[[], Mapping[str, StructType]] = dict
    at_once: Callable[[Sequence[Callable[[], None]]], None] = run_in_order

    @property
    def job(self) -> str:
        """The job's name, which is that of its folder."""
        return self.store.uri.rstrip("/").rpartition("/")[2]


class OperatorRuntime(ABC):
    """An operator of a run, without state of an epoch.

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
        """Whether rows that were filtered out before the operator can be grouped together with the others, and counted there."""
        return False

    @property
    def lacks_types(self) -> bool:
        """Whether it has to know the types of inputs that have no rows in an epoch, and the graph does not say them all."""
        return False

    def set_types(self, inputs: Mapping[str, DataFrame]) -> None:
        """Set the columns of the inputs, by frames without rows; called once, before the first epoch, where it ``lacks_types``."""
        del inputs

    @abstractmethod
    def begin(self, context: OperatorContext) -> OperatorEpoch:
        """Return the operator at work on an epoch."""

    @abstractmethod
    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark, in the operator's time domain, at which something fires; None where nothing waits."""

    def plan_table(self, context: OperatorContext) -> TableVersion | None:
        """Return the version of the table that the operator reads in an epoch, None where it reads none.

        Called when the epoch is planned, not when it is replayed. A copy of the table may be staged; nothing refers to it until the plan
        names it.

        Args:
            context: of the epoch, without its table.
        """
        del context
        return None

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the processing time at which something fires even without input, None for never."""
        if self._node.time_domain == "event":
            return None
        due = self.next_timer(state)
        return None if due is None else due + 1

    def close(self) -> None:  # noqa: B027 - most kinds keep nothing in memory
        """Release what the operator keeps in memory between epochs; called at the run's end."""


class OperatorEpoch(ABC):
    """An operator in one epoch: ``process_batch`` is called if there is input, then ``emit``, ``compact`` and ``snapshot``.

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

    def advance_ports(self, sources: Mapping[str, Sequence[SourceState]]) -> None:
        """Learn how far each input is, before ``emit``; for kinds that need the watermark of one input. Nothing by default.

        Args:
            sources: the states, after this epoch, of the sources behind each port.
        """
        del sources

    @abstractmethod
    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Process an epoch's input into state.

        Args:
            inputs: by the name of the port; only of ports that have rows in this epoch.
        """

    @property
    @abstractmethod
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The counts of ports that had input; None without any, and until they are known: for some kinds that is after ``emit``."""

    @property
    def side_counts(self) -> Mapping[str, int] | None:
        """The numbers of rows of side outputs by counter, known after ``emit``; None where they are those of ``input_counts``."""
        return None

    @abstractmethod
    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of a side output. May be called before the counts are known, unless these are known only after ``emit``.

        Args:
            counter: one of the node's ``side_tags`` or ``emitted_tags``.
            inputs: passing rows by port, read a second time; only of ports that have rows in this epoch. Empty, unless the kind
                ``looks_up_side_rows``.
        """

    def read_side_rows(self, counter: str) -> PassRows | None:
        """Return the rows that ``side_rows`` returns, read by the driver, after ``emit``; None where only Spark can read them."""
        del counter
        return None

    @abstractmethod
    def emit(self, watermark: int, observation: Observation) -> DataFrame | Results | None:
        """Return the results due at a watermark, None where there cannot be any. Results may be read until ``snapshot`` is called.

        Args:
            watermark: W(n) in the operator's time domain.
            observation: for the counts that ``emitted`` reads, where a DataFrame is returned.
        """

    @property
    def knows_emitted(self) -> bool:
        """Whether ``emitted`` needs no results to have been written, since the operator counted them before."""
        return False

    @abstractmethod
    def emitted(self, observation: Observed) -> int:
        """Read the counts of written results; return the number of rows."""

    @abstractmethod
    def compact(self) -> Callable[[], None] | None:
        """Drop state that is no longer needed, after ``emit``; return further work, Spark jobs that may run in the background.

        None where nothing is left to do.
        """

    @abstractmethod
    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return the state as tables by name, the main one first; called before anything is processed, and changes nothing.

        Empty for windows: ``StoredState`` has separate methods for theirs.
        """
        return {}

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress: the fields common to all kinds, with those of this kind."""
        return common
