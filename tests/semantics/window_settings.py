"""Assigners, triggers, evictors and epochs as Hypothesis draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from tests.semantics.process_runs import FUNCTIONS
from tidemark.semantics.process.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from tidemark.semantics.reference.reference import Epoch, ReferenceJob
from tidemark.semantics.reference.reference_operator import Element, Key
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from tidemark.semantics.triggers.triggers import MergeContext, QuietTrigger, Trigger, TriggerContext, TriggerResult
from tidemark.semantics.watermarks.watermarks import BoundedOutOfOrderness, WatermarkStrategy
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, DynamicSession, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.windows import TimeDomain, Window, WindowAssigner


def apart(last: Mapping[str, object], element: Mapping[str, object]) -> float:
    return abs(float(str(element["amount"])) - float(str(last["amount"])))


@dataclass(frozen=True)
class EverySecondTimer(QuietTrigger):
    """A trigger of a user's own: fires at timers that it sets from timers of both times, deletes some, purges at the fourth element."""

    step: int

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:
        seen = as_count(context.get("seen")) + 1
        context.put("seen", seen)
        context.put("row", {"last": timestamp, "rows": [window.start]})
        context.register_event_time_timer(timestamp + self.step)
        context.register_processing_time_timer(context.processing_time + seen)
        if isinstance(element, Mapping) and element["amount"] == 0:
            context.delete_event_time_timer(timestamp + self.step)
        return TriggerResult.PURGE if seen % 4 == 0 else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        if time % 2 == 0 and time < window.max_timestamp:
            context.register_event_time_timer(time + 1)
            return TriggerResult.CONTINUE
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        if time % 3 == 0:
            context.delete_event_time_timer(window.max_timestamp)
            return TriggerResult.CONTINUE
        context.register_event_time_timer(time - 1 if time - 1 != context.get("set") else time)
        context.put("set", time - 1)
        return TriggerResult.CONTINUE

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:
        if as_count(context.get("seen")) % 3 == 0:
            context.register_event_time_timer(min(context.watermark, window.max_timestamp))
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, context: MergeContext) -> None:
        context.put("seen", sum(map(as_count, context.merged("seen"))))
        context.register_event_time_timer(window.max_timestamp)

    def describe(self) -> str:
        return f"every_second_timer({self.step})"


def as_count(value: object) -> int:
    return value if isinstance(value, int) else 0


DOMAINS: st.SearchStrategy[TimeDomain] = st.sampled_from(["event", "event", "processing"])
ASSIGNERS: dict[str, st.SearchStrategy[WindowAssigner]] = {
    "tumbling": st.builds(Tumbling, st.just(10), st.integers(-9, 9), DOMAINS),
    "sliding": st.one_of(
        st.builds(Sliding, st.just(10), st.sampled_from([3, 5]), st.integers(-2, 2), DOMAINS),
        st.builds(Sliding, st.just(4), st.just(6), st.integers(-5, 5), DOMAINS),
    ),
    "cumulative": st.builds(Cumulative, st.just(12), st.sampled_from([4, 6]), st.integers(-11, 11), DOMAINS),
    "session": st.builds(Session, st.integers(1, 9), DOMAINS),
    "dynamic session": st.builds(DynamicSession, st.just("gap"), DOMAINS),
    "global": st.just(GlobalWindows()),
}
COUNTS = st.builds(CountWindows, st.integers(1, 5), st.one_of(st.none(), st.integers(1, 6)))

STEPS = st.sampled_from([1, 3, 4, 7])
SIMPLE: dict[str, st.SearchStrategy[Trigger]] = {
    "event time": st.just(EventTimeTrigger()),
    "processing time": st.just(ProcessingTimeTrigger()),
    "continuous event time": st.builds(ContinuousEventTimeTrigger, STEPS),
    "continuous processing time": st.builds(ContinuousProcessingTimeTrigger, STEPS),
    "count": st.builds(CountTrigger, st.integers(1, 4)),
    "delta": st.builds(DeltaTrigger, st.integers(0, 4), st.just(apart)),
    "each epoch": st.just(EachEpochTrigger()),
    "never": st.just(NeverTrigger()),
    "own": st.builds(EverySecondTimer, STEPS),
}
ANY = st.one_of(*SIMPLE.values())
COMBINED = st.builds(EventTimeTrigger, st.one_of(st.none(), ANY), st.one_of(st.none(), ANY))
TRIGGERS: dict[str, st.SearchStrategy[Trigger]] = {
    **SIMPLE,
    "early and late": COMBINED,
    "purging": st.builds(PurgingTrigger, st.one_of(ANY, COMBINED)),
}
EVICTORS: st.SearchStrategy[Evictor | None] = st.one_of(
    st.none(),
    st.builds(CountEvictor, st.integers(1, 4), st.booleans()),
    st.builds(TimeEvictor, st.integers(1, 12), st.booleans()),
    st.builds(DeltaEvictor, st.integers(0, 4), st.just(apart), st.booleans()),
)
LATENESS = st.sampled_from([0, 0, 3, 10, 40])
KEYS: tuple[Key, ...] = (("a",), ("a",), (None,))
ARRIVALS = st.lists(st.integers(0, len(KEYS) * 25 * 7 * 12 - 1), min_size=5, max_size=18)
"""Key, step in time, amount and gap of each element, in one number: Hypothesis takes its time over each thing it draws."""


@st.composite
def jobs(
    draw: st.DrawFn, assigner: st.SearchStrategy[WindowAssigner], trigger: st.SearchStrategy[Trigger | None]
) -> ReferenceJob[tuple[object, ...]]:
    fold, function = FUNCTIONS[draw(st.sampled_from(sorted(FUNCTIONS)))]
    chosen, windows = draw(trigger), draw(assigner)
    counts = isinstance(windows, CountWindows)
    return ReferenceJob(
        {"source": WatermarkStrategy("t", BoundedOutOfOrderness(draw(st.integers(0, 12))), max_future_skew_ms=None)},
        windows,
        fold,
        0 if counts else draw(LATENESS),
        trigger=chosen,
        evictor=None if counts else draw(EVICTORS),
        function=function,
        key_names=("key",),
    )


@st.composite
def epochs(draw: st.DrawFn, *, ended: bool | None = None) -> list[Epoch]:
    """Draw elements in order of arrival, mostly going on in time, cut into epochs while the clock goes on."""
    time, elements = draw(st.integers(-20, 20)), []
    for place, number in enumerate(draw(ARRIVALS)):
        rest, ahead = divmod(number, 25)
        rest, amount = divmod(rest, 7)
        key, gap = divmod(rest, 12)
        step = ahead if ahead <= 10 else 10 - ahead
        elements.append(Element(KEYS[key], time + step, {"id": place, "amount": amount}, position=(place,), gap_ms=gap + 1))
        time = max(time, time + step)
    cuts = [divmod(number, 10) for number in draw(st.lists(st.integers(0, len(elements) * 10 + 9), max_size=6))]
    now, cut = draw(st.integers(-5, 5)), []
    for (low, _), (high, passed) in pairwise([(0, 0), *sorted(cuts), (len(elements), 4)]):
        now += passed
        cut.append(Epoch(tuple(elements[low:high]), now))
    if draw(st.booleans()) if ended is None else ended:
        cut.append(Epoch((), now + 3, end_of_input=True))
    return cut
