"""A restart may change the allowed lateness: what is over then stays over, for windows that keep their elements as for all others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, Ran, elements
from tests.milliseconds import ms
from tests.seeds import PROFILE
from tidemark.semantics.process.key_epoch import Arrival
from tidemark.semantics.process.window_process import WindowProcess, run_key
from tidemark.semantics.triggers.window_state import HeldElement
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermark_strategy import MIN_WATERMARK
from tidemark.semantics.windows.assigners import Session, Tumbling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.semantics.windows.windows import WindowAssigner

LATENESS_NOW = {"less": 20, "more": 100, **({"none": 0} if PROFILE == "long" else {})}
"""How far lateness is allowed in the second run."""

FIRST: list[tuple[object, ...]] = [("a", 1, 1), ("z", 42, 1)]
"""The watermark is 41 after it."""


KINDS = ("native", "process")


def run_of_both(lab: Lab, lateness: Mapping[str, int], *epochs: list[tuple[object, ...]]) -> Ran:
    """Run a job on the epochs that are new to it: of each case one operator with partial results, and one that keeps its elements."""
    streams = {}
    source = elements(*epochs, schema="k STRING, t BIGINT, v INT")
    for case, allowed in lateness.items():
        for name in KINDS:
            late = tm.OutputTag(f"{case}_{name}_late")
            windows = source.key_by("k").window(tm.tumbling("10 ms")).allowed_lateness(ms(allowed)).late_to(late)
            made = (
                windows.aggregate(n=tm.count())
                if name == "native"
                else windows.process(lambda rows, _: [{"n": len(rows)}], returns="n BIGINT")
            )
            streams[f"{case}_{name}"] = made.uid(f"{case}_{name}")
            streams[late.name] = streams[f"{case}_{name}"].side_output(late)
    return lab.run(streams, end_of_input=False)


@pytest.mark.spark
def test_less_or_more_lateness_in_jobs(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(spark, tmp_path)
    first = run_of_both(lab, {"less": 100, "more": 0, **({"none": 100} if PROFILE == "long" else {})}, FIRST)
    again = run_of_both(lab, LATENESS_NOW, FIRST, [("a", 5, 4), ("a", 33, 5)])
    # Of [0, 10) and [30, 40) only the second is not over, and only where 20 milliseconds are allowed now.
    for case in LATENESS_NOW:
        taken, late = ([("a", 1, "LATE", 0)], [5]) if case == "less" else ([], [33, 5])
        for name in KINDS:
            assert first.of(f"{case}_{name}", "k", "n", "pane_timing", "pane_index") == [("a", 1, "ON_TIME", 0)]
            assert again.of(f"{case}_{name}", "k", "n", "pane_timing", "pane_index") == taken
            assert again.of(f"{case}_{name}_late", "t") == late
    # More lateness does not bring back a window, either, when it is changed once more.
    last = run_of_both(lab, {**LATENESS_NOW, "more": 50}, FIRST, [("a", 5, 4), ("a", 33, 5)], [("a", 5, 4)])
    for name in KINDS:
        assert last.rows[f"more_{name}"] == []
        assert last.of(f"more_{name}_late", "t") == [5]


def late_and_panes(assigner: WindowAssigner, runs: list[tuple[int, list[int], int]]) -> list[tuple[tuple[int, ...], list[object]]]:
    """Run one key: lateness, times and watermark of each epoch; returns places of late elements, and bounds and sizes of panes."""
    state: str | None = None
    stored: tuple[HeldElement, ...] = ()
    before, found = MIN_WATERMARK, []
    for epoch, (lateness, times, watermark) in enumerate(runs):
        process = WindowProcess(assigner, function=lambda rows, _: [{"n": len(rows)}], allowed_lateness_ms=lateness)
        clock = OperatorClock("event", epoch=epoch, before=before, watermark=watermark, processing_time=0)
        result = run_key(process, {}, state=state, stored=stored, arrivals=[Arrival(time, {}) for time in times], clock=clock)
        panes: list[object] = [(pane.window.start, pane.window.end, pane.index, pane.rows) for pane in result.panes]
        found.append((result.late, panes))
        state, stored, before = result.state, result.elements, watermark
    return found


def test_less_lateness_forgets_what_is_over_by_it() -> None:
    assert late_and_panes(Tumbling(10), [(100, [1], 41), (20, [5, 30], 41)])[1] == ((0,), [(30, 40, 0, ({"n": 1},))])


def test_sessions_do_not_take_up_one_that_is_over_by_less_lateness() -> None:
    # [1, 11) is over; [11, 21) is late, and [21, 31) begins anew though it touches what was there.
    assert late_and_panes(Session(10), [(100, [1], 41), (20, [11, 21, 31], 41)])[1] == ((0,), [(21, 41, 0, ({"n": 2},))])
