"""The process of windows over sorted rows, in a task: ``semantics.window_process`` key by key, on Arrow batches.

In memory are one key's state, its elements of the epoch as they came (in Arrow), and the elements of one of its windows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.graph.model.nodes import WindowFunction
from tidemark.semantics.process.function_calls import WindowContext
from tidemark.semantics.process.key_epoch import Arrival
from tidemark.semantics.process.window_process import KeyEpoch, WindowProcess
from tidemark.semantics.triggers.fired_panes import FiredPane
from tidemark.semantics.triggers.window_state import HeldElement
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.expressions import START, TIME
from tidemark.spark.operators.keyed.columns import GAP, LATE, NEW, ORDER, PANE, STORED
from tidemark.spark.operators.keyed.key_state import Blame, Notes, bounds_of, newest_version, next_version, origin_of
from tidemark.spark.operators.keyed.output_buffer import Outbox, Shape
from tidemark.spark.operators.keyed.rows import PLACE, ROWS_AT_ONCE, KeyRows, Place, RowReader, Run, keys_of, table_of

if TYPE_CHECKING:
    import pyarrow as pa

_LATE_ORDER: Final = -1


@dataclass(frozen=True)
class ProcessTask:
    """What a task does with the rows of its keys.

    Args:
        process: the windows; its function, if it has one, is a ``ShownElements``.
        clock: of the operator in the epoch.
        keys: key columns by the names of the keys.
        elements: columns of elements by their names in the stream.
        schema: of the rows that come out.
        shapes: of these rows, by tag.
        blame: names what failed.
        trigger_looks: whether the trigger looks at rows.
        evictor_looks: whether the evictor does.
        has_gap: whether each element has its own gap.
        shows_late: whether late elements are wanted.
    """

    process: WindowProcess
    clock: OperatorClock
    keys: Mapping[str, str]
    elements: Mapping[str, str]
    schema: pa.Schema
    shapes: Mapping[int, Shape]
    blame: Blame
    trigger_looks: bool
    evictor_looks: bool
    has_gap: bool
    shows_late: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of the keys of a task; called by Spark in a worker."""
        out = Outbox(self.schema, self.shapes, self.blame.uid)
        notes = Notes(out)
        for rows in keys_of(batches):
            yield from self._run_key(rows, out, notes)
            yield from out.enough()
        notes.end()
        yield from out.rest()

    def _run_key(self, rows: KeyRows, out: Outbox, notes: Notes) -> Iterator[pa.RecordBatch]:
        before = newest_version(rows)
        if not rows.has(NEW) and not before.is_due(self.clock):
            notes.leave(before, rows.first)
            return
        key = key_of(rows.first, self.keys)
        try:
            epoch = self.process.begin(key, before.state, self.clock)
            arrived = self._take(epoch, rows)
            panes = epoch.fire(self._elements(rows, arrived)) if epoch.close() else ()
            for number, pane in enumerate(panes):
                notes.pane(pane.window, pane.timing, rows.first)
                yield from self._pane(number, pane, rows.first, key, out)
            text = epoch.state()
            after = next_version(text, epoch.deadlines(), self.clock.epoch)
        except Exception as error:
            blamed = self.blame.of(error, key)
            if blamed is error:
                raise
            raise blamed from error
        opened = notes.replace(before, after, self.clock.epoch, rows.first)
        accepted, refused = 0, 0
        for run, orders in arrived:
            late = self._late(run, orders, out, notes)
            refused += late
            accepted += len(orders) - late
            if text is not None:
                self._keep(epoch, run, orders, out)
            yield from out.enough()
        notes.key(rows.first, accepted=accepted, refused=refused, opened=opened)

    def _take(self, epoch: KeyEpoch, rows: KeyRows) -> list[tuple[Run, array[int]]]:
        """Have the windows take the new elements; return these with the order that each was given."""
        arrived: list[tuple[Run, array[int]]] = []

        def arrivals() -> Iterator[Arrival]:
            for run in rows.of(NEW):
                arrived.append((run, array("q")))
                gaps = run.values(GAP) if self.has_gap else [None] * (run.stop - run.start)
                for time, row, gap in zip(run.values(TIME), self._rows(run, looks=self.trigger_looks), gaps, strict=True):
                    yield Arrival(time, row, gap)  # type: ignore[arg-type]

        for held in epoch.take(arrivals()):
            arrived[-1][1].append(_LATE_ORDER if held is None else held.order)
        return arrived

    def _rows(self, run: Run, *, looks: bool) -> Iterable[object]:
        """Return what stands for the rows of a run: they themselves, where someone looks into them."""
        return run.rows(self.elements) if looks else (Place(run.batch, number) for number in range(run.start, run.stop))

    def _times(self, run: Run) -> Iterable[object]:
        """Return the times of new elements in the domain of the windows."""
        return run.values(TIME) if self.clock.domain == "event" else [self.clock.processing_time] * (run.stop - run.start)

    def _elements(self, rows: KeyRows, arrived: Sequence[tuple[Run, array[int]]]) -> Iterator[HeldElement]:
        """Yield stored and new elements in order, each read when its turn comes."""

        def stored() -> Iterator[HeldElement]:
            for run in rows.of(STORED):
                yield from self._held(run, run.values(START), run.values(ORDER))

        def new() -> Iterator[HeldElement]:
            for run, orders in arrived:
                yield from (held for held in self._held(run, self._times(run), orders) if held.order != _LATE_ORDER)

        return self.process.sorted_elements(stored(), new())

    def _held(self, run: Run, times: Iterable[object], orders: Iterable[object]) -> Iterator[HeldElement]:
        for time, order, row in zip(times, orders, self._rows(run, looks=self.evictor_looks), strict=True):
            yield HeldElement(time, order, row)  # type: ignore[arg-type]

    def _pane(self, number: int, pane: FiredPane, first: Place, key: Mapping[str, object], out: Outbox) -> Iterator[pa.RecordBatch]:
        """Add the rows of a pane: its elements, or what the function makes of them."""
        start, end = bounds_of(pane.window)
        told = (number, start, end, pane.timing, pane.index, pane.time, [session._asdict() for session in pane.replaces])
        origin = origin_of(key, pane.window)
        for place, row in enumerate(pane.rows):
            if isinstance(row, HeldElement):
                out.add(PANE, _as_place(row.row), (*told, place))
            else:
                out.add(PANE, first, (*told, place), result=_as_mapping(row), origin=origin)
            yield from out.enough()

    def _late(self, run: Run, orders: Sequence[int], out: Outbox, notes: Notes) -> int:
        """Add a run's late elements, and note the windows that they would have belonged to; return how many there are."""
        late = [run.start + number for number, order in enumerate(orders) if order == _LATE_ORDER]
        starts: set[int] = set()
        for number in late:
            if self.shows_late:
                out.add(LATE, Place(run.batch, number))
            time = self.clock.element_time(run.batch.column(TIME)[number].as_py())
            gap = run.batch.column(GAP)[number].as_py() if self.has_gap else None
            starts.update(window.start for window in self.process.assigner.assign(time, gap)[-1:])
        for start in sorted(starts):
            notes.late_window(start, Place(run.batch, run.start))
        return len(late)

    def _keep(self, epoch: KeyEpoch, run: Run, orders: Sequence[int], out: Outbox) -> None:
        """Add a run's elements that a window still holds."""
        for number, (time, order) in enumerate(zip(self._times(run), orders, strict=True)):
            if order != _LATE_ORDER and epoch.holds(time, order):  # type: ignore[arg-type]
                out.add(STORED, Place(run.batch, run.start + number), (time, order))


class ShownElements:
    """A user's window function as a window process calls it: makes rows, or batches, of places in batches.

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


def key_of(place: Place, keys: Mapping[str, str]) -> dict[str, object]:
    """Return a key's values by the names of the keys."""
    return {name: place.batch.column(column)[place.number].as_py() for name, column in keys.items()}


def _as_place(row: object) -> Place:
    if not isinstance(row, Place):
        raise TypeError(f"{type(row).__name__} is not a place in a batch")
    return row


def _as_mapping(row: object) -> Mapping[str, object]:
    if not isinstance(row, Mapping):
        raise TypeError(f"{type(row).__name__} is not a row")
    return row
