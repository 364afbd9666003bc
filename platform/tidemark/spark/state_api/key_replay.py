"""One key's past epoch, run again: its elements, its state before, and each call of the function."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidemark.errors import EngineError
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.closing import closing
from tidemark.semantics.keyed_process.batch_walk import BatchWalk
from tidemark.semantics.keyed_process.broadcast_maps import read_only
from tidemark.semantics.keyed_process.context import ProcessContext, Row
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.keyed_process.element_batches import ElementBatch
from tidemark.semantics.keyed_process.key_record import KeyRecord, entries_of
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Emitted, Failed, OutputBatch, Walked
from tidemark.semantics.user_rows import name_of
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.expressions import POSITION, TIME, quoted
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.keyed.rows import ROWS_AT_ONCE, python_values
from tidemark.spark.operators.keyed_process.columns import INPUT
from tidemark.spark.operators.keyed_process.conversions import declarations
from tidemark.spark.operators.keyed_process.layout import keys_of_node
from tidemark.spark.operators.keyed_process.runtime import KeyedProcessEpoch, KeyedProcessRuntime
from tidemark.spark.operators.keyed_process.staging import staged_rows
from tidemark.spark.operators.keyed_process.stored_record import read_record
from tidemark.spark.state_api.replay_input import PastEpoch
from tidemark.state.log.records import EpochRecord, OperatorState

if TYPE_CHECKING:
    import pyarrow as pa

Key = Mapping[str, object]
States = Mapping[str, object]
Timers = tuple[tuple[str, int, str | None], ...]


@dataclass
class ReplayedCall:
    """A call of the function: its method, the time of its element or timer, and the watermark, in milliseconds.

    ``element`` is the element, of ``process_batch`` the list of them, None for a timer. ``emitted`` are rows by tag, None for the main
    output; ``error`` is why the call failed, of a function with ``on_error``.
    """

    method: str
    time: int
    watermark: int
    element: object = None
    timer_name: str | None = None
    emitted: list[tuple[str | None, Row]] = field(default_factory=list)
    error: str | None = None

    def __str__(self) -> str:
        """Return it as lines of text."""
        what = f"timer {self.timer_name or ''}".rstrip() if self.element is None else f"{self.element!r}"
        shown = [f"    -> {'' if tag is None else f'{tag}: '}{dict(row)!r}" for tag, row in self.emitted]
        failed = [] if self.error is None else [f"    failed: {self.error}"]
        return "\n".join([f"  {self.method} at {self.time}, watermark {self.watermark}: {what}", *shown, *failed])


@dataclass(frozen=True)
class ReplayedEpoch:
    """What a function did with a key in an epoch.

    ``states_before`` and ``states`` have the values of each state that is not empty, ``timers_before`` and ``timers`` each timer as
    domain, time and name. ``differences`` say where the state afterwards is not the one that the job committed; none if nothing differs.
    """

    epoch: int
    key: Key
    watermark_before: int
    watermark: int
    processing_time: int
    calls: tuple[ReplayedCall, ...]
    states_before: States
    states: States
    timers_before: Timers
    timers: Timers
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as lines of text."""
        found = "; ".join(self.differences) or "none"
        lines = [
            f"epoch {self.epoch} of the key {dict(self.key)}: watermark {self.watermark_before} to {self.watermark}",
            f"  before: {dict(self.states_before)}, timers {list(self.timers_before)}",
            *map(str, self.calls),
            f"  after: {dict(self.states)}, timers {list(self.timers)}",
            f"  differences from what was committed: {found}",
        ]
        return "\n".join(lines)


class KeyReplay:
    """The replay of one epoch of a key.

    Args:
        past: the epoch.
        node: the operator, with nothing stateful before it.
        key: the values of the key's columns by name.
    """

    def __init__(self, past: PastEpoch, node: KeyedProcessNode, key: Key) -> None:
        self._past, self._node, self._key = past, node, key
        self._runtime = KeyedProcessRuntime(node)
        self._declared: Mapping[str, StateDeclaration] = {}

    def run(self) -> ReplayedEpoch:
        """Return what the function did."""
        before, record = self._past.before, self._past.record
        uid = self._node.uid or ""
        states = (None if before is None else before.operators.get(uid)), record.operators[uid]
        watermarks = (MIN_WATERMARK if states[0] is None else states[0].watermark), states[1].watermark
        times = EpochTimes(*watermarks, self._runtime.bound, record.processing_time)
        at_start, at_end = self._epoch_after(before, states[0]), self._epoch_after(record, states[1])
        self._declared = declarations(dict(self._node.states), at_end.state_types() or at_start.state_types() or {})
        replayed = self._record_in(at_start, times)
        committed = self._record_in(at_end, dataclasses.replace(times, before=times.watermark))
        first = copy.deepcopy(replayed)
        calls = self._walk(replayed, times, at_end.broadcast_entries())
        return ReplayedEpoch(
            epoch=record.epoch,
            key=self._key,
            watermark_before=times.before,
            watermark=times.watermark,
            processing_time=times.processing_time,
            calls=tuple(calls),
            states_before=_values(first),
            states=_values(replayed),
            timers_before=_timers(first),
            timers=_timers(replayed),
            differences=tuple(_differences(replayed, committed)),
        )

    def _epoch_after(self, record: EpochRecord | None, state: OperatorState | None) -> KeyedProcessEpoch:
        """Return the operator after an epoch, with the state that it kept."""
        kept = OperatorState({}) if state is None else state
        epoch, now = (0, 0) if record is None else (record.epoch + 1, record.processing_time)
        context = OperatorContext(self._past.spark, self._past.store, self._node.uid or "", kept, kept.definition, epoch, now)
        return self._runtime.begin(context)

    def _record_in(self, epoch: KeyedProcessEpoch, times: EpochTimes) -> KeyRecord:
        found = epoch.stored_version(self._key)
        return KeyRecord() if found is None else read_record(found, self._declared, times)

    def _walk(self, record: KeyRecord, times: EpochTimes, broadcast: Mapping[str, Mapping[Any, Any]]) -> list[ReplayedCall]:
        node = self._node
        function = TracedFunction(copy.deepcopy(node.function), fields=node.fields, methods=node.methods)
        settings = {"forgives": node.on_error is not None, "broadcast": read_only(broadcast)}
        tags = frozenset(tag.name for tag, _ in node.side_outputs)
        walked = Walked()
        emitted: Iterator[Emitted]
        if node.by_batch:
            batches = BatchWalk(function, self._declared, tags, times, **settings)  # type: ignore[arg-type]
            context, emitted = batches.context, batches.run(self._key, record, self._batches(), walked)
        else:
            rows = ElementWalk(function, self._declared, tags, times, **settings)  # type: ignore[arg-type]
            context, emitted = rows.context, rows.run(self._key, record, self._elements(), walked)
        with closing(function.close):
            function.open(context)
            for each in emitted:
                function.take(each)
        return function.calls

    def _table(self) -> tuple[pa.Table, tuple[Mapping[str, str], ...]]:
        """Return the key's elements in order, and the columns of each input's elements."""
        import pyarrow as pa

        with self._past.inputs_of(self._node, self._runtime) as inputs:
            keyed = {port: each.rows for port, each in inputs.items() if port in self._node.element_ports}
            if not keyed:
                return pa.table({}), ()
            rows, _, columns = staged_rows(self._node, keyed)
            same = [F.col(quoted(stored)).eqNullSafe(F.lit(self._key[name])) for name, stored in keys_of_node(self._node).items()]
            for condition in same:
                rows = rows.where(condition)
            order = [name for name in (TIME, INPUT, POSITION) if name in rows.columns]
            try:
                return rows.orderBy(*order).toArrow().combine_chunks(), columns
            except PySparkException as error:
                raise EngineError(
                    f"the input of epoch {self._past.record.epoch} cannot be read again: {first_line(error)}",
                    fix="choose a newer epoch, whose files or offsets the source still has",
                    job=self._past.job.name,
                    uid=self._node.uid,
                ) from error

    def _elements(self) -> Iterator[tuple[Row, int, int]]:
        table, columns = self._table()
        if not columns:
            return
        values = {name: python_values(table.column(name).combine_chunks()) for name in table.column_names if name != POSITION}
        numbers: Any = values.get(INPUT, [0] * table.num_rows)
        for nth, (time, number) in enumerate(zip(values[TIME], numbers, strict=True)):
            yield {name: values[stored][nth] for name, stored in columns[number].items()}, time, number  # type: ignore[misc]

    def _batches(self) -> Iterator[ElementBatch]:
        table, columns = self._table()
        if not columns:
            return
        named = table.select(list(columns[0].values())).rename_columns(list(columns[0]))
        times = table.column(TIME)
        for batch in named.to_batches(max_chunksize=ROWS_AT_ONCE):
            first = times.slice(0, batch.num_rows).combine_chunks()
            times = times.slice(batch.num_rows)
            yield ElementBatch(batch, first, batch.nbytes)


class TracedFunction(BoundFunction):
    """A function whose calls are noted, with what they emit."""

    def __init__(self, function: object, *, fields: bool, methods: Sequence[str]) -> None:
        super().__init__(function, fields=fields, methods=methods)
        self.calls: list[ReplayedCall] = []
        self.inputs = tuple(map(self._noted, self.inputs))
        self.on_timer = self._noted_timer(self.on_timer)

    def _noted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        name = name_of(method)

        def noted(element: Any, ctx: ProcessContext) -> object:  # noqa: ANN401 - a row, or a batch
            shown = element.to_pylist() if hasattr(element, "to_pylist") else dict(element)
            self.calls.append(ReplayedCall(name, ctx.timestamp, ctx.current_watermark(), shown))
            return method(element, ctx)

        noted.__name__ = name
        return noted

    def _noted_timer(self, on_timer: Callable[..., Any]) -> Callable[..., Any]:
        def noted(timestamp: int, ctx: ProcessContext) -> object:
            self.calls.append(ReplayedCall("on_timer", timestamp, ctx.current_watermark(), timer_name=ctx.timer_name))
            return on_timer(timestamp, ctx)

        return noted

    def take(self, emitted: Emitted) -> None:
        """Note what the newest call emitted."""
        call = self.calls[-1]
        if isinstance(emitted, Failed):
            call.error = emitted.error
        elif isinstance(emitted, OutputBatch):
            call.emitted += [(emitted.tag, row) for row in emitted.rows.to_pylist()]
        else:
            call.emitted.append((emitted.tag, emitted.row))


def _values(record: KeyRecord) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, stored in record.states.items():
        if isinstance(stored, dict):
            found[name] = {key: value for key, (value, _) in stored.items()}
        else:
            values = [value for value, _ in entries_of(stored)]
            found[name] = values if isinstance(stored, list) else values[0]
    return found


def _timers(record: KeyRecord) -> Timers:
    found = [(domain, time, name or None) for domain, timers in record.timers.items() for time, name in timers]
    return tuple(sorted(found, key=lambda each: (each[1], each[0], each[2] or "")))


def _differences(replayed: KeyRecord, committed: KeyRecord) -> Iterator[str]:
    """Yield where the state of a key differs from the committed one."""
    now, then = _values(replayed), _values(committed)
    for name in sorted({*now, *then}):
        if now.get(name) != then.get(name):
            yield f"the state {name!r} is {now.get(name)!r}, and {then.get(name)!r} was committed"
        elif replayed.states.get(name) != committed.states.get(name):
            yield f"the state {name!r} was last written at another time"
    mine, theirs = _timers(replayed), _timers(committed)
    yield from (f"the timer {each} is set, and was not" for each in mine if each not in theirs)
    yield from (f"the timer {each} is not set, and was" for each in theirs if each not in mine)
