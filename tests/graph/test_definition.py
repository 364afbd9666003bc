"""Definitions of operators as plain JSON, and what is said of two that differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import tidemark as tm
from tidemark.graph.model.aggregates import Aggregate, Partial, PythonFunction
from tidemark.graph.operators.registry import definition_changes, encode
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.semantics.windows.windows import Window

COUNT = Aggregate("count", (), (Partial("n", "count(1)", "sum({n})"),), "{n}")


def total(column: str) -> Aggregate:
    return Aggregate("sum", (column,), (Partial("s", f"sum({column})", "sum({s})"),), "{s}")


def definition(
    *, size: str = "1 hour", lateness: str = "0 s", key: Any = "zone", aggregates: dict[str, Aggregate] | None = None
) -> dict[str, object]:
    spec = tm.from_elements([], schema="zone INT, fare DOUBLE, at TIMESTAMP")
    stream = tm.source("trips", spec, watermarks=tm.ascending(timestamp="at"))
    windows = stream.key_by(zone=key).window(tm.tumbling(size)).allowed_lateness(lateness)
    node = windows.aggregate(**({"n": COUNT, "tips": total("fare")} if aggregates is None else aggregates)).uid("w").node
    assert isinstance(node, WindowNode)
    return encode(node)


def compatible(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return in words why stored state of one definition does not fit another as it is; empty if it does."""
    return [change.what for change in definition_changes(old, new) if change.effect != "none"]


def test_definition_is_plain_json() -> None:
    found = definition(lateness="10 minutes")
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "format": 1,
        "kind": "window",
        "keys": [{"name": "zone", "expression": "zone"}],
        "assigner": {"kind": "Tumbling", "size_ms": 3_600_000, "offset_ms": 0},
        "aggregates": [
            {
                "name": "n",
                "kind": "count",
                "arguments": [],
                "partials": [{"name": "n", "create": "count(1)", "merge": "sum({n})"}],
                "result": "{n}",
            },
            {
                "name": "tips",
                "kind": "sum",
                "arguments": ["fare"],
                "partials": [{"name": "s", "create": "sum(fare)", "merge": "sum({s})"}],
                "result": "{s}",
            },
        ],
        "allowed_lateness_ms": 600_000,
    }


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"lateness": "1 hour"},
        {"aggregates": {"tips": total("fare"), "n": COUNT}},
        {"aggregates": {"n": Aggregate("count", (), COUNT.partials, "{n} + 0"), "tips": total("fare")}},
    ],
    ids=["nothing", "lateness", "order", "result"],
)
def test_what_may_change_freely(change: dict[str, Any]) -> None:
    assert compatible(definition(), definition(**change)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": "2 hours"}, ["the windows were tumbling 1h and are now tumbling 2h"]),
        ({"key": "zone + 1"}, ["key 'zone' was zone and is now zone + 1"]),
        ({"key": lambda: NotImplemented}, ["key 'zone' was zone and is now function"]),
        ({"aggregates": {"n": COUNT}}, ["aggregate 'tips' was removed"]),
        ({"aggregates": {"n": COUNT, "tips": total("fare"), "more": COUNT}}, ["aggregate 'more' is new"]),
        ({"aggregates": {"n": COUNT, "tips": total("zone")}}, ["'tips' was sum(fare) and is now sum(zone)"]),
        (
            {"aggregates": {"n": Aggregate("count", (), (Partial("n", "count(*)", "sum({n})"),), "{n}"), "tips": total("fare")}},
            ["aggregate 'n', count(), is computed differently"],
        ),
    ],
    ids=["windows", "key", "deferred key", "gone", "new", "argument", "partials"],
)
def test_what_does_not_fit(change: dict[str, Any], words: list[str]) -> None:
    findings = compatible(definition(), definition(**change))
    assert len(findings) == 1
    for part in words:
        assert part in findings[0]


def changed(windowed: tm.WindowedStream, **aggregates: Aggregate) -> dict[str, object]:
    node = windowed.aggregate(**(aggregates or {"n": COUNT})).node
    assert isinstance(node, WindowNode)
    return encode(node)


def zones(assigner: Any = None) -> tm.WindowedStream:
    spec = tm.from_elements([], schema="zone INT, fare DOUBLE, at TIMESTAMP")
    stream = tm.source("trips", spec, watermarks=tm.ascending(timestamp="at"))
    return stream.key_by("zone").window(assigner or tm.tumbling("1 hour"))


def further(last: Any, element: Any) -> float:
    return float(element["fare"] - last["fare"])


def nearer(last: Any, element: Any) -> float:
    return float(last["fare"] - element["fare"])


def every(elements: Any, context: Any) -> list[dict[str, object]]:
    return [{"n": len(list(elements)), "index": context.index}]


def one(elements: Any, context: Any) -> list[dict[str, object]]:
    return [{"n": len(list(elements)), "index": -context.index}]


class Own(tm.QuietTrigger):
    """A trigger of a user's own."""

    def __init__(self, every: int) -> None:
        self.every = every


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (tm.tumbling("10 ms", offset="3 ms"), {"kind": "Tumbling", "size_ms": 10, "offset_ms": 3}),
        (tm.tumbling("10 ms", time="processing"), {"kind": "Tumbling", "size_ms": 10, "offset_ms": 0, "domain": "processing"}),
        (tm.sliding("10 ms", "4 ms"), {"kind": "Sliding", "size_ms": 10, "slide_ms": 4, "offset_ms": 0}),
        (tm.cumulative("10 ms", "5 ms"), {"kind": "Cumulative", "max_size_ms": 10, "step_ms": 5, "offset_ms": 0}),
        (
            tm.tumbling("1 day", zone="Asia/Tokyo"),
            {"kind": "LocalWindows", "windows": {"kind": "Tumbling", "size_ms": 86_400_000, "offset_ms": 0}, "zone": "Asia/Tokyo"},
        ),
        (
            tm.cumulative("1 day", "1 hour", zone_by="string(zone)"),
            {
                "kind": "LocalWindows",
                "windows": {"kind": "Cumulative", "max_size_ms": 86_400_000, "step_ms": 3_600_000, "offset_ms": 0},
                "zone_by": "string(zone)",
            },
        ),
        (tm.session("10 ms"), {"kind": "Session", "gap_ms": 10}),
        (tm.session(gap_by="zone"), {"kind": "DynamicSession", "gap_by": "zone"}),
        (tm.count_window(10, 5), {"kind": "CountWindows", "size": 10, "slide": 5}),
    ],
    ids=repr,
)
def test_assigners_are_recorded(assigner: Any, expected: dict[str, object]) -> None:
    found = changed(zones(assigner))
    assert found["assigner"] == expected
    assert compatible(changed(zones()), found)[0].startswith("the windows were")


def test_assigners_of_ones_own_are_recorded_by_their_text() -> None:
    def first() -> type[Tumbling]:
        class Days(Tumbling):
            """Windows of a user's own."""

        return Days

    def second() -> type[Tumbling]:
        class Days(Tumbling):
            """The same name and settings, another rule."""

            def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:
                return super().assign(timestamp + 1, gap_ms)

        return Days

    found = definition_of_windows(first()(10))
    assert found["assigner"]["kind"] == "Days"
    assert compatible(found, definition_of_windows(first()(10))) == []
    (finding,) = compatible(found, definition_of_windows(second()(10)))
    assert finding.startswith("the windows were ")
    # An earlier build recorded no text: nothing can be said of a change then.
    found["assigner"].pop("text")
    assert compatible(found, definition_of_windows(second()(10))) == []


def definition_of_windows(assigner: Any) -> dict[str, Any]:
    node = zones().aggregate(n=COUNT).node
    assert isinstance(node, WindowNode)
    return encode(replace(node, assigner=assigner))


def test_what_windows_do_by_themselves_is_not_recorded() -> None:
    plain = changed(zones())
    assert plain.keys() == {"format", "kind", "keys", "assigner", "aggregates", "allowed_lateness_ms"}
    assert changed(zones().trigger(tm.event_time_trigger())) == plain
    clock = tm.tumbling("1 hour", time="processing")
    assert changed(zones(clock).trigger(tm.processing_time_trigger())) == changed(zones(clock))
    assert "trigger" in changed(zones(tm.global_window()).trigger(tm.event_time_trigger()))


def test_triggers_are_recorded_with_all_that_is_in_them() -> None:
    trigger = tm.purging_trigger(tm.event_time_trigger(early=tm.delta_trigger(2, further)))
    found = json.loads(json.dumps(changed(zones().trigger(trigger))["trigger"]))
    delta = found["inner"]["early"].pop("delta")
    assert found == {"kind": "PurgingTrigger", "inner": {"kind": "EventTimeTrigger", "early": {"kind": "DeltaTrigger", "threshold": 2}}}
    assert re.fullmatch("function [0-9a-f]{16}", delta)


def test_triggers_of_ones_own_are_recorded_by_their_text_and_fields() -> None:
    found = changed(zones().trigger(Own(5)))["trigger"]
    assert isinstance(found, dict)
    assert (found["kind"], found["every"], len(found["text"])) == ("Own", 5, 16)


SAME_KIND: dict[str, tuple[tm.Trigger, tm.Trigger]] = {
    "count": (tm.count_trigger(5), tm.count_trigger(6)),
    "interval": (tm.continuous_event_time_trigger("5 ms"), tm.continuous_event_time_trigger("6 ms")),
    "threshold": (tm.delta_trigger(1, further), tm.delta_trigger(2, further)),
    "delta": (tm.delta_trigger(1, further), tm.delta_trigger(1, nearer)),
    "inner": (tm.event_time_trigger(early=tm.count_trigger(5)), tm.event_time_trigger(early=tm.count_trigger(6))),
    "own": (Own(5), Own(6)),
}


@pytest.mark.parametrize(("before", "after"), SAME_KIND.values(), ids=SAME_KIND.keys())
def test_settings_of_a_trigger_may_change_freely(before: tm.Trigger, after: tm.Trigger) -> None:
    old, new = changed(zones().trigger(before)), changed(zones().trigger(after))
    assert old != new
    assert compatible(old, new) == []


OTHER_KIND: dict[str, tuple[tm.Trigger, tm.Trigger]] = {
    "none": (tm.event_time_trigger(), tm.count_trigger(5)),
    "kind": (tm.count_trigger(5), tm.each_epoch_trigger()),
    "purging": (tm.count_trigger(5), tm.purging_trigger(tm.count_trigger(5))),
    "early": (tm.event_time_trigger(early=tm.count_trigger(5)), tm.event_time_trigger(early=tm.each_epoch_trigger())),
    "late": (tm.event_time_trigger(early=tm.count_trigger(5)), tm.event_time_trigger(late=tm.count_trigger(5))),
}


@pytest.mark.parametrize(("before", "after"), OTHER_KIND.values(), ids=OTHER_KIND.keys())
def test_the_kind_of_a_trigger_may_not_change(before: tm.Trigger, after: tm.Trigger) -> None:
    old, new = changed(zones().trigger(before)), changed(zones().trigger(after))
    for one_way, other_way in ((old, new), (new, old)):
        (finding,) = compatible(one_way, other_way)
        assert finding.startswith("the trigger was ")
    assert compatible(new, json.loads(json.dumps(new))) == []


def test_evictors_and_functions_may_change_freely() -> None:
    windowed = zones().trigger(tm.count_trigger(5))
    nodes = [
        windowed.process(every, "n INT").node,
        windowed.process(one, "n INT").node,
        windowed.process(every, "n BIGINT").node,
        windowed.process(tm.window_function(every, "n INT", batches=True)).node,
        windowed.evictor(tm.count_evictor(5)).process(every, "n INT").node,
        windowed.evictor(tm.count_evictor(5, after=True)).process(every, "n INT").node,
        windowed.evictor(tm.delta_evictor(5, further)).process(every, "n INT").node,
        windowed.evictor(tm.delta_evictor(5, nearer)).process(every, "n INT").node,
    ]
    definitions = [encode(node) for node in nodes if isinstance(node, WindowNode)]
    assert len({json.dumps(definition) for definition in definitions}) == len(nodes)
    assert [compatible(old, new) for old in definitions for new in definitions] == [[]] * len(nodes) ** 2


def test_a_function_behind_aggregates_may_come_and_go() -> None:
    plain, then = (zones().aggregate(*first, n=COUNT).node for first in ((), (tm.window_function(every, "n INT"),)))
    assert isinstance(plain, WindowNode)
    assert isinstance(then, WindowNode)
    assert compatible(encode(plain), encode(then)) == []
    assert compatible(encode(then), encode(plain)) == []


def test_kept_elements_are_not_kept_aggregates() -> None:
    full = zones().process(every, "n INT").node
    assert isinstance(full, WindowNode)
    (finding,) = compatible(changed(zones()), encode(full))
    assert finding == "it kept aggregates and is now to keep all elements of a window, which the stored windows do not have"
    (finding,) = compatible(encode(full), changed(zones()))
    assert finding.startswith("it kept all elements of a window and is now to keep aggregates")


def test_reducing_in_another_way_does_not_fit() -> None:
    def of(*function: Any, **settings: Any) -> dict[str, object]:
        node = zones().reduce(*function, **settings).node
        assert isinstance(node, WindowNode)
        return encode(node)

    by_sql = of(fare="a.fare + b.fare")
    assert compatible(by_sql, of(fare="a.fare + b.fare")) == []
    assert "computed differently" in compatible(by_sql, of(fare="a.fare"))[0]
    assert "reduce(`fare`) and is now reduce(`fare`, `at`)" in compatible(by_sql, of(fare="a.fare + b.fare", at="b.at"))[0]
    by_function = of(further, columns=["fare"])
    assert compatible(by_function, of(further, columns=["fare"])) == []
    assert "computed differently" in compatible(by_function, of(nearer, columns=["fare"]))[0]


def test_another_kind_of_operator() -> None:
    assert compatible({"kind": "process"}, definition()) == ["it was a process operator and is now a window operator"]


def test_python_functions_are_compared_by_their_text() -> None:
    def of(name: str, function: Any) -> dict[str, object]:
        partials = (Partial("x", f"{name}(collect_list(zone))", f"{name}(collect_list({{x}}))"),)
        return definition(aggregates={"x": Aggregate("python", ("zone",), partials, "{x}", (PythonFunction(name, function, "INT"),))})

    assert compatible(of("fold_1", len), of("fold_12", len)) == []
    assert compatible(of("fold_1", len), of("fold_1", lambda items: 0 * len(items))) != []
