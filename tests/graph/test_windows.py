"""The fluent face of windows: which nodes it builds of assigners, triggers, evictors and what is made of a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.process.evictors import CountEvictor, DeltaEvictor, TimeEvictor
from tidemark.semantics.triggers import builtin_triggers as rules
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, DynamicSession, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.windows import WindowAssigner

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LATE = tm.OutputTag("late")
COUNTS = tm.count_trigger(10)


def zones(assigner: WindowAssigner | None = None) -> tm.WindowedStream:
    spec = tm.from_elements([], schema="zone INT, fare DOUBLE, top INT, at TIMESTAMP")
    trips = tm.source("trips", spec, watermarks=tm.ascending(timestamp="at"))
    return trips.key_by("zone").window(assigner or tm.tumbling("1 hour"))


def built(stream: tm.Stream) -> WindowNode:
    assert isinstance(stream.node, WindowNode)
    return stream.node


def far(one: Any, other: Any) -> float:
    return float(other["fare"] - one["fare"])


def every(elements: Any, context: Any) -> Iterator[dict[str, object]]:
    yield {"n": len(list(elements)), "index": context.index}


def added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {name: a[name] + b[name] for name in a}


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (tm.tumbling("1 day", offset="-8 hours"), Tumbling(DAY, -8 * HOUR)),
        (tm.tumbling(timedelta(hours=1), time="processing"), Tumbling(HOUR, 0, "processing")),
        (tm.sliding("1 day", "15 minutes", offset="5 minutes"), Sliding(DAY, 15 * MINUTE, 5 * MINUTE)),
        (tm.sliding("1000 ms", "7 ms", time="processing"), Sliding(1000, 7, 0, "processing")),
        (tm.cumulative("1 day", "1 hour", offset="-1 hour"), Cumulative(DAY, HOUR, -HOUR)),
        (tm.cumulative("10 ms", "5 ms", time="processing"), Cumulative(10, 5, 0, "processing")),
        (tm.session("30 minutes"), Session(30 * MINUTE)),
        (tm.session("5 ms", time="processing"), Session(5, "processing")),
        (tm.session(gap_by=" zone * 1000 "), DynamicSession("zone * 1000")),
        (tm.session(gap_by="zone", time="processing"), DynamicSession("zone", "processing")),
        (tm.count_window(100), CountWindows(100)),
        (tm.count_window(100, 10), CountWindows(100, 10)),
        (tm.global_window(), GlobalWindows()),
    ],
    ids=repr,
)
def test_assigners(assigner: WindowAssigner, expected: WindowAssigner) -> None:
    assert assigner == expected


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (tm.event_time_trigger(), rules.EventTimeTrigger()),
        (
            tm.event_time_trigger(early=COUNTS, late=tm.each_epoch_trigger()),
            rules.EventTimeTrigger(rules.CountTrigger(10), rules.EachEpochTrigger()),
        ),
        (tm.processing_time_trigger(), rules.ProcessingTimeTrigger()),
        (tm.continuous_event_time_trigger("1 minute"), rules.ContinuousEventTimeTrigger(MINUTE)),
        (tm.continuous_processing_time_trigger(timedelta(seconds=1)), rules.ContinuousProcessingTimeTrigger(1000)),
        (tm.delta_trigger(2.5, far), rules.DeltaTrigger(2.5, far)),
        (tm.never_trigger(), rules.NeverTrigger()),
        (tm.purging_trigger(COUNTS), rules.PurgingTrigger(rules.CountTrigger(10))),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_triggers(trigger: tm.Trigger, expected: tm.Trigger) -> None:
    assert trigger == expected
    assert built(zones().trigger(trigger).aggregate(n=tm.count())).trigger is trigger


@pytest.mark.parametrize(
    ("evictor", "expected"),
    [
        (tm.count_evictor(3), CountEvictor(3)),
        (tm.time_evictor("1 minute", after=True), TimeEvictor(MINUTE, after=True)),
        (tm.delta_evictor(2, far, after=True), DeltaEvictor(2, far, after=True)),
    ],
    ids=lambda evictor: type(evictor).__name__,
)
def test_evictors(evictor: tm.Evictor, expected: tm.Evictor) -> None:
    assert evictor == expected
    assert built(zones().evictor(evictor).process(every, "n INT")).evictor is evictor


def test_what_is_not_given_goes_without_saying() -> None:
    node = built(zones().aggregate(n=tm.count()))
    assert (node.trigger, node.evictor, node.function, node.reduced) == (None, None, None, ())


@dataclass(frozen=True)
class OnRush(tm.QuietTrigger):
    """A trigger of a user's own."""

    minutes: int = 5

    def on_element(self, element: object, timestamp: int, window: tm.Window, context: tm.TriggerContext) -> tm.TriggerResult:
        assert element is not None
        assert timestamp < window.end
        context.put("rush", self.minutes)
        return tm.TriggerResult.FIRE


def test_triggers_and_evictors_of_ones_own() -> None:
    class Odd:
        after = False

        def evicted(self, elements: Any) -> frozenset[int]:
            return frozenset(range(0, len(elements), 2))

        def describe(self) -> str:
            return "odd ones"

    node = built(zones(tm.session("1 hour")).trigger(OnRush()).evictor(Odd()).process(every, "n INT"))
    assert node.trigger == OnRush()
    assert isinstance(node.evictor, Odd)


@pytest.mark.parametrize(
    ("windowed", "inner"),
    [
        (zones().trigger(COUNTS), COUNTS),
        (zones().allowed_lateness("1 hour"), rules.EventTimeTrigger()),
        (zones().trigger(tm.event_time_trigger(early=COUNTS)), rules.EventTimeTrigger(COUNTS)),
        (
            zones(tm.tumbling("5 ms", time="processing")).trigger(tm.continuous_processing_time_trigger("1 ms")),
            rules.ContinuousProcessingTimeTrigger(1),
        ),
        (zones(tm.global_window()).trigger(COUNTS), COUNTS),
        (zones().trigger(tm.processing_time_trigger()), rules.ProcessingTimeTrigger()),
    ],
    ids=["count", "lateness", "early", "clock", "global", "event time by the clock"],
)
def test_discarding_purges_the_trigger_in_effect(windowed: tm.WindowedStream, inner: tm.Trigger) -> None:
    assert built(windowed.discarding().aggregate(n=tm.count())).trigger == rules.PurgingTrigger(inner)
    assert built(windowed.accumulating().aggregate(n=tm.count())).trigger == windowed.fires_by


def test_the_order_of_settings_does_not_count() -> None:
    first = zones().discarding().late_to(LATE).allowed_lateness("1 hour").trigger(COUNTS)
    last = zones().trigger(COUNTS).allowed_lateness("1 hour").late_to(LATE).discarding()
    nodes = [built(windowed.aggregate(n=tm.count())) for windowed in (first, last)]
    assert [(node.trigger, node.allowed_lateness_ms, node.late_to) for node in nodes] == [(tm.purging_trigger(COUNTS), HOUR, LATE)] * 2


def test_settings_leave_the_stream_as_it_was() -> None:
    windowed = zones()
    windowed.trigger(COUNTS)
    windowed.discarding()
    windowed.evictor(tm.count_evictor(1))
    assert (windowed.fires_by, windowed.purges, windowed.evicts_by) == (None, None, None)


def test_process_takes_a_function_or_a_window_function() -> None:
    plain = built(zones().process(every, returns="n INT, index INT"))
    batches = built(zones().process(tm.window_function(every, "n INT", batches=True)))
    assert plain.aggregates == batches.aggregates == ()
    assert plain.function is not None
    assert batches.function is not None
    assert (plain.function.function, plain.function.returns, plain.function.batches) == (every, "n INT, index INT", False)
    assert batches.function.batches
    assert plain.function.place == plain.place
    assert __file__ in plain.place


def test_aggregate_then_process() -> None:
    node = built(zones().aggregate(tm.window_function(every, "n INT"), trips=tm.count(), top=tm.max("zone")))
    assert [name for name, _ in node.aggregates] == ["trips", "top"]
    assert node.function is not None
    assert node.function.function is every


def test_reduce_by_sql() -> None:
    node = built(zones().reduce(fare=" a.fare + b.fare ", top="greatest(a.top, b.top)"))
    ((name, aggregate),) = node.aggregates
    assert node.reduced == (("fare", "a.fare + b.fare"), ("top", "greatest(a.top, b.top)"))
    assert (name, aggregate.kind, aggregate.ordered, aggregate.functions) == ("reduced", "reduce", True, ())


def test_reduce_by_a_function() -> None:
    node = built(zones().reduce(added, columns=["top", "fare"]))
    assert node.reduced == (("top", None), ("fare", None))
    _, aggregate = node.aggregates[0]
    assert aggregate.kind == "reduce"
    assert {function.returns for function in aggregate.functions} == {"`top` INT, `fare` DOUBLE"}


def folding(function: Callable[..., Any], **settings: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what makes a state of elements, and what merges states, given rows with their orders."""
    _, aggregate = built(zones().reduce(function, **settings)).aggregates[0]
    fold, merge, _ = (each.function for each in aggregate.functions)
    return fold, merge


def elements(*rows: tuple[int, Any, Any]) -> list[dict[str, Any]]:
    return [{"order": {"time": time}, "values": {"1": fare, "2": top}} for time, fare, top in rows]


def first_of(a: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    return a


def test_reduce_by_a_function_goes_by_order() -> None:
    fold, merge = folding(first_of, columns=["fare", "top"])
    late, early = fold(elements((9, 1.5, 2), (7, 2.5, 3))), fold(elements((5, None, 4)))
    assert (late, early) == ({"fare": 2.5, "top": 3}, {"fare": None, "top": 4})
    assert merge([{"order": {"time": 7}, "state": late}, {"order": {"time": 5}, "state": early}]) == early


def test_whole_numbers_in_a_column_of_fractions_become_fractions() -> None:
    fold, _ = folding(lambda _a, _b: {"top": 1, "fare": 2}, columns=["fare", "top"])
    row = fold(elements((1, 0.0, 0), (2, 0.0, 0)))
    assert [(name, value, type(value)) for name, value in row.items()] == [("fare", 2.0, float), ("top", 1, int)]


@pytest.mark.parametrize("returned", [None, {}, {"fare": 1.0}, {"fare": 1.0, "top": 2, "more": 3}], ids=repr)
def test_a_reduced_row_has_the_columns_and_no_others(returned: Any) -> None:
    fold, _ = folding(lambda _a, _b: returned, columns=["fare", "top"])
    with pytest.raises(tm.TidemarkError, match="not a dict of the columns fare, top"):
        fold(elements((1, 0.0, 0), (2, 0.0, 0)))


def test_a_function_that_changes_its_arguments_changes_no_others() -> None:
    def into_first(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        a["fare"] += b["fare"]
        b.clear()
        return a

    fold, _ = folding(into_first, columns=["fare", "top"])
    assert fold(elements((1, 1.0, 7), (2, 2.0, 8), (3, 3.0, 9))) == {"fare": 6.0, "top": 7}


def test_windows_that_differ_only_in_uid_are_told_apart() -> None:
    windowed = zones()
    one, other = windowed.process(every, "n INT"), windowed.process(every, "n INT").uid("other")
    with pytest.raises(DefinitionError) as caught:
        tm.Job("taxi", outputs={"a": tm.console(one), "b": tm.console(other)})
    assert "give it one" in caught.value.fix
