"""Side outputs that had rows in the epoch before are staged before it is known whether they have some; no row differs for that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import IN_ORDER, NOW, Lab, elements
from tidemark.spark.epoch.epoch import EpochRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.semantics.watermarks.watermarks import WatermarkStrategy
    from tidemark.semantics.windows.windows import WindowAssigner

pytestmark = pytest.mark.spark

SCHEMA = "id INT, k STRING, t BIGINT, v BIGINT"
LATE, REJECTED, BAD = tm.OutputTag("late"), tm.OutputTag("rejected"), tm.OutputTag("bad")
EVERY = ["bad", "late", "rejected"]


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What each epoch staged before it knew."""
    seen: list[list[str]] = []
    execute = EpochRun.execute

    def noting(run: EpochRun) -> None:
        execute(run)
        seen.append(sorted(run.early))

    monkeypatch.setattr(EpochRun, "execute", noting)
    return seen


def streams(
    epochs: Sequence[Sequence[tuple[Any, ...]]], assigner: WindowAssigner, strategy: WatermarkStrategy = IN_ORDER
) -> dict[str, tm.Stream]:
    source = elements(*map(list, epochs), schema=SCHEMA, watermarks=strategy, malformed_to=BAD)
    kept = source.filter("v > 0", rejects_to=REJECTED).uid("some")
    panes = kept.key_by("k").window(assigner).late_to(LATE).aggregate(ids=tm.collect_list("id")).uid("w")
    return {
        "panes": panes,
        "late": panes.side_output(LATE),
        "rejected": kept.side_output(REJECTED),
        "bad": source.side_output(BAD),
    }


@pytest.mark.parametrize("assigner", [tm.tumbling("100 ms"), tm.session(gap="50 ms")], ids=["tumbling", "session"])
def test_rows_are_the_same_whether_they_were_expected_or_not(lab: Lab, early: list[list[str]], assigner: WindowAssigner) -> None:
    epochs: list[list[tuple[Any, ...]]] = [
        [(1, "a", 1_000, 1)],
        [(2, "a", 2_000, 1), (3, "a", 10, 1), (4, "a", 2_000, 0), (5, "a", None, 1)],
        [(6, "b", 3_000, 1), (7, "b", 20, 1), (8, "b", 3_000, 0), (9, "b", None, 1)],
        [(10, "a", 4_000, 1)],
        [(11, "a", 5_000, 1), (12, "a", 30, 1)],
    ]
    ran = lab.run(streams(epochs, assigner))
    assert early[:5] == [[], [], EVERY, EVERY, []]
    assert ran.of("late", "id") == [12, 3, 7]
    assert ran.of("rejected", "id") == [4, 8]
    assert len(ran.rows["bad"]) == 2
    assert sorted(row for ids in ran.of("panes", "ids") for row in ids) == [1, 2, 6, 10, 11]


def test_an_epoch_that_is_taken_in_again_stages_them_again(lab: Lab, early: list[list[str]]) -> None:
    """A row too far ahead is found by the pass that the side outputs were staged beside: what they have is judged anew."""
    far = NOW + 10 * 86_400_000
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t", max_future_skew="1 day")
    epochs: list[list[tuple[Any, ...]]] = [
        [(1, "a", NOW, 1)],
        [(2, "a", NOW - 5_000, 1), (3, "a", NOW, 0)],
        [(5, "a", far, 0), (6, "a", far, 1), (7, "a", NOW - 5_000, 1), (8, "a", NOW, 0)],
    ]
    ran = lab.run(streams(epochs, tm.tumbling("100 ms"), strategy))
    assert early[2] == ["late", "rejected"]
    assert ran.of("late", "id") == [2, 7]
    assert ran.of("rejected", "id") == [3, 8]
    assert ran.of("bad", "reason") == ["event time 't' is more than max_future_skew ahead of processing time"] * 2


def test_what_varies_or_is_shared_waits_for_its_pass(lab: Lab, early: list[list[str]]) -> None:
    source = elements([(1, "a", 1_000, 1)], [(2, "a", 10, 1)], [(3, "a", 20, 1)], schema=SCHEMA).with_columns(drawn="rand()")
    panes = source.key_by("k").window(tm.tumbling("100 ms")).late_to(LATE).aggregate(n=tm.count()).uid("w")
    ran = lab.run({"panes": panes, "late": panes.side_output(LATE)})
    assert ran.of("late", "id") == [2, 3]
    assert not any(early)


@pytest.mark.timeout(120)
def test_a_union_that_waits_for_its_pass_is_not_looked_at_before(lab: Lab) -> None:
    """One of its sources never has rows, so that it is not known yet whether the union's rows vary; nor who will count the other's."""
    silent = elements(schema=SCHEMA, name="silent")
    source = elements([(1, "a", 1_000, 1), (2, "a", 1_000, 0)], [(3, "a", 2_000, 1), (4, "a", 2_000, 0)], schema=SCHEMA)
    kept = source.union(silent).filter("v > 0", rejects_to=REJECTED).uid("some")
    counted = elements([(5, "b", 1_000, 1)], [(6, "b", 2_000, 1)], schema=SCHEMA, name="counted")
    panes = counted.key_by("k").window(tm.tumbling("100 ms")).aggregate(n=tm.count()).uid("w")
    ran = lab.run({"rows": kept.select(k="k", n="v").union(panes.select(k="k", n="n")), "rejected": kept.side_output(REJECTED)})
    assert ran.of("rejected", "id") == [2, 4]
    assert ran.of("rows", "k", "n") == [("a", 1), ("a", 1), ("b", 1), ("b", 1)]
