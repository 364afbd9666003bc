"""Few rows that a pass over keys wrote are read by the driver; results and state are those that Spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.lab import MINUTE, Lab, elements
from tidemark.spark.columns.state_files import read_files
from tidemark.spark.operators.native_keyed import written_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EPOCHS: list[list[tuple[object, ...]]] = [
    [(1, "a", 1.5), (2, "b", 2.5), (3, None, 0.5)],
    [(4, "a", 1.0), (10 * MINUTE, "b", 4.0)],
    [(11 * MINUTE, "a", 8.0), (40 * MINUTE, "c", 1.0)],
]
FIELDS: dict[str, Any] = {
    "n": ("n + 1", "BIGINT", "0"),
    "total": ("coalesce(total, 0) + v", "DECIMAL(12, 2)"),
    "at": ("timestamp_millis(t)", "TIMESTAMP"),
    "seen": ("map_concat(coalesce(seen, map()), map(t, named_struct('v', v)))", "MAP<BIGINT, STRUCT<v: DOUBLE>>"),
}
RETURNS = {"t": "t", "k": "k", "n": "new.n", "total": "new.total", "at": "at", "seen": "new.seen"}


def job(spark: SparkSession, folder: Path) -> tuple[list[Any], dict[str, list[Any]], dict[str, set[str]]]:
    """Run machines and a running sum; return the results, the rows of state by operator, and the columns of its files."""
    keyed = elements(*EPOCHS, schema="t BIGINT, k STRING, v DOUBLE").key_by("k")
    machine = tm.sql_state(FIELDS, emit_when="v > 1", returns=RETURNS, ttl=tm.state_ttl("20 minutes"))
    streams = {
        "machine": keyed.process(machine).uid("machine"),
        "timed": keyed.process(tm.sql_state({"last": ("v", "DOUBLE")}, returns={"t": "t", "last": "last"})).uid("timed"),
        "running": keyed.running_aggregate(total=tm.sum("v"), n=tm.count()).uid("running"),
    }
    ran = Lab(spark, folder).run(streams, end_of_input=False)
    results = [ran.of(name, *sorted(ran.rows[name][0])) for name in streams]
    found: dict[str, list[Any]] = {}
    columns: dict[str, set[str]] = {}
    for operator in streams:
        files = [path for path in (folder / "store").rglob("*.parquet") if f"/state/{operator}/" in str(path)]
        tables = [pq.read_table(path) for path in files]
        kept = [table for table in tables if "__tm_state" in table.column_names]
        found[operator] = sorted((row for table in kept for row in table.to_pylist()), key=str)
        # Files are read with nullable columns, whatever they say themselves.
        columns[operator] = {str(table.schema.remove_metadata()).replace(" not null", "") for table in kept}
    return results, found, columns


def test_the_driver_writes_what_spark_does(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(*arguments: Any) -> DataFrame:
        read.append(1)
        return read_files(*arguments)

    monkeypatch.setattr(written_rows, "read_files", noted)
    by_driver = job(spark, tmp_path / "few")
    assert read == []
    monkeypatch.setattr(written_rows, "driver_can_read", lambda *_: False)
    by_spark = job(spark, tmp_path / "many")
    assert len(read) >= 2 * 3 * len(EPOCHS)
    assert by_driver[0] == by_spark[0]
    assert all(by_driver[0])
    assert by_driver[1] == by_spark[1]
    assert all(by_driver[1].values())
    assert {name: len(found) for name, found in by_driver[2].items()} == dict.fromkeys(by_driver[2], 1)
    assert by_driver[2] == by_spark[2]
