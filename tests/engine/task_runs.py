"""Runs the tasks of windows that keep elements as Spark would, without Spark: rows sorted by key, cut into Arrow batches at random."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T

from tidemark.graph.aggregates.aggregates_numeric import count
from tidemark.graph.operators.window.node import WindowFunction, WindowNode
from tidemark.semantics.process.window_function_calls import WindowContext
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Key
from tidemark.semantics.triggers.panes import Pane, ReplacedSession
from tidemark.semantics.watermarks.operator_clock import OperatorClock, operator_clock
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.spark.columns.expressions import POSITION, START, TIME
from tidemark.spark.operators.keyed.columns import (
    ACCEPTED,
    DUE,
    EPOCH,
    HASH,
    HASH_AGAIN,
    LATE,
    NEW,
    NOTE,
    OLDEST,
    OPENED,
    ORDER,
    OUTPUT,
    REFUSED,
    SORT,
    STATE,
    STORED,
    TAG,
    TIMER,
    VERSION,
    names_of,
)
from tidemark.spark.operators.keyed.key_state import ErrorContext
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.task import KeyTask
from tidemark.spark.operators.process.buffered import BufferedRuntime
from tidemark.spark.operators.process.layout import layout_of_results, layout_of_rows
from tidemark.spark.operators.process.pane_columns import (
    FROM,
    GAP,
    INDEX,
    PANE_FIELDS,
    PANE_NOTE,
    PANE_NUMBER,
    REPLACES,
    RESULT_NUMBER,
    RESULT_TIME,
    TIMING,
    TO,
)
from tidemark.spark.operators.process.results_task import ResultsFunction
from tidemark.spark.operators.process.trigger_rules import trigger_in_effect

Row = dict[str, Any]
Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

KEYS = {"key": "key_key"}
NUMBERS = T.ArrayType(T.LongType())
_POSITION = T.StructType().add("origin", "string").add("block", "long").add("row", "long")
STREAM = T.StructType().add("key", "string").add("id", "long").add("amount", "long").add(TIME, "long").add(POSITION, _POSITION)
KEY_TYPES = T.StructType().add("key_key", "string")
RESULTS = T.StructType().add("key", "string").add("result", NUMBERS)
RETURNS = "what `RETURNED` says: a DDL cannot be read without Spark"
RETURNED = (
    T.StructType()
    .add("ids", NUMBERS)
    .add("bounds", NUMBERS)
    .add("now", NUMBERS)
    .add("pane", "string")
    .add("calls", "long")
    .add("seen", NUMBERS)
)


def report_call(elements: Sequence[Mapping[str, Any]], context: WindowContext) -> Iterator[Row]:
    """Tell all that a window function can see, and count calls per key and per window; twice for many elements, not at all for five."""
    calls = context.key_state.get("calls", 0) + 1  # type: ignore[operator]
    context.key_state["calls"] = calls
    ids = [item for element in elements for item in element.get("result", [element.get("id")])]
    row = {
        "ids": ids,
        "bounds": [] if context.window is None else [context.window.start, context.window.end],
        "now": [context.watermark, context.processing_time],
        "pane": f"{context.key.get('key')} {context.timing} {context.index}",
        "calls": calls,
        "seen": None,
    }
    if context.of_window is not None:
        seen: Any = context.window_state.get("seen", [])
        context.window_state["seen"] = row["seen"] = [*seen, len(ids)]
    if len(ids) != 5:
        yield row
    if len(ids) > 2:
        yield {"ids": ids[:1]}


def report_batches(batches: Iterable[pa.RecordBatch], context: WindowContext) -> Iterator[Row]:
    """Tell the same of batches."""
    return report_call([row for batch in batches for row in batch.to_pylist()], context)


class EpochSeen(NamedTuple):
    """What an epoch did: panes by key, ids of late elements, and elements taken."""

    panes: dict[Key, list[Pane]]
    late: list[int]
    accepted: int


@dataclass
class TaskRun:
    """A job's windows, with the same settings as the reference's.

    With ``hoards`` elements that no window holds stay for ever, without it they go after each epoch. With ``narrow`` only rows that an
    epoch needs are handed over, as where there are many.
    """

    job: ReferenceJob[tuple[object, ...]]
    random: Random
    hoards: bool = False
    narrow: bool = False
    batches: bool = False
    versions: list[Row] = field(default_factory=list)
    stored: list[Row] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)
    number: int = 0
    watermark: int = MIN_WATERMARK
    processing_time: int | None = None
    keys: int = 0

    def __post_init__(self) -> None:
        job = self.job
        self.aggregates = (("result", count()),) if job.fold is not None else ()
        function = (
            WindowFunction(report_batches if self.batches else report_call, RETURNS, batches=self.batches) if job.fold is None else None
        )
        self.node = WindowNode(
            keys=(("key", "key"),),
            assigner=job.assigner,
            aggregates=(),
            allowed_lateness_ms=job.allowed_lateness_ms,
            trigger=job.trigger,
            evictor=job.evictor,
            function=function,
            uid="w",
        )
        self.step = BufferedRuntime(self.node)

    def clock(self, watermark: int, processing_time: int) -> OperatorClock:
        return operator_clock(
            self.job.assigner.domain,
            epoch=self.number,
            before=self.watermark,
            watermark=watermark,
            processing_time=processing_time,
            previous_processing_time=self.processing_time,
        )

    def run_epoch(self, elements: Sequence[Element], watermark: int, processing_time: int) -> EpochSeen:
        clock = self.clock(watermark, processing_time)
        # The whole stream goes along with elements of aggregates, too: what becomes of them is told by their ids.
        process = dataclasses.replace(self.node, function=WindowFunction(report_call, RETURNS))
        layout = layout_of_rows(process, KEYS, STREAM, KEY_TYPES, has_gap=self.step.has_gap)
        layout = layout if self.node.function is not None else dataclasses.replace(layout, results={})
        new = [self._new(element) for element in elements]
        task = self.step.task(layout, clock)
        task = dataclasses.replace(task, function=dataclasses.replace(task.function, shows_late=True))  # type: ignore[type-var]
        fed = [*self._needed_versions(new, clock), *new, *self._needed_elements(new, clock)]
        out = self._run(task, fed, layout)
        self._check_notes(out, clock)
        self.versions += out[VERSION]
        self.stored += out[STORED]
        self.keys += sum(row[OPENED] or 0 for row in out[NOTE])
        panes = self._panes(out, clock)
        self.number, self.watermark, self.processing_time = self.number + 1, watermark, processing_time
        if not self.hoards:
            self._compact(layout, clock)
        return EpochSeen(panes, sorted(row["row_id"] for row in out[LATE]), sum(row[ACCEPTED] or 0 for row in out[NOTE]))

    def _new(self, element: Element) -> Row:
        assert isinstance(element.value, dict)
        position = {"origin": "e", "block": 0, "row": element.position[0]}
        row = {"key_key": element.key[0], "row_key": element.key[0], "row_id": element.value["id"], "row_amount": element.value["amount"]}
        return {**row, TIME: element.timestamp, POSITION: position, GAP: element.gap_ms, TAG: NEW, SORT: element.timestamp}

    def _newest(self) -> dict[str | None, Row]:
        return {row["key_key"]: row for row in sorted(self.versions, key=lambda row: row[EPOCH])}

    def _due(self, clock: OperatorClock) -> set[str | None]:
        return {
            key
            for key, row in self._newest().items()
            if (row[DUE] is not None and row[DUE] <= clock.watermark) or (row[TIMER] is not None and row[TIMER] <= clock.timers_due_until)
        }

    def _needed_versions(self, new: Sequence[Row], clock: OperatorClock) -> list[Row]:
        wanted = {row["key_key"] for row in new} | self._due(clock)
        rows = [row for row in self.versions if not self.narrow or row["key_key"] in wanted]
        return [{**row, TAG: VERSION, SORT: -row[EPOCH]} for row in rows]

    def _needed_elements(self, new: Sequence[Row], clock: OperatorClock) -> list[Row]:
        waking = {row["key_key"] for row in new if not self.step.fires_when_due or row[TIME] <= clock.before}
        wanted = waking | self._due(clock)
        rows = [row for row in self.stored if not self.narrow or row["key_key"] in wanted]
        if self.step.fires_when_due:
            rows = [row for row in rows if row[START] <= clock.watermark]
        arrival = self.step.process.element_order == "arrival"
        return [{**row, TAG: STORED, SORT: 0 if arrival else row[START]} for row in rows]

    def _run(self, task: Task, rows: Iterable[Row], layout: Layout, more: Sequence[T.StructField] = ()) -> dict[int, list[Row]]:
        names = {f.name: f for struct in (layout.versions, layout.new, layout.stored) for f in struct} | {f.name: f for f in more}
        first = [T.StructField(TAG, T.IntegerType()), T.StructField(HASH, T.LongType()), T.StructField(HASH_AGAIN, T.IntegerType())]
        schema = layout.arrow(T.StructType([*first, T.StructField(SORT, T.LongType()), *names.values()]))

        def order(row: Row) -> tuple[Any, ...]:
            return (row[HASH], row[HASH_AGAIN], row[TAG], row[SORT], row.get(ORDER) or 0, (row.get(POSITION) or {"row": 0})["row"])

        hashed = [{**row, HASH: 7 if row["key_key"] is None else 8, HASH_AGAIN: 1} for row in rows]
        out: dict[int, list[Row]] = defaultdict(list)
        for batch in task(self._cut(sorted(hashed, key=order), schema)):
            assert batch.schema == layout.arrow(layout.output)
            for row in batch.to_pylist():
                out[row[TAG]].append(row)
        return out

    def _cut(self, rows: Sequence[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        start = 0
        while start < len(rows):
            stop = start + self.random.randint(1, 6)
            yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows[start:stop]], schema=schema)
            start = stop

    def _check_notes(self, out: Mapping[int, list[Row]], clock: OperatorClock) -> None:
        """Hold what is counted against what was given back."""
        notes = out[NOTE]
        assert sum(row[REFUSED] or 0 for row in notes) == len(out[LATE])
        newest = self._newest() | {row["key_key"]: row for row in out[VERSION]}
        living = [row for row in newest.values() if row[STATE] is not None]
        for name in (DUE, TIMER, OLDEST):
            noted = min((row[name] for row in notes if row[name] is not None), default=None)
            least = min((row[name] for row in living if row[name] is not None), default=None)
            assert noted == least or (self.narrow and (noted is None or (least is not None and least <= noted)))
        assert self.keys + sum(row[OPENED] or 0 for row in notes) == len(living)
        for row in living:
            assert row[DUE] is None or row[DUE] > clock.watermark
            assert row[TIMER] is None or row[TIMER] > clock.timers_due_until

    def _panes(self, out: Mapping[int, list[Row]], clock: OperatorClock) -> dict[Key, list[Pane]]:
        noted = [row for row in out[PANE_NOTE] if row[TIMING] in {"EARLY", "ON_TIME", "LATE"}]
        if self.job.fold is None:
            assert len({(row["key_key"], row[PANE_NUMBER]) for row in out[OUTPUT]}) <= len(noted)
            return self._by_key(out[OUTPUT])
        rows = [self._result(rows) for rows in self._grouped(out[OUTPUT]).values()]
        assert len(rows) == len(noted)
        if self.job.function is None:
            found: dict[Key, list[Pane]] = {}
            for row in sorted(rows, key=lambda row: row[PANE_NUMBER]):
                found.setdefault((row["key_key"],), []).append(_pane(row, tuple(row["row_result"])))
            return found
        return self._by_key(self._call(rows, clock))

    def _call(self, rows: Sequence[Row], clock: OperatorClock) -> list[Row]:
        """Call the function with the results of aggregates; what it keeps is kept apart."""
        node = dataclasses.replace(self.node, aggregates=self.aggregates, function=WindowFunction(report_call, RETURNS))
        layout = layout_of_results(node, KEYS, RESULTS)
        assert node.function is not None
        function = ResultsFunction(node.function, layout.elements, merging=node.assigner.merging, lateness=node.allowed_lateness_ms)
        errors = ErrorContext("w", "window function told", "make it work")
        task = KeyTask(function, clock, KEYS, layout.arrow(layout.output), layout.shapes, errors)
        lowest = -(2**63)
        new = [
            {**row, TAG: NEW, SORT: lowest if row[FROM] is None else row[FROM], ORDER: row[INDEX] if row[TO] is None else row[TO]}
            for row in rows
        ]
        versions = [{**row, TAG: VERSION, SORT: -row[EPOCH]} for row in self.kept]
        out = self._run(task, [*versions, *new], layout, PANE_FIELDS)
        self.kept += out[VERSION]
        return out[OUTPUT]

    def _grouped(self, rows: Sequence[Row]) -> dict[tuple[str | None, int], list[Row]]:
        found: dict[tuple[str | None, int], list[Row]] = {}
        for row in sorted(rows, key=lambda row: row[RESULT_NUMBER]):
            found.setdefault((row["key_key"], row[PANE_NUMBER]), []).append(row)
        return found

    def _result(self, rows: Sequence[Row]) -> Row:
        told_of = {name: rows[0][name] for name in names_of(PANE_FIELDS)}
        return {"key_key": rows[0]["key_key"], "row_result": [row["row_id"] for row in rows], **told_of}

    def _by_key(self, rows: Sequence[Row]) -> dict[Key, list[Pane]]:
        names = RETURNED.names
        found: dict[Key, dict[tuple[Any, ...], list[Row]]] = {}
        for row in rows:
            mark = (row[FROM], row[TO], row[INDEX])
            found.setdefault((row["key_key"],), {}).setdefault(mark, []).append(row)
        return {
            key: [_pane(group[0], tuple({name: row[f"result_{name}"] for name in names} for row in group)) for group in panes.values()]
            for key, panes in found.items()
        }

    def _compact(self, layout: Layout, clock: OperatorClock) -> None:
        versions = [{**row, TAG: VERSION, SORT: -row[EPOCH]} for row in self.versions]
        elements = [{**row, TAG: STORED, SORT: row[START]} for row in self.stored]
        self.stored = self._run(self.step.compaction(layout, clock), [*versions, *elements], layout)[STORED]
        self.versions = [row for row in self._newest().values() if row[STATE] is not None]


def _pane(row: Row, result: object) -> Pane:
    window = GLOBAL_WINDOW if row[FROM] is None else Window(row[FROM], row[TO])
    time = row[RESULT_TIME] if window == GLOBAL_WINDOW else None
    assert time is not None or row[RESULT_TIME] == window.max_timestamp
    return Pane(
        (row["key_key"],), window, row[TIMING], row[INDEX], result, tuple(ReplacedSession(**session) for session in row[REPLACES]), time
    )


def complete(row: Mapping[str, object]) -> Row:
    """Return a row of the function as its columns have it."""
    return {name: row.get(name) for name in RETURNED.names}


def compare(job: ReferenceJob[tuple[object, ...]], epochs: Sequence[Epoch], **settings: Any) -> Iterator[EpochResult]:
    """Run both over the epochs; yield the reference's results once the tasks have done the same."""
    run = TaskRun(job, **settings)
    reference = dataclasses.replace(job, trigger=trigger_in_effect(run.node))
    for epoch, result in zip(epochs, run_reference(reference, epochs), strict=True):
        seen = run.run_epoch(epoch.elements, result.source_watermarks["source"], result.processing_time)
        expected: dict[Key, list[Pane]] = {}
        for pane in result.panes:
            if job.function is None:
                expected.setdefault(pane.key, []).append(pane)
            elif pane.result:
                rows = tuple(complete(row) for row in pane.result)  # type: ignore[attr-defined]
                expected.setdefault(pane.key, []).append(dataclasses.replace(pane, result=rows))
        assert seen.panes == expected
        assert seen.late == sorted(element.value["id"] for element in result.late)  # type: ignore[index]
        assert seen.accepted == result.counts.accepted
        if not run.hoards:
            most = sum(found.elements for found in result.open_windows)
            assert len(run.stored) <= most
        yield result
