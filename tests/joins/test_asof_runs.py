"""The temporal join in the engine: idle inputs, epochs without input, columns, and what is kept."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements, run_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LEFT = "t TIMESTAMP, k STRING, d INT"
RIGHT = "rt TIMESTAMP, k STRING, d INT, rate DOUBLE"


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_an_idle_right_input_holds_nobody_back_in_an_epoch_without_input(spark: SparkSession, tmp_path: Path) -> None:
    lefts = elements([(at(second), "a", 0) for second in (1, 5, 9)], schema=LEFT, name="lefts")
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="rt", idle_after="5 minutes")
    rates = elements([(at(1), "a", 0, 0.5), (at(2), "a", 0, 0.7)], schema=RIGHT, name="rates", watermarks=strategy)
    stream = lefts.join_asof(rates.select("k", "rate"), on="k").uid("asof")
    epochs = run_on(stream, spark, tmp_path, waits=[5 * 60_000])
    # The first element is not after the right input's watermark; the second waits for it until it is idle; the third for the left one's.
    assert [epoch.outputs["panes"].rows for epoch in epochs] == [1, 1]
    assert [row["rate"] for row in tm.memory_table(f"{tmp_path}/job").to_pylist()] == [0.5, 0.7]  # type: ignore[union-attr]
    tm.clear_memory(f"{tmp_path}/job")


def test_columns_keys_and_nulls(spark: SparkSession, tmp_path: Path) -> None:
    lefts = elements([(at(5), "a", 1), (at(6), None, 1), (at(7), "b", 2)], schema=LEFT, name="lefts")
    right = [(at(1), "a", 1, 0.1), (at(2), "a", 2, 0.2), (at(2), None, 1, 0.9), (at(3), "A", 1, 0.3), (at(7), "b", 2, 0.4)]
    rates = elements(right, schema=RIGHT, name="rates", watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="rt"))
    named = rates.select("k", rate="rate", rate_at="rt", of="d")
    plain = rates.select("k", "d", "rate")
    streams = {
        "one": lefts.join_asof(named, on="k", how="left").uid("one"),
        "both": lefts.join_asof(plain, on=["k", "d"], how="left").uid("both"),
        "other": lefts.join_asof(named.select(code="k", rate="rate"), on={"upper(k)": "code"}).uid("other"),
    }
    ran = Lab(spark, tmp_path).run(streams)
    assert tuple(ran.rows["one"][0]) == ("t", "k", "d", "rate", "rate_at", "of")
    assert tuple(ran.rows["both"][0]) == ("t", "k", "d", "rate")
    assert ran.of("one", "k", "rate") == [("a", 0.2), ("b", 0.4), (None, None)]
    assert ran.of("both", "k", "rate") == [("a", 0.1), ("b", 0.4), (None, None)]
    assert tuple(ran.rows["other"][0]) == ("t", "k", "d", "code", "rate")
    assert ran.of("other", "k", "code", "rate") == [("a", "A", 0.3)]


def test_what_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    lefts = elements([(at(5), "a", 1)], [(at(50), "a", 2), (at(51.5), "b", 3)], schema=LEFT, name="lefts")
    right = [[(at(second), key, 0, float(second)) for second in range(epoch * 50, epoch * 50 + 50) for key in "ab"] for epoch in range(2)]
    strategy = tm.bounded_out_of_orderness("60 seconds", timestamp="rt")
    rates = elements(*right, schema=RIGHT, name="rates", watermarks=strategy)
    joined = lefts.join_asof(rates.select("k", "rate"), on="k", how="left").uid("asof")
    ran = Lab(spark, tmp_path).run({"rows": joined}, end_of_input=False)
    assert ran.of("rows", "d", "rate") == [(1, 5.0)]
    tables = tm.savepoint("job", store=str(tmp_path / "store")).tables("asof", spark)
    # W(right) is 38.999, so of the times before it only the newest version of each key is kept.
    assert sorted((row["d"], row["answered"]) for row in tables["left"].collect()) == [(2, False), (3, False)]
    kept = [(row["k"], row["rate"]) for row in tables["versions"].collect()]
    assert sorted(kept) == sorted((key, float(second)) for second in range(38, 100) for key in "ab")
    (operator,) = (epoch.operators["asof"] for epoch in ran.epochs[-1:])
    assert operator.counters == {"late_left": 0, "late_right": 0}


def test_no_version_has_come_yet(spark: SparkSession, tmp_path: Path) -> None:
    lefts = elements([(at(5), "a", 1)], [], schema=LEFT, name="lefts")
    rates = elements([], [(at(6), "a", 1, 0.1)], schema=RIGHT, name="rates", watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="rt"))
    joined = lefts.join_asof(rates.select("k", "rate"), on="k", how="left", allowed_lateness="1 hour", key="d").uid("asof")
    ran = Lab(spark, tmp_path).run({"rows": joined})
    assert ran.of("rows", "d", "rate", "operation") == [(1, None, "insert")]
