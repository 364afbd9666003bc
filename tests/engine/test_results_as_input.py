"""Window results as rows of a further window, alone and beside a source's own rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000


def test_results_beside_the_rows_of_another_source(spark: SparkSession, tmp_path: Path) -> None:
    counted = elements([("x", 1), ("w", 2), ("x", 3)], [("x", 2 * HOUR)], schema="k STRING, t BIGINT", name="counted")
    plain = elements([("y", 5), ("z", HOUR - 1)], [("y", 3 * HOUR)], schema="k STRING, t BIGINT", name="plain")
    counts = counted.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("counts")
    united = counts.select("k", "n").union(plain.select("k", n="CAST(-1 AS BIGINT)"))
    aggregates = {
        "rows": tm.count(),
        "first": tm.first("k"),
        "last": tm.last("k"),
        "keys": tm.collect_list("k"),
        "ns": tm.collect_list("n"),
    }
    aggregates |= {"early": tm.min_by("k", "n"), "top": tm.top_k("k", 2, by="n")}
    hours = united.window_all(tm.tumbling("1 hour")).aggregate(**aggregates).uid("hours")
    ran = Lab(spark, tmp_path).run({"hours": hours}, end_of_input=False)
    assert [epoch.sources["plain"].watermark for epoch in ran.epochs] == [HOUR - 2, 3 * HOUR - 1]
    assert [epoch.operators["hours"].watermark for epoch in ran.epochs] == [2, 2 * HOUR - 1]
    # Elements of one time come in the order of where they are from: an operator's uid, or a source's name.
    (found,) = ran.rows["hours"]
    assert (found["rows"], found["first"]) == (4, "y")
    assert [found["keys"][0], *sorted(found["keys"][1:3]), found["keys"][3]] == ["y", "w", "x", "z"]
    assert [{"w": 1, "x": 2}.get(key, -1) for key in found["keys"]] == found["ns"]
    assert (found["last"], found["early"], found["top"]) == ("z", "y", ["x", "w"])


def test_the_first_of_window_results(spark: SparkSession, tmp_path: Path) -> None:
    source = elements([("b", 1, 5), ("a", 2, 6)], [("a", HOUR, 7), ("a", 9 * HOUR, 0)], schema="k STRING, t BIGINT, v INT")
    hourly = source.key_by("k").window(tm.tumbling("1 hour")).aggregate(total=tm.sum("v")).uid("hourly")
    shared = {"first": tm.first("k"), "totals": tm.collect_list("total"), "last": tm.last("total")}
    daily = hourly.window_all(tm.tumbling("3 hours")).aggregate(**shared).uid("daily")
    ran = Lab(spark, tmp_path).run({"daily": daily}, end_of_input=False)
    assert ran.of("daily", "first", "totals", "last") == [("a", [6, 5, 7], 7)]
