"""Runs windows over sorted rows, in a task: ``semantics.window_process`` key by key, on Arrow batches.

Only one key's state, its elements of the epoch (in Arrow), and the elements of one of its windows are in memory.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.graph.operators.window.node import WindowFunction
from tidemark.semantics.process.key_epoch import Arrival
from tidemark.semantics.process.window_function_calls import WindowContext
from tidemark.semantics.process.window_process import KeyEpoch, WindowProcess
from tidemark.semantics.triggers.fired_panes import Deadlines, FiredPane
from tidemark.semantics.triggers.window_state import HeldElement, read_state
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.spark.columns.expressions import START, TIME
from tidemark.spark.operators.keyed.columns import LATE, NEW, ORDER, OUTPUT, STORED
from tidemark.spark.operators.keyed.key_state import EMPTY_VERSION, Version
from tidemark.spark.operators.keyed.rows import PLACE, ROWS_AT_ONCE, KeyRows, Place, RowReader, Run, table_of
from tidemark.spark.operators.keyed.task import KeyCall, KeyFunction, KeyResult, KeyRun
from tidemark.spark.operators.process.pane_columns import GAP, bounds_of, note_late_window, note_pane, origin_of_pane

if TYPE_CHECKING:
    import pyarrow as pa

_LATE_ORDER: Final = -1


@dataclass(frozen=True)
class ElementsFunction(KeyFunction):
    """Runs the windows of a key over its elements.

    Args:
        process: the windows; its function, if it has one, is a ``ShownElements``.
        elements: columns of elements by their names in the stream.
        trigger_reads_rows: whether the trigger reads rows.
        evictor_reads_rows: whether the evictor reads rows.
        has_gap: whether each element has its own gap.
        shows_late: whether late elements are needed.
    """

    process: WindowProcess
    elements: Mapping[str, str]
    trigger_reads_rows: bool
    evictor_reads_rows: bool
    has_gap: bool
    shows_late: bool

    def run(self, call: KeyCall) -> KeyRun:
        """Process the new elements, and add the panes of windows that fire."""
        rows, clock, out = call.rows, call.clock, call.out
        epoch = self.process.begin(call.key, call.before.state, clock)
        arrived = self._take(epoch, rows)
        panes = epoch.fire(self._elements(call, arrived)) if epoch.close() else ()
        for number, pane in enumerate(panes):
            note_pane(out, pane.window, pane.timing, rows.first)
            yield from self._pane(number, pane, call)
        text = epoch.state()
        version = _version(text, epoch.deadlines(), clock.epoch)
        refused = sum(orders.count(_LATE_ORDER) for _, orders in arrived)
        accepted = sum(len(orders) for _, orders in arrived) - refused
        return KeyResult(version, accepted, refused, self._rest(call, epoch, arrived, stays=text is not None))

    def _rest(self, call: KeyCall, epoch: KeyEpoch, arrived: Sequence[tuple[Run, array[int]]], *, stays: bool) -> Iterator[pa.RecordBatch]:
        """Add late elements, and those that a window still holds if the key keeps state."""
        for run, orders in arrived:
            self._late(run, orders, call)
            if stays:
                self._keep(epoch, run, orders, call)
            yield from call.out.full_batches()

    def _take(self, epoch: KeyEpoch, rows: KeyRows) -> list[tuple[Run, array[int]]]:
        """Assign the new elements to windows; return them with the order that each got."""
        arrived: list[tuple[Run, array[int]]] = []

        def arrivals() -> Iterator[Arrival]:
            for run in rows.of(NEW):
                arrived.append((run, array("q")))
                gaps = run.values(GAP) if self.has_gap else [None] * (run.stop - run.start)
                for time, row, gap in zip(run.values(TIME), self._rows(run, as_rows=self.trigger_reads_rows), gaps, strict=True):
                    yield Arrival(time, row, gap)  # type: ignore[arg-type]

        for held in epoch.take(arrivals()):
            arrived[-1][1].append(_LATE_ORDER if held is None else held.order)
        return arrived

    def _rows(self, run: Run, *, as_rows: bool) -> Iterable[object]:
        """Return the rows of a run: dicts where the rows are read, else places."""
        return run.rows(self.elements) if as_rows else (Place(run.batch, number) for number in range(run.start, run.stop))

    def _times(self, run: Run, clock: OperatorClock) -> Iterable[object]:
        """Return the times of new elements in the domain of the windows."""
        return run.values(TIME) if clock.domain == "event" else [clock.processing_time] * (run.stop - run.start)

    def _elements(self, call: KeyCall, arrived: Sequence[tuple[Run, array[int]]]) -> Iterator[HeldElement]:
        """Yield stored and new elements in order, each read when its turn comes."""

        def stored() -> Iterator[HeldElement]:
            for run in call.rows.of(STORED):
                yield from self._held(run, run.values(START), run.values(ORDER))

        def new() -> Iterator[HeldElement]:
            for run, orders in arrived:
                yield from (held for held in self._held(run, self._times(run, call.clock), orders) if held.order != _LATE_ORDER)

        return self.process.sorted_elements(stored(), new())

    def _held(self, run: Run, times: Iterable[object], orders: Iterable[object]) -> Iterator[HeldElement]:
        for time, order, row in zip(times, orders, self._rows(run, as_rows=self.evictor_reads_rows), strict=True):
            yield HeldElement(time, order, row)  # type: ignore[arg-type]

    def _pane(self, number: int, pane: FiredPane, call: KeyCall) -> Iterator[pa.RecordBatch]:
        """Add the rows of a pane: its elements, or the function's results."""
        out, first = call.out, call.rows.first
        start, end = bounds_of(pane.window)
        fields = (number, start, end, pane.timing, pane.index, pane.time, [session._asdict() for session in pane.replaces])
        origin = origin_of_pane(call.key, pane.window)
        for place, row in enumerate(pane.rows):
            if isinstance(row, HeldElement):
                out.add(OUTPUT, _as_place(row.row), (*fields, place))
            else:
                out.add(OUTPUT, first, (*fields, place), result=_as_mapping(row), origin=origin)
            yield from out.full_batches()

    def _late(self, run: Run, orders: array[int], call: KeyCall) -> None:
        """Add a run's late elements, and count the windows that they would have belonged to."""
        late = [run.start + number for number, order in enumerate(orders) if order == _LATE_ORDER]
        windows: Counter[Window] = Counter()
        for number in late:
            if self.shows_late:
                call.out.add(LATE, Place(run.batch, number))
            time = call.clock.element_time(run.batch.column(TIME)[number].as_py())
            gap = run.batch.column(GAP)[number].as_py() if self.has_gap else None
            windows.update(self.process.assigner.assign(time, gap)[-1:])
        for window, elements in sorted(windows.items()):
            note_late_window(call.out, window, elements, Place(run.batch, run.start))

    def _keep(self, epoch: KeyEpoch, run: Run, orders: Sequence[int], call: KeyCall) -> None:
        """Add a run's elements that a window still holds."""
        for number, (time, order) in enumerate(zip(self._times(run, call.clock), orders, strict=True)):
            if order != _LATE_ORDER and epoch.holds(time, order):  # type: ignore[arg-type]
                call.out.add(STORED, Place(run.batch, run.start + number), (time, order))


class ShownElements:
    """A user's window function as a window process calls it: turns places in batches into rows, or batches.

    Args:
        declared: the function.
        columns: of elements, by their names in the stream.
        schema: has these columns.
    """

    def __init__(self, declared: WindowFunction, columns: Mapping[str, str], schema: pa.Schema) -> None:
        self._function: Callable[..., object] = declared.function
        self._batches = declared.batches
        self._columns = columns
        self._schema = schema
        self._reader = RowReader(columns)
        self.__qualname__ = str(getattr(declared.function, "__qualname__", type(declared.function).__qualname__))

    def __call__(self, elements: Sequence[Mapping[str, object]], context: WindowContext) -> Iterable[Mapping[str, object]]:
        """Call the user's function with its elements."""
        shown: object = elements
        if elements and PLACE in elements[0]:
            places = [_as_place(element[PLACE]) for element in elements]
            if self._batches:
                shown = iter(table_of(places, self._columns).to_batches(max_chunksize=ROWS_AT_ONCE))
            else:
                shown = self._reader.rows(places)
        elif self._batches:
            shown = iter(self._table(elements).to_batches(max_chunksize=ROWS_AT_ONCE))
        return self._function(shown, context)  # type: ignore[return-value]

    def _table(self, elements: Sequence[Mapping[str, object]]) -> pa.Table:
        import pyarrow as pa

        schema = pa.schema([pa.field(shown, self._schema.field(name).type) for shown, name in self._columns.items()])
        return pa.Table.from_pylist(list(elements), schema=schema)


def _version(text: str | None, deadlines: Deadlines, epoch: int) -> Version:
    """Return a key's version after an epoch."""
    if text is None:
        return EMPTY_VERSION
    starts = [window.start for window in read_state(text, epoch).windows if window != GLOBAL_WINDOW]
    return Version(text, deadlines.watermark, deadlines.processing_time, min(starts, default=None))


def _as_place(row: object) -> Place:
    if not isinstance(row, Place):
        raise TypeError(f"{type(row).__name__} is not a place in a batch")
    return row


def _as_mapping(row: object) -> Mapping[str, object]:
    if not isinstance(row, Mapping):
        raise TypeError(f"{type(row).__name__} is not a row")
    return row
