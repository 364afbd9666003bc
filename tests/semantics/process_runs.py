"""Runs a window process over epochs as an engine would: keys apart, state as text between epochs, calls only where one is due."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.semantics.process.key_epoch import Arrival
from tidemark.semantics.process.window_function_calls import FunctionState, WindowContext, WindowFunction, call_function
from tidemark.semantics.process.window_process import WindowProcess, run_key
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Fold, Key
from tidemark.semantics.triggers.fired_panes import Deadlines, FiredPane
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.triggers.window_state import HeldElement
from tidemark.semantics.watermarks.operator_clock import OperatorClock, operator_clock
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.state_values import dump
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

Row = Mapping[str, object]


class EpochSeen(NamedTuple):
    """What an epoch did: panes by key, and the values of late elements."""

    panes: dict[Key, list[Pane]]
    late: list[object]


NEVER = Deadlines(None, None)


@dataclass
class KeyStore:
    """What an engine keeps of a key."""

    state: str | None = None
    elements: list[HeldElement] = field(default_factory=list)
    deadlines: Deadlines = NEVER
    functions: str = "{}"

    def is_due(self, watermark: int, processing_time: int) -> bool:
        due = [(self.deadlines.watermark, watermark), (self.deadlines.processing_time, processing_time)]
        return any(deadline is not None and deadline <= now for deadline, now in due)


@dataclass
class ProcessRun:
    """A job's window process, with the same settings as the reference's.

    ``hoards`` keeps all elements for ever, where an engine may, instead of those that are needed. A fold is what an engine would aggregate
    natively over the elements of a pane; a function over its result is called in a second pass, with a state of its own. ``call_all``
    calls keys that are not due as well.
    """

    job: ReferenceJob[tuple[object, ...]]
    hoards: bool = False
    keys: dict[Key, KeyStore] = field(default_factory=dict)
    number: int = 0
    watermark: int = MIN_WATERMARK
    processing_time: int | None = None
    call_all: bool = False

    def __post_init__(self) -> None:
        job = self.job
        self.process = WindowProcess(
            job.assigner,
            trigger=job.trigger,
            evictor=job.evictor,
            function=job.function if job.fold is None else None,
            allowed_lateness_ms=job.allowed_lateness_ms,
        )

    def run_epoch(self, elements: Sequence[Element], watermark: int, processing_time: int) -> EpochSeen:
        clock = operator_clock(
            self.job.assigner.domain,
            epoch=self.number,
            before=self.watermark,
            watermark=watermark,
            processing_time=processing_time,
            previous_processing_time=self.processing_time,
        )
        self.number, self.watermark, self.processing_time = self.number + 1, watermark, processing_time
        arrivals: dict[Key, list[Element]] = {}
        for element in elements:
            arrivals.setdefault(element.key, []).append(element)
        seen = EpochSeen({}, [])
        for key in {**self.keys, **arrivals}:
            store = self.keys.setdefault(key, KeyStore())
            mine = arrivals.get(key, [])
            if mine or self.call_all or store.is_due(watermark, processing_time):
                self._run_key(key, store, sorted(mine, key=in_contract_order), clock, seen)
        return seen

    def _run_key(self, key: Key, store: KeyStore, mine: list[Element], clock: OperatorClock, seen: EpochSeen) -> None:
        arrivals = [Arrival(element.timestamp or 0, element.value, element.gap_ms) for element in mine]
        before = store.elements
        result = run_key(self.process, named(key), state=store.state, stored=before, arrivals=arrivals, clock=clock)
        if self.hoards:
            # A first time that is lost, as when a task is run again: the second must do the same.
            assert result == run_key(self.process, named(key), state=store.state, stored=before, arrivals=arrivals, clock=clock)
        store.state, store.deadlines = result.state, result.deadlines
        store.elements = self._kept(store, mine, result.elements, clock) if self.hoards else list(result.elements)
        seen.late.extend(mine[place].value for place in result.late)
        functions = FunctionState(read(store.functions), merging=self.job.assigner.merging)
        found = [self._pane(key, pane, clock, functions) for pane in result.panes]
        functions.forget_expired(self.job.allowed_lateness_ms, clock.watermark)
        store.functions = dump(functions.to_json())
        if found:
            seen.panes[key] = found

    def _kept(self, store: KeyStore, mine: Sequence[Element], needed: Sequence[HeldElement], clock: OperatorClock) -> list[HeldElement]:
        epoch = self.process.begin({}, None, clock)
        again = epoch.take([Arrival(element.timestamp or 0, element.value, element.gap_ms) for element in mine])
        by_order = {element.order: element for element in (*store.elements, *(held for held in again if held is not None), *needed)}
        everything = list(by_order.values())
        if self.process.element_order == "arrival":
            return sorted(needed, key=lambda element: element.order)
        return sorted(everything, key=lambda element: element[:2])

    def _pane(self, key: Key, pane: FiredPane, clock: OperatorClock, functions: FunctionState) -> Pane:
        rows = tuple(pane.rows)
        result: object = rows
        if self.job.fold is not None:
            result = over(self.job.fold, rows)
            if self.job.function is not None:
                context = functions.context(named(key), pane.window, clock, timing=pane.timing, index=pane.index)
                result = tuple(call_function(self.job.function, [{"result": result}], context))
        time = pane.time if pane.window == GLOBAL_WINDOW else None
        assert time is not None or pane.time == pane.window.max_timestamp
        return Pane(key, pane.window, pane.timing, pane.index, result, pane.replaces, time)


def read(text: str) -> Mapping[str, object]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def named(key: Key) -> dict[str, object]:
    return {"key": key[0]}


def in_contract_order(element: Element) -> tuple[int, object]:
    assert element.timestamp is not None
    return element.timestamp, element.position


def over(fold: Fold[tuple[object, ...]], rows: Sequence[object]) -> object:
    accumulator = fold.create()
    for element in rows:
        assert isinstance(element, HeldElement)
        accumulator = fold.add(accumulator, element.row, element.timestamp, ())
    return fold.result(accumulator)


def compare(job: ReferenceJob[tuple[object, ...]], epochs: Sequence[Epoch], *, hoards: bool = False) -> Iterator[EpochResult]:
    """Run both over the epochs, one source each; yield the reference's results once the process has done the same."""
    run = ProcessRun(job, hoards=hoards)
    for epoch, result in zip(epochs, run_reference(job, epochs), strict=True):
        seen = run.run_epoch(epoch.elements, result.source_watermarks["source"], result.processing_time)
        expected: dict[Key, list[Pane]] = {}
        for pane in result.panes:
            expected.setdefault(pane.key, []).append(pane)
        assert seen.panes == expected
        assert sorted(map(str, seen.late)) == sorted(str(element.value) for element in result.late)
        if not hoards:
            assert_same_state(run, result)
        yield result


def assert_same_state(run: ProcessRun, result: EpochResult) -> None:
    """Hold what is kept against what the reference keeps: no element too many, and nothing once the input has ended."""
    if run.watermark == MAX_WATERMARK:
        assert all(not store.elements for store in run.keys.values())
    for key, store in run.keys.items():
        windows = [found.window for found in result.open_windows if found.key == key]
        most = sum(found.elements for found in result.open_windows if found.key == key)
        fewest = max((found.elements for found in result.open_windows if found.key == key), default=0)
        assert fewest <= len(store.elements) <= most
        if not windows:
            assert store.deadlines == NEVER
        for text in (store.functions, dump(read(store.state or "{}").get("function", {}))):
            of_windows = read(text).get("windows", [])
            assert isinstance(of_windows, list)
            assert {None if bounds is None else tuple(bounds) for bounds, _ in of_windows} <= {shown(window) for window in windows}


def shown(window: Window) -> tuple[int, int] | None:
    return None if window == GLOBAL_WINDOW else (window.start, window.end)


def story(elements: Sequence[Row], context: WindowContext) -> Iterator[dict[str, object]]:
    """Tell all that a window function can see, and count calls per key and per window."""
    context.key_state["calls"] = int(str(context.key_state.get("calls", 0))) + 1
    told: dict[str, object] = {
        "ids": [element.get("id", element.get("result")) for element in elements],
        "key": context.key.get("key"),
        "window": None if context.window is None else (context.window.start, context.window.end),
        "now": (context.watermark, context.processing_time),
        "pane": (context.timing, context.index),
        "calls": context.key_state["calls"],
    }
    if context.of_window is not None:
        context.window_state["seen"] = [*as_list(context.window_state.get("seen")), len(elements)]
        told["seen"] = list(as_list(context.window_state["seen"]))
    yield told
    if len(elements) > 2:
        yield {"many": len(elements)}


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


TAKEN = Fold[tuple[object, ...]](
    create=tuple, add=lambda taken, value, _timestamp, _position: (*taken, identity(value)), result=lambda taken: taken
)
"""The elements in the order in which a pane has them."""


def identity(value: object) -> object:
    return value["id"] if isinstance(value, dict) else value


FUNCTIONS: dict[str, tuple[Fold[tuple[object, ...]] | None, WindowFunction | None]] = {
    "aggregate": (TAKEN, None),
    "process": (None, story),
    "aggregate, then process": (TAKEN, story),
}
