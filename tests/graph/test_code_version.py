"""The code version changes with what a job computes, and with nothing else."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tidemark as tm
from tidemark.graph.expressions.function_fingerprint import function_text
from tidemark.graph.job.code_version import code_version
from tidemark.graph.model.aggregates import Aggregate, Partial, PythonFunction

COUNT = Aggregate("count", (), (Partial("n", "count(1)", "sum({n})"),), "{n}")
BASE: dict[str, Any] = {}


def times(factor: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def scale(row: dict[str, Any]) -> dict[str, Any]:
        return {"zone": row["zone"] * factor, "at": row["at"]}

    return scale


def same_as_times(factor: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def scale(row: dict[str, Any]) -> dict[str, Any]:
        return {"at": row["at"], "zone": row["zone"] * factor}

    return scale


def folded(name: str, returns: str = "INT") -> Aggregate:
    functions = (PythonFunction(name, len, returns),)
    return Aggregate("python", ("zone",), (Partial("x", f"{name}(collect_list(zone))", f"{name}(collect_list({{x}}))"),), "{x}", functions)


def job(**change: Any) -> tm.Job:
    """One job, of which each argument changes one thing."""
    trips = tm.source(
        change.get("source", "trips"),
        tm.files(change.get("landing", "landing"), format="json", schema=change.get("schema", "zone INT, at TIMESTAMP")),
        watermarks=tm.bounded_out_of_orderness(change.get("bound", "5 minutes"), timestamp="at"),
    )
    mapped = trips.filter(change.get("condition", "zone > 0")).map(change.get("function", times(2)), returns="zone INT, at TIMESTAMP")
    windowed = (
        mapped.key_by(change.get("key", "zone"))
        .window(change.get("windows", tm.tumbling(change.get("size", "1 hour"))))
        .allowed_lateness(change.get("lateness", "0 ms"))
    )
    windowed = windowed.trigger(change["trigger"]) if "trigger" in change else windowed
    windowed = windowed.evictor(change["evictor"]) if "evictor" in change else windowed
    made = (
        windowed.process(change["process"])
        if "process" in change
        else windowed.aggregate(*change.get("then", ()), n=change.get("aggregate", COUNT))
    )
    hourly = made.uid(change.get("uid", "hourly"))
    sink = change.get("sink", tm.delta)
    return tm.Job(
        "taxi",
        outputs={change.get("output", "hourly"): sink(hourly, change.get("path", "warehouse/hourly"))},
        description=change.get("description"),
        parallelism=change.get("parallelism"),
    )


def named(change: dict[str, Any]) -> str:
    """Return what is changed: where a function lies in memory is no name for a case."""
    return ", ".join(f"{key}={value.__qualname__ if callable(value) else value}" for key, value in change.items()) or "nothing"


@pytest.mark.parametrize(
    "change",
    [
        {"source": "rides"},
        {"schema": "zone LONG, at TIMESTAMP"},
        {"bound": "6 minutes"},
        {"condition": "zone > 1"},
        {"function": times(3)},
        {"function": same_as_times(2)},
        {"function": lambda row: row},
        {"key": "at"},
        {"size": "2 hours"},
        {"lateness": "1 second"},
        {"aggregate": Aggregate("count", ("zone",), (Partial("n", "count(zone)", "sum({n})"),), "{n}")},
        {"aggregate": folded("f1")},
        {"uid": "per-hour"},
        {"sink": tm.parquet},
        {"output": "tips"},
    ],
    ids=named,
)
def test_changes_with_what_is_computed(change: dict[str, Any]) -> None:
    assert code_version(job(**change)) != code_version(job())


@pytest.mark.parametrize(
    "change",
    [{}, {"landing": "/elsewhere"}, {"path": "s3://bucket/hourly"}, {"description": "tips"}, {"parallelism": 7}, {"function": times(2)}],
    ids=named,
)
def test_stays_wherever_it_is_deployed(change: dict[str, Any]) -> None:
    assert code_version(job(**change)) == code_version(job())


def rows(elements: Any, context: Any) -> list[dict[str, Any]]:
    return [{"n": len(elements), "index": context.index}]


def test_every_setting_of_a_window_counts() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"windows": tm.tumbling("1 hour", time="processing")},
        {"windows": tm.sliding("1 hour", "10 minutes")},
        {"windows": tm.sliding("1 hour", "20 minutes")},
        {"windows": tm.cumulative("1 hour", "20 minutes")},
        {"windows": tm.session("1 hour")},
        {"windows": tm.session(gap_by="zone")},
        {"windows": tm.session(gap_by="zone * 2")},
        {"windows": tm.count_window(5)},
        {"windows": tm.count_window(5, 5)},
        {"trigger": tm.count_trigger(5)},
        {"trigger": tm.count_trigger(6)},
        {"trigger": tm.purging_trigger(tm.count_trigger(6))},
        {"trigger": tm.event_time_trigger(early=tm.count_trigger(6))},
        {"trigger": tm.event_time_trigger(late=tm.count_trigger(6))},
        {"trigger": tm.delta_trigger(6, lambda last, element: last["zone"] - element["zone"])},
        {"trigger": tm.delta_trigger(6, lambda last, element: element["zone"] - last["zone"])},
        {"then": (tm.window_function(rows, "n INT"),)},
        {"process": tm.window_function(rows, "n INT")},
        {"process": tm.window_function(rows, "n BIGINT")},
        {"process": tm.window_function(rows, "n INT", batches=True)},
        {"process": tm.window_function(lambda elements, context: [elements, context], "n INT")},
        {"process": tm.window_function(rows, "n INT"), "evictor": tm.count_evictor(5)},
        {"process": tm.window_function(rows, "n INT"), "evictor": tm.count_evictor(5, after=True)},
    ]
    versions = [code_version(job(**change)) for change in changes]
    assert len(set(versions)) == len(changes)
    assert versions == [code_version(job(**change)) for change in changes]
    assert code_version(job(trigger=tm.event_time_trigger())) == versions[0]


def test_generated_names_of_functions_do_not_count() -> None:
    assert code_version(job(aggregate=folded("f1"))) == code_version(job(aggregate=folded("f27")))
    assert code_version(job(aggregate=folded("f1"))) != code_version(job(aggregate=folded("f1", "BIGINT")))


def test_a_lambda_is_its_own_text_only() -> None:
    functions: list[Callable[..., Any]] = [lambda x: x + 1, lambda x: x + 2, lambda: (lambda z: z)]  # fmt: skip
    texts = [function_text(function).split("|")[0] for function in functions]
    assert texts == ["lambda x: x + 1", "lambda x: x + 2", "lambda: (lambda z: z)"]
    assert function_text(functions[2]()).split("|")[0] == "lambda z: z"


class Tariff(Enum):
    DAY = 1
    NIGHT = 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Tariff.DAY, Tariff.NIGHT),
        ({"a", "b"}, {"a", "c"}),
        (frozenset({1}), frozenset({2})),
        (Decimal("1.0"), Decimal("1.1")),
        (date(2024, 1, 1), date(2024, 1, 2)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC)),
        (timedelta(hours=1), timedelta(hours=2)),
        (max, min),
        (int, str),
        (partial(max, 1), partial(max, 2)),
        ((Tariff.DAY, {"a": {Decimal(1)}}), (Tariff.DAY, {"a": {Decimal(2)}})),
    ],
)
def test_values_that_a_function_uses_count(one: object, other: object) -> None:
    def using(value: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda row: {**row, "same": row["zone"] == value}

    assert function_text(using(one)) != function_text(using(other))
    assert function_text(using(one)) == function_text(using(copy.deepcopy(one)))


def test_same_in_another_process_and_at_another_line(tmp_path: Path) -> None:
    program = """
import tidemark as tm
from tidemark.graph.job.code_version import code_version
class Strategy:
    bound_ms = 0
    metrics = {}
    def watermark(self, stats): return None
limits = {"a", "b", "c"}
def keep(row):
    return {"zone": 1 if row["zone"] in limits else 2}
stream = tm.source("s", tm.files("x", format="json", schema="zone INT, at TIMESTAMP"),
                   watermarks=tm.watermark_strategy(Strategy(), timestamp="at")).map(keep, returns="zone INT")
print(code_version(tm.Job("j", outputs={"o": tm.console(stream)})))
"""
    versions = []
    for seed, above in (("1", ""), ("2", "# a line more\n\n")):
        file = tmp_path / f"job_{seed}.py"
        file.write_text(above + program)
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, check=True)
        versions.append(done.stdout.strip())
    assert len(versions[0]) == 16
    assert versions[0] == versions[1]


def test_how_a_table_is_written_is_part_of_the_version() -> None:
    def version(**settings: Any) -> str:
        source = tm.source("s", tm.files("in", format="json", schema="t BIGINT, k STRING"), watermarks=tm.ascending(timestamp="t"))
        return code_version(tm.Job("job", outputs={"rows": tm.delta(source, "table", **settings)}))

    versions = [version(), version(mode="append"), version(mode="upsert", keys=["k"]), version(mode="upsert", keys=["k", "t"])]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3
