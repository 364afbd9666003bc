"""What an epoch looks at twice (rejected rows, late rows, rows that may be too far ahead) is the same the second time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, Lab, elements
from tests.milliseconds import ms
from tests.seeds import only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id INT, k STRING, t BIGINT, v BIGINT"


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.mark.parametrize("condition", ["rand() < 0.5", "pmod(hash(id, current_timestamp()), 2) = 0"])
def test_a_filter_that_varies_sends_each_row_one_way(lab: Lab, condition: str) -> None:
    rejected = tm.OutputTag("rejected")
    source = elements([(i, "a", i, i) for i in range(400)], schema=SCHEMA)
    kept = source.filter(condition, rejects_to=rejected).uid("some")
    sums = kept.key_by("k").window(tm.tumbling("1000 ms")).aggregate(n=tm.count(), total=tm.sum("id")).uid("w")
    ran = lab.run({"sums": sums, "rejected": kept.side_output(rejected)})
    (total,) = ran.of("sums", "total")
    assert 0 < len(ran.rows["rejected"]) < 400
    assert total + sum(ran.of("rejected", "id")) == sum(range(400))


def test_late_rows_are_those_that_the_window_saw(lab: Lab) -> None:
    late = tm.OutputTag("late")
    first, second = [(0, "a", 5_000, 1)], [(i, "a", i, 0) for i in range(1, 300)]
    source = elements(first, second, schema=SCHEMA).with_columns(drawn="CAST(rand() * 1e15 AS BIGINT)").filter("drawn % 2 = 0").uid("even")
    windowed = source.key_by("k").window(tm.tumbling("100 ms")).late_to(late).aggregate(n=tm.count()).uid("w")
    ran = lab.run({"panes": windowed, "late": windowed.side_output(late)})
    assert ran.epochs[1].operators["w"].rows_late == len(ran.rows["late"]) > 0
    assert all(drawn % 2 == 0 for drawn in ran.of("late", "drawn"))


def test_an_expression_does_not_see_rows_too_far_ahead(lab: Lab) -> None:
    """Of the year 9999: malformed, though the expressions behind the source would fail on it."""
    bad = tm.OutputTag("bad")
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t", max_future_skew="1 day")
    far = 253_402_300_000_000
    source = elements([(1, "a", NOW, 1), (2, "a", far, 2)], [(3, "a", NOW + 5, 3)], schema=SCHEMA, watermarks=strategy, malformed_to=bad)
    small = source.with_columns(minutes=f"CAST(t - {NOW} AS SMALLINT)")
    sums = small.key_by("k").window(tm.tumbling("1000 ms")).aggregate(total=tm.sum("minutes"), n=tm.count()).uid("w")
    ran = lab.run({"sums": sums, "bad": source.side_output(bad)})
    assert ran.of("sums", "total", "n") == [(5, 2)]
    assert ran.of("bad", "reason") == ["event time 't' is more than max_future_skew ahead of processing time"]


def test_greater_lateness_does_not_bring_back_what_is_gone(lab: Lab) -> None:
    late = tm.OutputTag("late")
    epochs = [[(1, "a", 10, 1), (2, "a", 150, 1)], [(3, "a", 450, 1)], [(4, "a", 20, 1), (5, "a", 360, 1)]]

    def job(count: int, lateness: int) -> tm.Job:
        source = elements(*epochs[:count], schema=SCHEMA)
        windowed = (
            source.key_by("k").window(tm.tumbling("100 ms")).allowed_lateness(ms(lateness)).late_to(late).aggregate(n=tm.count()).uid("w")
        )
        outputs = {"panes": tm.memory(windowed, f"{lab.folder}/panes"), "late": tm.memory(windowed.side_output(late), f"{lab.folder}/late")}
        return tm.Job("changed", outputs=outputs, store=str(lab.folder / "store"))

    tables = {name: f"{lab.folder}/{name}" for name in ("panes", "late")}
    before = lab.run_job(job(2, 0), tables, end_of_input=False)
    assert before.of("panes", "n") == [1, 1]
    after = lab.run_job(job(3, 1000), tables)
    # The windows of rows 4 and 5 had ended; that of row 5 had got nothing, but was gone as well.
    assert after.of("late", "id") == [4, 5]
    assert after.of("panes", "n", "pane_timing") == [(1, "ON_TIME")]


@pytest.mark.parametrize("bound", [("rejected",), ("rejected", "late"), pytest.param(("late", "rejected"), marks=only_long)], ids="+".join)
def test_rejects_of_a_second_windows_late_rows_are_there(lab: Lab, bound: tuple[str, ...]) -> None:
    late, rejected = tm.OutputTag("late"), tm.OutputTag("rejected")
    source = elements([(1, "a", 5, 1), (2, "a", 40, 1)], [(3, "a", 6, 1), (4, "b", 7, 1)], schema=SCHEMA)
    first = source.key_by("k").window(tm.tumbling("10 ms")).allowed_lateness("1000 ms").aggregate(n=tm.count()).uid("first")
    second = first.key_by("k").window(tm.tumbling("10 ms")).late_to(late).aggregate(total=tm.sum("n")).uid("second")
    several = second.side_output(late).filter("n > 1", rejects_to=rejected).uid("several")
    streams = {"late": several, "rejected": several.side_output(rejected)}
    ran = lab.run({"sums": second, **{name: streams[name] for name in bound}})
    assert ran.of("rejected", "k", "n") == [("b", 1)]
    if "late" in bound:
        assert ran.of("late", "k", "n") == [("a", 2)]


def test_a_union_of_what_varies_is_read_once(lab: Lab) -> None:
    late = tm.OutputTag("late")
    first, second = [(0, "a", 5_000, 1)], [(i, "a", i, 0) for i in range(1, 200)]
    drawn = elements(first, second, schema=SCHEMA, name="drawn").filter("rand() < 0.5 OR id = 0").uid("half")
    other = elements([(1000, "a", 5_000, 1)], [], schema=SCHEMA, name="other")
    windowed = drawn.union(other).key_by("k").window(tm.tumbling("100 ms")).late_to(late).aggregate(n=tm.count()).uid("w")
    ran = lab.run({"panes": windowed, "late": windowed.side_output(late)})
    counted = sum(epoch.operators["w"].rows_late for epoch in ran.epochs)
    assert 0 < counted == len(ran.rows["late"]) < 199
