"""Definitions of operators as plain JSON, and what is said of two that differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tidemark as tm
from tidemark.graph.aggregates import Aggregate, Partial, PythonFunction
from tidemark.graph.definition import compatible, operator_definition
from tidemark.graph.nodes import WindowNode

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
    return operator_definition(node)


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
        ({"size": "2 hours"}, ["windows were", "3600000", "7200000"]),
        ({"key": "zone + 1"}, ["key 'zone' was zone and is now zone + 1"]),
        ({"key": lambda: NotImplemented}, ["key 'zone' was zone and is now function"]),
        ({"aggregates": {"n": COUNT}}, ["aggregate 'tips' is gone"]),
        ({"aggregates": {"n": COUNT, "tips": total("fare"), "more": COUNT}}, ["aggregate 'more' is new"]),
        ({"aggregates": {"n": COUNT, "tips": total("zone")}}, ["'tips' was sum(fare) and is now sum(zone)"]),
        (
            {"aggregates": {"n": Aggregate("count", (), (Partial("n", "count(*)", "sum({n})"),), "{n}"), "tips": total("fare")}},
            ["aggregate 'n', count(), is made in another way"],
        ),
    ],
    ids=["windows", "key", "deferred key", "gone", "new", "argument", "partials"],
)
def test_what_does_not_fit(change: dict[str, Any], words: list[str]) -> None:
    findings = compatible(definition(), definition(**change))
    assert len(findings) == 1
    for part in words:
        assert part in findings[0]


def test_another_kind_of_operator() -> None:
    assert compatible({"kind": "process"}, definition()) == ["it was a process operator and is now a window operator"]


def test_python_functions_are_compared_by_their_text() -> None:
    def of(name: str, function: Any) -> dict[str, object]:
        partials = (Partial("x", f"{name}(collect_list(zone))", f"{name}(collect_list({{x}}))"),)
        return definition(aggregates={"x": Aggregate("python", ("zone",), partials, "{x}", (PythonFunction(name, function, "INT"),))})

    assert compatible(of("fold_1", len), of("fold_12", len)) == []
    assert compatible(of("fold_1", len), of("fold_1", lambda items: 0 * len(items))) != []
