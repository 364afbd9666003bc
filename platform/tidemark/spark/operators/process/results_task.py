"""A window function over the results of aggregates, in a task: one row per pane goes in, any number come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.graph.model.nodes import WindowFunction
from tidemark.semantics.process.function_calls import FunctionState, call_function
from tidemark.semantics.triggers.fired_panes import Deadlines, Firing
from tidemark.semantics.triggers.window_state import KeyState, read_state, write_state
from tidemark.semantics.watermarks.lateness import cleanup_time
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.spark.operators.keyed.columns import FROM, INDEX, NEW, PANE, PANE_FIELDS, TIMING, TO, names_of
from tidemark.spark.operators.keyed.key_state import Blame, Notes, Version, newest_version, origin_of
from tidemark.spark.operators.keyed.output_buffer import Outbox, Shape
from tidemark.spark.operators.keyed.rows import KeyRows, Place, keys_of
from tidemark.spark.operators.process.elements_task import key_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ResultsTask:
    """What a task does with the results of its keys: calls the function pane by pane, and keeps what the function keeps.

    Args:
        declared: the function.
        clock: of the operator in the epoch.
        keys: key columns by the names of the keys.
        results: columns of aggregates by their names.
        schema: of the rows that come out.
        shapes: of these rows, by tag.
        blame: names what failed.
        merging: whether windows are sessions.
        lateness: for how long windows are kept after their end.
    """

    declared: WindowFunction
    clock: OperatorClock
    keys: Mapping[str, str]
    results: Mapping[str, str]
    schema: pa.Schema
    shapes: Mapping[int, Shape]
    blame: Blame
    merging: bool
    lateness: int

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
            stored = {} if before.state is None else read_state(before.state, self.clock.epoch).function
            functions = FunctionState(stored, merging=self.merging)
            for run in rows.of(NEW):
                told = zip(*(run.values(name) for name in names_of(PANE_FIELDS)), strict=True)
                for number, (row, values) in enumerate(zip(run.rows(self.results), told, strict=True), start=run.start):
                    place = Place(run.batch, number)
                    pane = _pane_of(values)
                    notes.pane(pane.window, pane.timing, place)
                    context = functions.context(key, pane.window, self.clock, timing=pane.timing, index=pane.index)
                    origin = origin_of(key, pane.window)
                    for nth, result in enumerate(call_function(self.declared.function, [row], context)):  # type: ignore[arg-type]
                        out.add(PANE, place, (*values[:-1], nth), result=result, origin=origin)
                        yield from out.enough()
            after = self._version(functions)
        except Exception as error:
            blamed = self.blame.of(error, key)
            if blamed is error:
                raise
            raise blamed from error
        opened = notes.replace(before, after, self.clock.epoch, rows.first)
        notes.key(rows.first, opened=opened)

    def _version(self, functions: FunctionState) -> Version:
        """Return what is to be kept of a key: the function's state, until the windows that it is of are over."""
        functions.forget_expired(self.lateness, self.clock.watermark)
        function = functions.to_json()
        text = write_state(KeyState(born=0, function=function))
        if text is None:
            return Version()
        windows: object = function.get("windows", [])
        ends = [_cleanup(entry, self.lateness) for entry in windows] if isinstance(windows, list) else []
        return Version(text, *Deadlines(min(ends, default=None), None))


def _cleanup(entry: object, lateness: int) -> int:
    """Return the watermark at which a window's part of a function's state goes."""
    bounds = entry[0] if isinstance(entry, list) else None
    return cleanup_time(GLOBAL_WINDOW if bounds is None else Window(*bounds), lateness)


def _pane_of(values: tuple[object, ...]) -> Firing:
    told: dict[str, Any] = dict(zip(names_of(PANE_FIELDS), values, strict=True))
    window = GLOBAL_WINDOW if told[FROM] is None else Window(told[FROM], told[TO])
    return Firing(window, told[TIMING], told[INDEX])
