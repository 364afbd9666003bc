"""A window function over the results of aggregates, in a task: one input row per pane, any number of output rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.graph.operators.window.node import WindowFunction
from tidemark.semantics.process.window_function_calls import FunctionState, call_function
from tidemark.semantics.triggers.fired_panes import Firing
from tidemark.semantics.triggers.window_state import KeyState, read_state, write_state
from tidemark.semantics.watermarks.lateness import cleanup_time
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.spark.operators.keyed.columns import NEW, OUTPUT, names_of
from tidemark.spark.operators.keyed.key_state import EMPTY_VERSION, Version
from tidemark.spark.operators.keyed.rows import Place
from tidemark.spark.operators.keyed.task import KeyCall, KeyFunction, KeyResult, KeyRun
from tidemark.spark.operators.process.pane_columns import FROM, INDEX, PANE_FIELDS, TIMING, TO, note_pane, origin_of_pane


@dataclass(frozen=True)
class ResultsFunction(KeyFunction):
    """Calls the function pane by pane, and stores its state.

    Args:
        declared: the function.
        results: columns of aggregates by their names.
        merging: whether windows are sessions.
        lateness: how long windows are kept after their end, milliseconds.
    """

    declared: WindowFunction
    results: Mapping[str, str]
    merging: bool
    lateness: int

    def run(self, call: KeyCall) -> KeyRun:
        """Add the function's results for each pane."""
        key, clock, out = call.key, call.clock, call.out
        stored = {} if call.before.state is None else read_state(call.before.state, clock.epoch).function
        functions = FunctionState(stored, merging=self.merging)
        for run in call.rows.of(NEW):
            panes = zip(*(run.values(name) for name in names_of(PANE_FIELDS)), strict=True)
            for number, (row, values) in enumerate(zip(run.rows(self.results), panes, strict=True), start=run.start):
                place = Place(run.batch, number)
                pane = _pane_of(values)
                note_pane(out, pane.window, pane.timing, place)
                context = functions.context(key, pane.window, clock, timing=pane.timing, index=pane.index)
                origin = origin_of_pane(key, pane.window)
                for nth, result in enumerate(call_function(self.declared.function, [row], context)):  # type: ignore[arg-type]
                    out.add(OUTPUT, place, (*values[:-1], nth), result=result, origin=origin)
                    yield from out.full_batches()
        return KeyResult(self._version(functions, clock))

    def _version(self, functions: FunctionState, clock: OperatorClock) -> Version:
        """Return a key's version: the function's state, until its windows expire."""
        functions.forget_expired(self.lateness, clock.watermark)
        function = functions.to_json()
        text = write_state(KeyState(born=0, function=function))
        if text is None:
            return EMPTY_VERSION
        windows: object = function.get("windows", [])
        ends = [_cleanup(entry, self.lateness) for entry in windows] if isinstance(windows, list) else []
        return Version(text, due=min(ends, default=None))


def _cleanup(entry: object, lateness: int) -> int:
    """Return the watermark at which a window's part of a function's state is removed."""
    bounds = entry[0] if isinstance(entry, list) else None
    return cleanup_time(GLOBAL_WINDOW if bounds is None else Window(*bounds), lateness)


def _pane_of(values: tuple[object, ...]) -> Firing:
    fields: dict[str, Any] = dict(zip(names_of(PANE_FIELDS), values, strict=True))
    window = GLOBAL_WINDOW if fields[FROM] is None else Window(fields[FROM], fields[TO])
    return Firing(window, fields[TIMING], fields[INDEX])
