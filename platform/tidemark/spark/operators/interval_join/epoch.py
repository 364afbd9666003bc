"""A join that keeps the elements of both sides, in one epoch: what joins have in common, whatever pairs are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.join_node import LATE_OF, ElementJoinNode
from tidemark.semantics.joins.interval import SIDES, Side
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.spark.operators.base.contract import (
    InputCounts,
    Observed,
    OperatorContext,
    OperatorEpoch,
    OperatorRuntime,
    PortInput,
    run_in_order,
)
from tidemark.spark.operators.base.kept_rows import write_kept
from tidemark.spark.operators.base.late_metrics import observed_shortfalls
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.base.touched_times import CORRECTED, LATE_TIMES, listed_times
from tidemark.spark.operators.interval_join.columns import (
    SideColumns,
    check_key_types,
    key_columns,
    key_types,
    known_columns,
    row_types,
    state_schema,
)
from tidemark.spark.operators.interval_join.state import ElementTable
from tidemark.state.log.progress import OperatorProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ElementJoinRuntime(OperatorRuntime):
    """A join of a run; ``given`` are the columns of the sides that had rows in it.

    Args:
        node: its declaration.
    """

    def __init__(self, node: ElementJoinNode) -> None:
        super().__init__(node)
        self.join = node
        self.given: dict[Side, SideColumns] = {}
        self._types: dict[tuple[Side, str], tuple[T.StructType, SideColumns]] = {}

    def types_of(self, side: Side, given: PortInput) -> tuple[T.StructType, SideColumns]:
        """Return the types of keys and the columns of a side's rows; few rows of files of one shape have the same in each epoch."""
        place = (side, given.shape)
        if given.files and place in self._types:
            return self._types[place]
        found = key_types(self.join, side, given.rows), SideColumns(self.join, side, row_types(given.rows))
        if given.files:
            self._types[place] = found
        return found

    @property
    def allowed_lateness_ms(self) -> int | None:
        """The join's allowed lateness; None for joins that have no such setting."""
        return None


class ElementJoinEpoch(OperatorEpoch):
    """A join in one epoch."""

    runtime: ElementJoinRuntime

    def __init__(self, runtime: ElementJoinRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._counts: dict[str, InputCounts] = {}
        self._shortfalls: dict[str, Shortfalls] = {}
        self._late_times: set[int] = set()
        self._corrected: set[int] = set()

    @property
    @abstractmethod
    def elements(self) -> Mapping[Side, ElementTable]:
        """The elements of both sides."""

    @abstractmethod
    def numbers(self, side: Side) -> tuple[int, ...]:
        """Return the numbers of this epoch that ``judged`` needs."""

    @abstractmethod
    def judged(self, side: Side, rows: DataFrame, columns: SideColumns, observation: Observation, numbers: Sequence[int]) -> DataFrame:
        """Return the rows of a side that are kept, as in state.

        The observation will have the numbers ``judged`` and ``late``, ``shortfall_metrics``, and ``LATE_TIMES``.
        """

    @abstractmethod
    def is_late(self, side: Side) -> str:
        """Return SQL of whether a row of this epoch's input is late."""

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of accepted and late elements of each side."""
        return self._counts or None

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Write the accepted elements of each side that has some as state; one Spark job each, at once where elements are many."""
        given = {side: inputs[side] for side in SIDES if side in inputs}
        for side, port in given.items():
            keys, columns = self.runtime.types_of(side, port)
            self.runtime.given[side] = columns
            self._adopt(keys, columns)
        run = self.context.at_once if all(port.alone and not port.files for port in given.values()) else run_in_order
        run([partial(self._write, side, port) for side, port in given.items()])
        crash_point("state-staged")

    def _write(self, side: Side, given: PortInput) -> None:
        columns = self.runtime.given[side]

        def keep(rows: DataFrame, numbers: Sequence[int], observation: Observation) -> DataFrame:
            return self.judged(side, rows, columns, observation, numbers)

        numbers = self.numbers(side)
        new, found = write_kept(self.context, self._tables, side, given, port=side, numbers=numbers, keep=keep)
        self.elements[side].new = new
        late = next(counter for counter, own in LATE_OF.items() if own == side)
        self._counts[side] = InputCounts(found["judged"] - found["late"], {late: found["late"]})
        self._late_times.update(found[LATE_TIMES] or ())
        before, lateness = self.context.before.watermark, self.runtime.allowed_lateness_ms
        shortfalls = observed_shortfalls(found, found["late"], watermark=before, allowed_lateness_ms=lateness)
        if shortfalls is not None:
            self._shortfalls[late] = shortfalls

    def _adopt(self, keys: T.StructType, columns: SideColumns) -> None:
        """Set the columns of state, those of the other side as they are stored.

        Raises:
            UserCodeError: the keys of the other side are of other types.
            StateMismatchError: a column would change its type.
        """
        schema, node = self._tables.schema, self.runtime.join
        stored = [] if schema is None else [field for field in schema if field.name in key_columns(node)]
        if stored and not self._tables.files(columns.side):
            # Of elements of this side nothing is stored, so that these types are the other's.
            check_key_types(node, T.StructType(stored), keys)
        own = state_schema(keys, [columns])
        names = {field.name.lower() for field in own}
        prefix = columns.stored("")
        others = [field for field in schema or () if field.name.lower() not in names and not field.name.startswith(prefix)]
        self._tables.adopt(T.StructType([*own, *others]))

    def known(self) -> dict[Side, SideColumns]:
        """Return the columns of both sides, as far as they are known."""
        found = dict(self.runtime.given)
        for side in SIDES:
            columns = known_columns(self.runtime.join, side, self._tables.schema) if side not in found else None
            if columns is not None:
                found[side] = columns
        return found

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the late elements of a side."""
        side = LATE_OF[counter]
        return inputs[side].where(self.is_late(side))

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress: the times and shortfalls of late elements, and the times of results that came after theirs."""
        late, corrected = self.listed(self._late_times), self.listed(self._corrected)
        return replace(common, shortfalls=dict(self._shortfalls), late_windows=late, refired_windows=corrected)

    def listed(self, times: Iterable[int]) -> tuple[int, ...]:
        """Return what progress lists of the times of late or of corrected rows."""
        return listed_times(times)

    def emitted(self, observation: Observed) -> int:
        """Return the number of results."""
        self._corrected.update(observation.get.get(CORRECTED) or ())
        return int(observation.get["results"])

    def compact(self) -> Callable[[], None] | None:
        """Drop files of which nothing is needed any more; return the work that merges others."""
        work = [merge for side in SIDES if (merge := self.elements[side].compact(self.watermark)) is not None]
        return partial(run_in_order, work) if work else None
