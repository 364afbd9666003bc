"""Deduplication in the engine, beyond what all kinds keep: columns of any name and type, many keys, and times that change between runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "t TIMESTAMP, k STRING, key_k STRING, `a.b` INT, m MAP<STRING, INT>"
FIELDS = ("t", "k", "key_k", "a.b", "m")


def row(second: float, key: str | None, number: int) -> tuple[object, ...]:
    return datetime.fromtimestamp(second, UTC), key, f"own {key}", number, {"n": number}


def numbers(rows: list[dict[str, Any]]) -> list[object]:
    return sorted(found["a.b"] for found in rows)


def test_columns_of_any_name_and_type_come_through(spark: SparkSession, tmp_path: Path) -> None:
    again = tm.OutputTag("again")
    given = elements([row(1, "a", 1), row(2, "a", 2), row(1, None, 3)], [row(2, None, 4), row(11, "a", 5)], schema=SCHEMA)
    once = given.key_by("k").deduplicate(within="10 seconds", duplicates_to=again).uid("once")
    # Each key is looked for, as where there are many.
    with mock.patch("tidemark.spark.operators.deduplicate.runtime.FEW_ROWS", -1):
        ran = Lab(spark, tmp_path).run({"once": once, "again": once.side_output(again)})
    assert numbers(ran.rows["once"]) == [1, 3, 5]
    assert numbers(ran.rows["again"]) == [2, 4]
    for found in (*ran.rows["once"], *ran.rows["again"]):
        assert tuple(found) == FIELDS
        assert (found["key_k"], dict(found["m"])) == (f"own {found['k']}", {"n": found["a.b"]})


def test_what_expired_stays_so_when_the_time_is_longer(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(spark, tmp_path)
    epochs = [
        [row(0, "a", 1), row(100, "b", 2)],
        # Known of the element at 0 is nothing any more, though the file with that at 100 has it; of that at 100 it still is.
        [row(101, "a", 3), row(102, "b", 4)],
    ]
    for within, count, expected in (("10 seconds", 1, [1, 2]), ("1 hour", 2, [3])):
        stream = elements(*epochs[:count], schema=SCHEMA).key_by("k").deduplicate(within=within).uid("once")
        ran = lab.run({"once": stream}, end_of_input=False)
        assert numbers(ran.rows["once"]) == expected
    kept = tm.savepoint("job", store=str(tmp_path / "store")).tables("once", spark)["kept"]
    assert sorted((found["k"], found["event_time"].timestamp()) for found in kept.collect()) == [("a", 101.0), ("b", 100.0)]


def test_what_follows_may_read_results_until_the_epochs_end(spark: SparkSession, tmp_path: Path) -> None:
    tags = {name: tm.OutputTag(name) for name in ("odd", "again", "late")}
    one, other = (
        elements(
            [row(1, "a", 1), row(2, "a", 2), row(3, "b", 3), row(30, "a", 4), row(4, "c", 5)], [row(5, "d", 6)], schema=SCHEMA, name=name
        )
        for name in ("one", "other")
    )

    def once(stream: tm.Stream, uid: str) -> tm.Stream:
        return stream.key_by("k").deduplicate(within="10 seconds", allowed_lateness="1 hour").uid(uid)

    # Each has one reader in every epoch: what has several is kept in memory anyway.
    even = once(one, "filtered").filter("`a.b` % 2 = 0", rejects_to=tags["odd"])
    by_one = once(one, "chained").key_by(all="1")
    twice = by_one.deduplicate(within="2 seconds", allowed_lateness="1 hour", duplicates_to=tags["again"]).uid("twice")
    by_key = once(other, "windowed").key_by("k").window(tm.tumbling("10 seconds")).late_to(tags["late"])
    windows = by_key.aggregate(n=tm.count()).uid("windows")
    ran = Lab(spark, tmp_path).run(
        {
            "both": once(one, "left").union(once(other, "right")),
            "even": even,
            "odd": even.side_output(tags["odd"]),
            "twice": twice,
            "again": twice.side_output(tags["again"]),
            "windows": windows,
            "late": windows.side_output(tags["late"]),
        }
    )
    assert numbers(ran.rows["both"]) == [1, 1, 3, 3, 4, 4, 5, 5, 6, 6]
    assert (numbers(ran.rows["even"]), numbers(ran.rows["odd"])) == ([4, 6], [1, 3, 5])
    assert (numbers(ran.rows["twice"]), numbers(ran.rows["again"])) == ([1, 3, 4, 6], [5])
    assert ran.of("windows", "k", "n") == [("a", 1), ("a", 1), ("b", 1), ("c", 1)]
    assert numbers(ran.rows["late"]) == [6]


def test_the_times_of_late_elements_and_of_those_kept_behind_the_watermark_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    minute = 60_000
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t")
    third = [row(95 * 60 + 1, "a", 3), row(30 * 60 + 5, "a", 4), row(30 * 60 + 9, "b", 5), row(31 * 60, "c", 6), row(121 * 60, "c", 7)]
    epochs = [[row(60, "a", 1)], [row(120 * 60, "b", 2)], third, [row(130 * 60, "a", 8), row(0, None, 9), row(121 * 60 - 1, None, 10)]]
    expected = {
        "1 hour": [((), ()), ((), ()), ((30 * minute, 31 * minute), (95 * minute,)), ((0,), (120 * minute,))],
        "0 ms": [((), ()), ((), ()), ((30 * minute, 31 * minute, 95 * minute), ()), ((0, 120 * minute), ())],
    }
    keyed = elements(*epochs, schema=SCHEMA, watermarks=strategy).key_by("k")
    streams = {
        lateness: keyed.deduplicate(within="10 seconds", allowed_lateness=lateness).uid(lateness.replace(" ", "-")) for lateness in expected
    }
    ran = Lab(spark, tmp_path).run({lateness.replace(" ", "-"): stream for lateness, stream in streams.items()}, end_of_input=False)
    for lateness, listed in expected.items():
        operators = [epoch.operators[lateness.replace(" ", "-")] for epoch in ran.epochs]
        assert [(operator.late_windows, operator.refired_windows) for operator in operators] == listed
