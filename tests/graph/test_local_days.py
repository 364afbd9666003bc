"""Windows of local days, as they are declared."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError
from tidemark.graph.operators.registry import encode, kind_of
from tidemark.graph.operators.window.definition_decoder import assigner_of_definition
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import DAY_MS, LocalWindows

HOUR = 3_600_000


def stream() -> tm.KeyedStream:
    columns = "k STRING, zone STRING, number INT, at TIMESTAMP"
    return tm.source("rides", tm.from_elements([], schema=columns), watermarks=tm.ascending(timestamp="at")).key_by("k")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (tm.tumbling("1 day", zone="Asia/Tokyo"), LocalWindows(Tumbling(DAY_MS), "Asia/Tokyo")),
        (tm.tumbling("7 days", offset="4 days", zone="Europe/Berlin"), LocalWindows(Tumbling(7 * DAY_MS, 4 * DAY_MS), "Europe/Berlin")),
        (tm.sliding("3 days", "1 day", zone_by=" zone "), LocalWindows(Sliding(3 * DAY_MS, DAY_MS), zone_by="zone")),
        (tm.cumulative("1 day", "1 hour", zone="UTC"), LocalWindows(Cumulative(DAY_MS, HOUR), "UTC")),
    ],
    ids=repr,
)
def test_assigners(made: LocalWindows, expected: LocalWindows) -> None:
    assert made == expected
    node = stream().window(made).aggregate(n=tm.count()).uid("w").node
    assert isinstance(node, WindowNode)
    stored = json.loads(json.dumps(encode(node)))
    assert assigner_of_definition(stored["assigner"]) == expected
    assert kind_of(node).decode(stored, "w").assigner == expected


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: tm.tumbling("1 day", zone="Asia/Tokio"), "did you mean zone='Asia/Tokyo'"),
        (lambda: tm.tumbling("1 day", zone="asia/tokyo"), "did you mean zone='Asia/Tokyo'"),
        (lambda: tm.tumbling("1 day", zone="../../etc/passwd"), "is no time zone"),
        (lambda: tm.tumbling("1 day", zone=9), "zone=9 is no time zone"),  # type: ignore[call-overload]
        (lambda: tm.tumbling("1 day", zone=""), "zone='' is no time zone"),
        (lambda: tm.tumbling("1 day", zone_by=" "), "is not an SQL expression"),
        (lambda: tm.sliding("1 day", "1 hour", zone="Asia/Tokyo"), "slide='1h' with a zone is not a whole number of days"),
        (lambda: tm.cumulative("12 hours", "1 hour", zone="Asia/Tokyo"), "max_size='12h' with a zone"),
        (lambda: tm.tumbling("1 day", zone="Asia/Tokyo", zone_by="zone"), "both zone and zone_by"),  # type: ignore[call-overload]
        (lambda: tm.tumbling("1 day", time="processing", zone="Asia/Tokyo"), "processing time take no zone"),
        (
            lambda: stream().window(tm.tumbling("1 day", zone_by="number")).aggregate(n=tm.count()),
            "of type INT, not the name of a time zone",
        ),
        (lambda: stream().window(tm.tumbling("1 day", zone_by="city")).aggregate(n=tm.count()), "city"),
        (
            lambda: stream().window(tm.tumbling("1 day", zone_by="zone")).process(lambda rows, _: rows, returns="n INT"),
            "keep no elements",
        ),
    ],
)
def test_wrong_declarations_are_refused(declare: Callable[[], Any], says: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        tm.Job("j", outputs={"o": tm.memory(declare().uid("w"), "o")})
    assert says in str(caught.value)
    assert "test_local_days.py" in str(caught.value)


def test_zones_are_texts_of_any_kind() -> None:
    columns = "k STRING, long VARCHAR(40), fixed CHAR(20), at TIMESTAMP"
    keyed = tm.source("rides", tm.from_elements([], schema=columns), watermarks=tm.ascending(timestamp="at")).key_by("k")
    for zone_by in ("long", "fixed", "coalesce(long, 'UTC')"):
        counted = keyed.window(tm.tumbling("1 day", zone_by=zone_by)).aggregate(n=tm.count()).uid("w")
        tm.Job("j", outputs={"o": tm.memory(counted, "o")})


@pytest.mark.parametrize(("hidden", "says"), [((), "tumbling('1d', zone='Asia/Tokyo')"), (("tzdata",), "no time-zone database")])
def test_a_system_without_zones_has_those_of_a_package(hidden: tuple[str, ...], says: str) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"
        "import tidemark as tm\n"
        "try:\n    print(tm.tumbling('1 day', zone='Asia/Tokyo').describe())\n"
        "except tm.TidemarkError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONTZPATH": ""}, capture_output=True, text=True, check=True)
    assert says in done.stdout


def test_window_joins_take_no_local_days() -> None:
    left = tm.source("l", tm.from_elements([], schema="k STRING, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at"))
    right = tm.source("r", tm.from_elements([], schema="k STRING, v INT, t TIMESTAMP"), watermarks=tm.ascending(timestamp="t"))
    with pytest.raises(DefinitionError, match="windows of local days"):
        left.window_join(right, on="k", window=tm.tumbling("1 day", zone="Asia/Tokyo"))  # type: ignore[arg-type]
