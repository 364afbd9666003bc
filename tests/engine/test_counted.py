"""Count windows with aggregates: exact groups without kept elements, however the input is cut, wherever a run stops and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.buffered_cases import random_case, require_same, run_engine, run_expected
from tests.engine.early_compaction import compact_early
from tests.engine.lab import Lab, elements
from tests.seeds import new_seeds
from tidemark.errors import StateMismatchError
from tidemark.graph.operators.window.execution import is_incremental
from tidemark.spark.operators.count import counted
from tidemark.spark.operators.process.buffered import BufferedRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, t BIGINT, v INT"


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.mark.slow
def test_groups_agree_with_the_reference(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (seed,) = new_seeds("counted")
    case = random_case(seed, kinds=["count"] * 3, wanted=lambda node: is_incremental(node) and node.function is None, epochs=(3, 4))
    try:
        found = run_engine(case, spark, tmp_path, epochs=2, end_of_input=False)
        # From here on each epoch looks for the keys that have input, and merges its files.
        monkeypatch.setattr(counted, "FEW_ROWS", -1)
        monkeypatch.setattr(counted, "FEW_TOUCHED", 0)
        compact_early(monkeypatch, counted)
        found += run_engine(case, spark, tmp_path, epochs=3, end_of_input=False, first=len(found), parallelism=3)
        found += run_engine(case, spark, tmp_path, first=len(found), parallelism=1)
        require_same(found, run_expected(case), case)
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    assert len(case.distinct) >= 30
    assert all(facts["state"] == 0 for facts in found[-1].values())


def test_a_group_has_its_elements_in_the_contracts_order(lab: Lab) -> None:
    stream = elements(
        [("a", 9, 1), ("a", 3, 2), (None, 1, 3), ("a", 3, 4), ("b", 5, 5)],
        [("a", 1, 6), (None, 2, 7), ("a", 8, 8), ("a", 2, 9), ("b", 1, 10)],
        schema=SCHEMA,
    )
    keyed = stream.key_by("k")
    threes = keyed.window(tm.count_window(3)).aggregate(v=tm.collect_list("v"), first=tm.first("v"), last=tm.last("v")).uid("threes")
    last_four = stream.window_all(tm.count_window(4, 3)).aggregate(v=tm.collect_list("v"), total=tm.sum("v")).uid("last-four")
    apart = keyed.window(tm.count_window(1, 2)).aggregate(v=tm.collect_list("v")).uid("apart")
    ran = lab.run({"threes": threes, "last_four": last_four, "apart": apart})
    # Epoch by epoch, within an epoch by event time and position; a list is in order of event time all the same.
    assert ran.of("threes", "k", "v", "first", "last", "pane_timing", "pane_index", "window_start", "window_end") == [
        ("a", [2, 4, 1], 2, 1, "ON_TIME", 0, None, None),
        ("a", [6, 9, 8], 6, 8, "ON_TIME", 1, None, None),
    ]
    assert ran.of("last_four", "v", "total", "pane_index") == [([3, 2, 4], 9, 0), ([6, 10, 7, 9], 32, 2), ([6, 4, 5, 1], 16, 1)]
    assert ran.of("apart", "k", "v", "pane_index") == [("a", [4], 0), ("a", [6], 1), ("a", [8], 2), ("b", [10], 0), (None, [7], 0)]
    assert [epoch.operators["threes"].windows_closed for epoch in ran.epochs] == [1, 1, 0]
    assert [epoch.operators["threes"].state_rows for epoch in ran.epochs][-1] == 0


def test_state_keeps_what_groups_to_come_need(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    compact_early(monkeypatch, counted)
    keys = "abcd"
    batches = [[(key, epoch * 10 + number, number) for key in keys for number in range(6)] for epoch in range(4)]
    keyed = elements(*batches, schema=SCHEMA).key_by("k")
    sixes = keyed.window(tm.count_window(6)).aggregate(n=tm.count(), total=tm.sum("v")).uid("sixes")
    sliding = keyed.window(tm.count_window(8, 4)).aggregate(n=tm.count()).uid("sliding")
    ran = lab.run({"sixes": sixes, "sliding": sliding}, end_of_input=False)
    assert set(ran.of("sixes", "n", "total")) == {(6, 15)}
    assert ran.of("sliding", "n").count(8) == 5 * len(keys)
    # A key's last slice tells how many elements it had; windows that slide need the two before a group that is to come.
    assert [epoch.operators["sixes"].state_rows for epoch in ran.epochs][1:] == [len(keys)] * 3
    assert max(epoch.operators["sliding"].state_rows for epoch in ran.epochs[1:]) <= 2 * len(keys)


def test_what_comes_after_the_end_of_input_is_late(lab: Lab) -> None:
    def pairs(*batches: list[tuple[str, int, int]]) -> dict[str, tm.Stream]:
        stream = elements(*batches, schema=SCHEMA)
        return {"pairs": stream.key_by("k").window(tm.count_window(2)).aggregate(n=tm.count()).uid("pairs")}

    begun = [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]
    assert lab.run(pairs(begun)).of("pairs", "n") == [2]
    after = lab.run(pairs(begun, [("a", 4, 4)]))
    assert after.of("pairs", "n") == []
    assert [epoch.operators["pairs"].rows_late for epoch in after.epochs if epoch.rows_in] == [1]


@pytest.mark.parametrize("purges", [False, True])
def test_elements_that_an_earlier_build_kept_are_not_taken_for_results(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    purges: bool,  # noqa: FBT001
) -> None:
    def windows(*batches: list[tuple[str, int, int]]) -> dict[str, tm.Stream]:
        keyed = elements(*batches, schema=SCHEMA).key_by("k")
        windowed = keyed.window(tm.count_window(2))
        if purges:
            windowed = keyed.window(tm.tumbling("10 ms")).trigger(tm.event_time_trigger(early=tm.count_trigger(2))).discarding()
        return {"w": windowed.aggregate(n=tm.count()).uid("w")}

    monkeypatch.setattr("tidemark.spark.loop.driver.runtimes_of", lambda nodes, **_: {id(node): BufferedRuntime(node) for node in nodes})
    begun = [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]
    lab.run(windows(begun), end_of_input=False)
    monkeypatch.undo()
    with pytest.raises(StateMismatchError, match="hold elements"):
        lab.run(windows(begun, [("a", 4, 4)]), end_of_input=False)
