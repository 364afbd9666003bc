"""The elements of one side of a join in state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.join_node import ElementJoinNode
from tidemark.graph.operators.state_names import element_column
from tidemark.semantics.joins.interval import SIDES, IntervalJoin, Side
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.base.contract import OperatorContext, run_in_order
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.interval_join.columns import ENGINE, EPOCH, key_columns
from tidemark.spark.operators.interval_join.frames import Operand, Span
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SLOTS: Final = 4
"""Files are merged with those that expire within the same part of the time that elements are kept, of so many parts.

So of what has expired no more than one part of so many stays in files with what is needed.
"""


EVENT_TIME: Final[Mapping[str, str]] = {"event_time": f"timestamp_millis({START})"}


class ElementTable:
    """The elements of one side, in one epoch.

    Args:
        tables: the operator's files.
        side: which one; also the name of the table among them.
        context: of the epoch.
        retention: how far the watermark has to pass an element's time until it is not needed any more, milliseconds.
        lifetime: how long elements are kept, milliseconds; as the retention by default.
    """

    def __init__(self, tables: StateTables, side: Side, context: OperatorContext, retention: int, lifetime: int | None = None) -> None:
        self.side = side
        self.before = tables.files(side)
        self.new: list[StateFile] = []
        self._tables = tables
        self._context = context
        self._retention = retention
        self._slot = max((retention if lifetime is None else lifetime) // SLOTS, 1)

    def operand(self, files: Sequence[StateFile]) -> Operand:
        """Return the elements of files."""
        return Operand(self.side, self.read(files), span_of(files), self.are_few(files))

    def read(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the rows of files."""
        return self._tables.read(files, self.schema)

    def are_few(self, files: Sequence[StateFile]) -> bool:
        """Return whether files have few elements together, which are read in one task."""
        return self._tables.are_few(files)

    def times(self, files: Sequence[StateFile]) -> pa.ChunkedArray:
        """Return the times of the elements of files, few of them; read by the driver."""
        return self._tables.read_few(files, [START])[START]

    @property
    def schema(self) -> T.StructType:
        """The columns of files."""
        prefix = element_column("")
        others = [element_column(f"{side}.") for side in SIDES if side != self.side]
        known = self._tables.schema or T.StructType()
        own = [field for field in known if not (field.name.startswith(prefix) and field.name.startswith(tuple(others)))]
        return T.StructType([*own, *(T.StructField(name, T.LongType()) for name in ENGINE)])

    def live(self, rows: DataFrame, watermark: int) -> DataFrame:
        """Return the rows that are needed after an epoch with this watermark."""
        return rows.where(f"{START} > {runtime_literals(watermark - self._retention)[0]}")

    def compact(self, watermark: int) -> Callable[[], None] | None:
        """Drop files of which nothing is needed after an epoch with this watermark; return the work that merges others."""
        kept: dict[int, list[StateFile]] = {}
        for file in self._tables.files(self.side):
            if _newest(file) + self._retention <= watermark:
                self._tables.drop([file])
            else:
                kept.setdefault(_newest(file) // self._slot, []).append(file)
        groups = [group for files in kept.values() for group in plan_compaction(files).merge]
        return partial(run_in_order, [partial(self._merge, group, watermark) for group in groups]) if groups else None

    def _merge(self, group: Sequence[StateFile], watermark: int) -> None:
        merged = self.live(self.read(group), watermark).coalesce(1)
        self._tables.write(merged, self.side, newest=max(file.epoch for file in group))
        self._tables.drop(group)
        crash_point("compaction-staged")


class IntervalElements(ElementTable):
    """The elements of one side of an interval join.

    Args:
        tables: the operator's files.
        side: which one.
        context: of the epoch.
        rule: of the join.
    """

    def __init__(self, tables: StateTables, side: Side, context: OperatorContext, rule: IntervalJoin) -> None:
        super().__init__(tables, side, context, rule.retention(side))
        self._rule = rule

    def needed(self, rows: DataFrame, epoch: int) -> DataFrame:
        """Return the rows of this epoch, and of the others those that were needed after the epoch before."""
        last, now = runtime_literals(self._context.before.watermark - self._rule.retention(self.side), epoch)
        return rows.where(f"{EPOCH} = {now} OR {START} > {last}")

    @property
    def waiting(self) -> list[StateFile]:
        """The files of earlier epochs with elements that may still have partners."""
        watermark = self._context.before.watermark
        return [file for file in self.before if self._rule.gone_at(self.side, _newest(file)) > watermark]

    def partners_of(self, span: Span, files: Sequence[StateFile]) -> list[StateFile]:
        """Return the files among some of this side that may have partners of elements of the other one, within a span of times."""
        rule = self._rule
        low, high = (-rule.upper_ms, -rule.lower_ms) if self.side == "left" else (rule.lower_ms, rule.upper_ms)
        return overlapping(files, span[0] + low, span[1] + high)


def span_of(files: Sequence[StateFile]) -> Span:
    """Return the bounds of the times in files."""
    return min(_oldest(file) for file in files), max(map(_newest, files))


def _oldest(file: StateFile) -> int:
    if file.min_time is None:
        raise ValueError(f"{file.path} has no bounds of times")
    return file.min_time


def _newest(file: StateFile) -> int:
    if file.max_time is None:
        raise ValueError(f"{file.path} has no bounds of times")
    return file.max_time


def stored_elements(
    node: ElementJoinNode,
    tables: Mapping[Side, ElementTable],
    schema: T.StructType | None,
    context: OperatorContext,
    *,
    watermark: int,
    times: Mapping[str, str] = EVENT_TIME,
) -> DataFrame:
    """Return the elements of both sides: ``input``, keys, times, and the columns of each side as a struct of its name.

    Args:
        node: the operator.
        tables: of both sides.
        schema: of state; None where nothing was ever written, so that types are not known.
        context: of the epoch.
        watermark: the newest.
        times: SQL of the times that are shown, by name.
    """
    if schema is None:
        fields = [T.StructField(name, T.StringType()) for name in ("input", *(key.name for key in node.on))]
        return no_rows(context.spark, T.StructType([*fields, *(T.StructField(name, T.TimestampType()) for name in times)]))
    found = []
    for side, table in tables.items():
        prefix = element_column(f"{side}.")
        names = [field.name for field in table.schema if field.name.startswith(prefix)]
        keys = [f"{quoted(stored)} AS {quoted(key.name)}" for stored, key in zip(key_columns(node), node.on, strict=True)]
        columns = [f"'{side}' AS input", *keys, *(f"{time} AS {name}" for name, time in times.items())]
        if names:
            inner = ", ".join(f"{quoted(name)} AS {quoted(name.removeprefix(prefix))}" for name in names)
            columns.append(f"struct({inner}) AS {side}")
        found.append(table.live(table.read(table.before), watermark).selectExpr(*columns))
    return found[0].unionByName(found[1], allowMissingColumns=True)
