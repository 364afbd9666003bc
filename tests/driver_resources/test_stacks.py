"""Stacks as JFR and py-spy print them, and flame graphs of these, without any process."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.control.profile.flame_graph import ROW, flame_graph
from tidemark.control.profile.profile_page import Side, profile_page
from tidemark.control.profile.stacks import busiest, collapsed, java_stacks, python_stacks, without_waiting

SVG = "{http://www.w3.org/2000/svg}"

JFR = """jdk.ExecutionSample {
  startTime = 07:30:29.795
  sampledThread = "Executor task launch worker for task 0.0 in stage 2.0 (TID 4)" (javaThreadId = 62)
  state = "STATE_RUNNABLE"
  stackTrace = [
    java.util.HashMap.hash(Object) line: 339
    org.apache.spark.sql.catalyst.expressions.GeneratedClass$Projection.apply(InternalRow)
    java.lang.Thread.run() line: 840
    ...
  ]
}

jdk.ExecutionSample {
  startTime = 07:30:29.805
  sampledThread = "Executor task launch worker for task 11.0 in stage 3.0 (TID 5)" (javaThreadId = 62)
  state = "STATE_RUNNABLE"
  stackTrace = [
    java.util.HashMap.hash(Object) line: 341
    org.apache.spark.sql.catalyst.expressions.GeneratedClass$Projection.apply(InternalRow)
    java.lang.Thread.run() line: 840
  ]
}

jdk.ExecutionSample {
  startTime = 07:30:29.815
  sampledThread = "stream execution thread for [id = fd0f1b22-0a1b-4c3d-9e0f-00112233aabb]" (javaThreadId = 9)
  state = "STATE_RUNNABLE"
  stackTrace = [
    scala.Option.forall(Function1) line: 1
  ]
}
"""

PY_SPY = (
    'process 7:"/venv/bin/python -m tidemark.control --token s3cr3t";<module> (fares.py:1);run (run.py:5) 3\n'
    'process 7:"python -m x";process 9:"/venv/bin/python -c\nimport a; a.b()\nx = 1 2";main (worker.py:4);slow_fare (fares.py:6) 40\n'
    'process 7:"python -m x";process 12:"python -m pyspark.daemon";main (worker.py:4);slow_fare (fares.py:6) 2\n'
    'process 7:"python -m x";process 12:"python -m pyspark.daemon";process (fares.py:6) 5\n'
)


def test_stacks_of_java_are_by_thread_and_without_lines() -> None:
    projection = "org.apache.spark.sql.catalyst.expressions.GeneratedClass$Projection.apply"
    task = "Executor task launch worker for task * in stage * (TID *)"
    assert java_stacks(JFR.splitlines(keepends=True)) == {
        (task, "java.lang.Thread.run", projection, "java.util.HashMap.hash"): 2,
        ("stream execution thread for [id = *]", "scala.Option.forall"): 1,
    }


def test_a_recording_without_samples_has_no_stacks() -> None:
    assert java_stacks([]) == {}
    assert "0 samples" in profile_page("taxi", [Side("JVM", {}, "Nothing.", 90)], at=0, seconds=1)


def test_stacks_of_python_are_by_process_and_hide_commands() -> None:
    found = python_stacks(PY_SPY, {7: "driver"}, other="workers")
    assert found == {
        ("driver", "<module> (fares.py:1)", "run (run.py:5)"): 3,
        ("workers", "main (worker.py:4)", "slow_fare (fares.py:6)"): 42,
        ("workers", "process (fares.py:6)"): 5,
    }
    assert "s3cr3t" not in collapsed(found)


def test_threads_that_wait_are_left_out() -> None:
    waiting = ("Condition.wait (threading.py:295)", "manager (pyspark/daemon.py:115)", "A.<locals>.poll (pyspark/accumulators.py:272)")
    working = ("wait (fares.py:3)", "select (fares.py:4)", "SelectSelector.register (selectors.py:9)", "wait", "threading.py")
    stacks: Counter[tuple[str, ...]] = Counter({("driver", frame): 1 for frame in (*waiting, *working)})
    assert {stack[-1] for stack in without_waiting(stacks)} == set(working)


def test_busiest_functions_count_recursion_once() -> None:
    assert busiest({("main", "f", "g", "f"): 3, ("main", "g"): 2}) == [("f", 3, 3), ("g", 2, 5)]
    assert busiest({("main", "f", "g"): 3, ("main", "f"): 2}, most=1) == [("g", 3, 3)]


def test_collapsed_stacks_have_one_line_each() -> None:
    assert collapsed({("a", "b;c\nd", ""): 2, ("a",): 1}) == "a 1\na;b,c d;- 2\n"


def frames_of(svg: str) -> dict[str, tuple[float, float, int]]:
    """Return left edge, width and row of each frame by its tip's text; the SVG is well-formed."""
    found = {}
    for element in ET.fromstring(svg).iter(f"{SVG}svg"):  # noqa: S314 - drawn here
        title = element.find(f"{SVG}title")
        if title is not None:
            found[title.text or ""] = (float(element.attrib["data-x"]), float(element.attrib["data-w"]), int(element.attrib["y"]) // ROW)
    return found


def test_a_frame_is_as_wide_as_its_share_and_below_its_caller() -> None:
    frames = frames_of(flame_graph({("main", "f"): 1, ("main", "g"): 2, ("other",): 1}, title="JVM of taxi", hue=90))
    assert frames == {
        "all samples: 4 samples, 100.0%": (0, 100, 0),
        "main: 3 samples, 75.0%": (0, 75, 1),
        "f: 1 samples, 25.0%": (0, 25, 2),
        "g: 2 samples, 50.0%": (25, 50, 2),
        "other: 1 samples, 25.0%": (75, 25, 1),
    }


def test_names_of_java_are_drawn_without_their_packages() -> None:
    svg = flame_graph({("org.apache.spark.sql.SQLConf.get", "scala.Option$.f"): 1}, title="t", hue=90)
    assert re.findall(r"<text[^>]*>([^<]*)<", svg) == ["all samples", "SQLConf.get", "Option$.f"]
    assert "org.apache.spark.sql.SQLConf.get: 1 samples, 100.0%" in frames_of(svg)


@pytest.mark.parametrize("name", ["<module> (a.py)", "a & b", '"><script>alert(1)</script>', "a\x00b\x1b[0m\ud800", "]]>", "'x'"])
def test_names_are_text(name: str) -> None:
    svg = flame_graph({(name,): 1}, title=name, hue=1)
    (tip,) = [tip for tip in frames_of(svg) if not tip.startswith("all samples")]
    assert tip == f"{re.sub('[^ -~]', '?', name)}: 1 samples, 100.0%"
    page = profile_page("taxi", [Side("Python", {(name,): 1}, "Of all threads.", 1)], at=0, seconds=1)
    assert page.count("<script>") == 1
    page.encode("utf-8")


def text_of(*, characters: str = "") -> st.SearchStrategy[str]:
    return st.text(max_size=20) | st.text(alphabet=f"<>&\"';: \n\0{characters}", max_size=6)


@given(st.dictionaries(st.lists(text_of(), min_size=1, max_size=6).map(tuple), st.integers(1, 1_000), max_size=12))
def test_any_stacks_can_be_drawn(stacks: dict[tuple[str, ...], int]) -> None:
    svg = flame_graph(stacks, title="t", hue=200)
    for element in ET.fromstring(svg).iter(f"{SVG}svg"):  # noqa: S314 - drawn here
        if "data-x" in element.attrib:
            assert 0 <= float(element.attrib["data-x"]) <= 100
            assert float(element.attrib["data-x"]) + float(element.attrib["data-w"]) <= 100.01
    assert sum(int(line.rpartition(" ")[2]) for line in _lines(collapsed(stacks))) == sum(stacks.values())


def _lines(text: str) -> Iterator[str]:
    yield from (line for line in text.split("\n") if line)


def test_deep_stacks_are_drawn_down_to_a_depth() -> None:
    svg = flame_graph({tuple(f"f{number}" for number in range(5_000)): 1}, title="t", hue=1)
    assert len(frames_of(svg)) == 300
