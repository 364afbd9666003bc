"""Random programs of state operations and timers, which the walk and the reference both run.

An element's row has the operations to run, in its column ``ops``; a timer runs those of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tidemark.semantics.keyed_process.context import ProcessContext, Row
from tidemark.semantics.keyed_process.declarations import Aggregation, StateDeclaration, StateTtl, reducing
from tidemark.semantics.keyed_process.states import State
from tidemark.semantics.keyed_process.walk import Process

Op = tuple[Any, ...]
Ops = Sequence[Op]

SUM = Aggregation(create=lambda: (0, 0), add=lambda so_far, value: (so_far[0] + value, so_far[1] + 1), result=lambda so_far: so_far)

_SMALL = st.integers(0, 4)
_DOMAIN = st.sampled_from(["event", "event", "processing"])
_NAME = st.sampled_from([None, None, "a", "b"])
_STATE_OPS = st.one_of(
    st.tuples(st.just("update"), st.one_of(_SMALL, st.none())),
    st.tuples(st.just("clear"), st.sampled_from(["value", "list", "map", "most", "sum"])),
    st.tuples(st.just("add"), _SMALL),
    st.tuples(st.just("replace"), st.lists(_SMALL, max_size=3)),
    st.tuples(st.just("put"), _SMALL, _SMALL),
    st.tuples(st.just("remove"), _SMALL),
    st.tuples(st.just("most"), _SMALL),
    st.tuples(st.just("sum"), _SMALL),
    st.tuples(st.just("emit"), st.sampled_from(["value", "list", "map", "get", "most", "sum", "times"])),
    st.tuples(st.just("aside"), st.sampled_from(["left", "right"])),
)
_TIMER_OPS = st.one_of(
    st.tuples(st.just("register"), _DOMAIN, st.integers(-5, 40), _NAME),
    st.tuples(st.just("delete"), _DOMAIN, st.integers(-5, 40), _NAME),
)
_OPS = st.lists(st.one_of(_STATE_OPS, _STATE_OPS, _TIMER_OPS, st.just(("fail",))), max_size=5)
_LATER = st.one_of(
    _STATE_OPS, st.tuples(st.just("register"), _DOMAIN, st.integers(1, 40), _NAME), st.tuples(st.just("delete"), _DOMAIN, _SMALL, _NAME)
)


@dataclass(frozen=True)
class Cut:
    """One epoch of one key: its elements in order, and the times of the operator."""

    elements: Sequence[tuple[int, Ops]]
    before: int
    watermark: int
    processing_time: int


@dataclass(frozen=True)
class Program:
    """A key's life: epochs, the operations of timers by their time modulo their number, and the lifetimes of states."""

    epochs: Sequence[Cut]
    on_timer: Sequence[Ops]
    ttl: Mapping[str, StateTtl | None]
    bound: int
    forgives: bool

    @property
    def declarations(self) -> dict[str, StateDeclaration]:
        """The states."""
        return {
            "value": StateDeclaration("value", "value", default=-1, ttl=self.ttl["value"]),
            "list": StateDeclaration("list", "list", ttl=self.ttl["list"]),
            "map": StateDeclaration("map", "map", ttl=self.ttl["map"]),
            "most": StateDeclaration("most", "reducing", aggregation=reducing(max), ttl=self.ttl["most"]),
            "sum": StateDeclaration("sum", "aggregating", aggregation=SUM, ttl=self.ttl["sum"]),
        }


def _ttls() -> st.SearchStrategy[StateTtl | None]:
    made = st.builds(StateTtl, st.integers(1, 30), st.sampled_from(["event", "processing"]), st.booleans())
    return st.one_of(st.none(), st.none(), made)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program."""
    bound, watermark, processing_time = draw(st.integers(0, 5)), -(2**40), draw(st.integers(0, 10))
    epochs, latest = [], 0
    for _ in range(draw(st.integers(1, 5))):
        times = sorted(draw(st.lists(st.integers(max(0, latest - 8), latest + 25), max_size=5)))
        latest = max([latest, *times])
        before = watermark
        watermark = max(watermark, draw(st.sampled_from([latest - bound - 1, latest + 30, watermark])))
        processing_time += draw(st.integers(0, 20))
        epochs.append(Cut([(time, draw(_OPS)) for time in times], before, watermark, processing_time))
    return Program(
        epochs,
        draw(st.lists(st.lists(st.one_of(_LATER, st.just(("fail",))), max_size=3), min_size=1, max_size=4)),
        {name: draw(_ttls()) for name in ("value", "list", "map", "most", "sum")},
        bound,
        forgives=True,
    )


class ProgramFailedError(Exception):
    """What ``fail`` raises."""


@dataclass
class Interpreter:
    """A process function that runs programs."""

    on_timers: Sequence[Ops]
    states: Mapping[str, Any] = field(default_factory=dict)

    def bind(self, states: Mapping[str, State], _ctx: ProcessContext) -> None:
        self.states = states

    @property
    def inputs(self) -> Sequence[Process]:
        return (self.process,)

    def process(self, row: Row, ctx: ProcessContext) -> Iterator[Row]:
        yield from self.run(row["ops"], ctx)  # type: ignore[arg-type]

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterator[Row]:
        yield {"timer": timestamp, "name": ctx.timer_name}
        yield from self.run(self.on_timers[timestamp % len(self.on_timers)], ctx)

    def run(self, ops: Ops, ctx: ProcessContext) -> Iterator[Row]:
        for name, *arguments in ops:
            if name == "emit":
                yield {"found": self._read(arguments[0], ctx)}
            elif name == "aside":
                ctx.output(arguments[0], {"at": ctx.timestamp})
            else:
                self._change(name, arguments, ctx)

    def _change(self, name: str, arguments: Sequence[Any], ctx: ProcessContext) -> None:
        states, timers = self.states, ctx.timer_service()
        if name == "fail":
            raise ProgramFailedError
        if name == "register":
            domain, distance, timer = arguments
            now = ctx.timestamp if domain == "event" else ctx.current_processing_time()
            {"event": timers.register_event_time_timer, "processing": timers.register_processing_time_timer}[domain](now + distance, timer)
            return
        if name == "delete":
            domain, distance, timer = arguments
            now = ctx.timestamp if domain == "event" else ctx.current_processing_time()
            delete = {"event": timers.delete_event_time_timer, "processing": timers.delete_processing_time_timer}[domain]
            delete(name=timer) if timer is not None else delete(now + distance)
            return
        changes: dict[str, Callable[..., Any]] = {
            "update": states["value"].update,
            "clear": lambda state: states[state].clear(),
            "add": states["list"].add,
            "replace": states["list"].update,
            "put": states["map"].put,
            "remove": states["map"].remove,
            "most": states["most"].add,
            "sum": states["sum"].add,
        }
        changes[name](*arguments)

    def _read(self, what: str, ctx: ProcessContext) -> object:
        states = self.states
        reads: dict[str, Callable[[], object]] = {
            "value": states["value"].value,
            "list": states["list"].get,
            "map": lambda: (sorted(states["map"].items()), states["map"].is_empty()),
            "get": lambda: (states["map"].get(1), states["map"].contains(2)),
            "most": states["most"].get,
            "sum": states["sum"].get,
            "times": lambda: (ctx.timestamp, ctx.current_watermark(), ctx.current_processing_time()),
        }
        return reads[what]()
