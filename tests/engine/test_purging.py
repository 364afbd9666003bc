"""Windows that each pane empties, with aggregates: as the reference has it, with merged files too, and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

import tidemark as tm
from tests.engine.buffered_cases import random_case, require_same, run_engine, run_expected
from tests.engine.early_compaction import compact_early
from tests.engine.lab import Lab, elements
from tests.engine.streams import assigners, purging_triggers, scenarios, sliced_assigners
from tests.engine.test_reference_agreement import require_variety, see_agreement
from tests.seeds import new_seeds, only_long, times
from tidemark.graph.operators.window.execution import is_incremental
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.builtin_triggers import PurgingTrigger
from tidemark.semantics.windows.assigners import GlobalWindows
from tidemark.spark.operators.aligned import triggered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, t BIGINT, v INT"
KINDS = ("tumbling", "sliding", "cumulative", "global")


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


def purges_natively(node: WindowNode) -> bool:
    return isinstance(node.trigger, PurgingTrigger) and is_incremental(node) and node.function is None


@pytest.mark.slow
@pytest.mark.parametrize("merged", [pytest.param(False, marks=only_long), True])
def test_panes_agree_with_the_reference(merged: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    if merged:
        compact_early(monkeypatch, triggered)
    examples = times(1)
    drawn = scenarios(
        sources=1,
        operator_count=4,
        keys=30,
        rows=200,
        kinds=lambda unit: assigners(unit) | sliced_assigners(unit) | st.just(GlobalWindows()),
        triggers=purging_triggers,
    )
    cases = see_agreement(drawn, spark, tmp_path, examples=examples)
    require_variety(cases, least=90 * examples, settings_least=4 * examples)


@only_long
@pytest.mark.slow
def test_a_run_that_stops_and_goes_on_elsewhere_does_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (seed,) = new_seeds("purging")
    # Among these are steps of the clock, which the scenarios do not have.
    case = random_case(seed, kinds=KINDS, wanted=purges_natively)
    try:
        found = run_engine(case, spark, tmp_path, epochs=2, end_of_input=False)
        compact_early(monkeypatch, triggered)
        found += run_engine(case, spark, tmp_path, epochs=3, end_of_input=False, first=len(found), parallelism=3)
        found += run_engine(case, spark, tmp_path, first=len(found), parallelism=1)
        require_same(found, run_expected(case), case)
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


def test_a_pane_holds_what_came_since_the_one_before(lab: Lab) -> None:
    stream = elements(
        [("a", 1, 1), ("a", 2, 2), ("b", 3, 3)],
        [("a", 4, 4), ("b", 5, 5), ("a", 11, 6)],
        [("b", 6, 7), ("b", 12, 8), ("b", 25, 9)],
        [("a", 7, 10), ("a", 26, 11)],
        schema=SCHEMA,
    )
    twos = tm.event_time_trigger(early=tm.count_trigger(2))
    tens = stream.key_by("k").window(tm.tumbling("10 ms")).allowed_lateness("20 ms")
    panes = tens.trigger(twos).discarding().aggregate(v=tm.collect_list("v"), total=tm.sum("v")).uid("panes")
    late = tens.discarding().aggregate(v=tm.collect_list("v")).uid("late")
    ran = lab.run({"panes": panes, "late": late}, end_of_input=False)
    shown = ("k", "window_start", "v", "pane_timing", "pane_index")
    starts = {row["window_start"].timestamp() for row in ran.rows["panes"]}
    assert starts == {0.0, 0.01}
    found = [(k, round(start.timestamp() * 1000), v, timing, index) for k, start, v, timing, index in ran.of("panes", *shown)]
    # The count goes on behind a pane, but a pane that would be empty is none: at its end, the window of a holds what came since.
    assert sorted(found, key=str) == [
        ("a", 0, [1, 2], "EARLY", 0),
        ("a", 0, [10], "LATE", 2),
        ("a", 0, [4], "ON_TIME", 1),
        ("a", 10, [6], "ON_TIME", 0),
        ("b", 0, [3, 5], "ON_TIME", 0),
        ("b", 0, [7], "LATE", 1),
        ("b", 10, [8], "ON_TIME", 0),
    ]
    assert [epoch.operators["late"].panes_late for epoch in ran.epochs] == [0, 0, 1, 1]
    assert sorted(ran.of("late", "k", "v", "pane_timing", "pane_index"), key=str)[:2] == [
        ("a", [1, 2, 4], "ON_TIME", 0),
        ("a", [10], "LATE", 1),
    ]


def test_purged_rows_go_when_files_are_merged(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    compact_early(monkeypatch, triggered)
    batches = [[(key, epoch, epoch) for key in "abc"] for epoch in range(4)]
    windows = elements(*batches, schema=SCHEMA).key_by("k").window(tm.global_window())
    each = windows.trigger(tm.each_epoch_trigger()).discarding().aggregate(v=tm.collect_list("v")).uid("each")
    ran = lab.run({"each": each}, end_of_input=False)
    assert ran.of("each", "k", "v", "pane_index") == [(key, [epoch], epoch) for key in "abc" for epoch in range(4)]
    # Of each key there stays what tells how many panes there were.
    assert [epoch.operators["each"].state_rows for epoch in ran.epochs][-1] == 3
