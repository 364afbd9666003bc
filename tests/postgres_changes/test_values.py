"""Texts of Postgres as values of Spark: those that are none make a row malformed, except a deletion, which needs only its key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from tidemark.graph.connectors.postgres_changes.captured_rows import CapturedRows
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.postgres_changes_spec import CapturedTable
from tidemark.graph.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": ("BIGINT", "7", 7),
    "day": ("DATE", "2026-02-28", dt.date(2026, 2, 28)),
    "plain": ("TIMESTAMP_NTZ", "2026-02-28 23:59:59.123456", dt.datetime(2026, 2, 28, 23, 59, 59, 123456)),  # noqa: DTZ001
    "share": ("DOUBLE", "-Infinity", float("-inf")),
    "total": ("DECIMAL(12, 2)", "12.50", None),
    "raw": ("BINARY", "\\x00ff", bytearray(b"\x00\xff")),
    "empty": ("BINARY", "\\x", bytearray()),
    "open": ("BOOLEAN", "t", True),
    "tags": ("STRING", "{a,NULL}", "{a,NULL}"),
}
WRONG = {
    "day": ("infinity", "0044-03-15 BC", "-infinity"),
    "plain": ("infinity", "0044-03-15 00:00:00 BC"),
    "total": ("NaN", "99999999999", "Infinity"),
}


def test_values(spark: SparkSession) -> None:
    table = CapturedTable("shop", "orders", Schema.of([(name, kind) for name, (kind, _, _) in COLUMNS.items()]), ("id",))
    rows = CapturedRows(table)
    right = {name: text for name, (_, text, _) in COLUMNS.items()}
    nulls = {name: right["id"] if name == "id" else None for name in right}
    given: list[tuple[str, Mapping[str, str | None]]] = [("update", right), ("update", nulls)]
    wrong = [{**right, name: text} for name, texts in WRONG.items() for text in texts]
    given += [("update", row) for row in wrong]
    given += [("delete", row) for row in wrong]
    ddl = ", ".join(f"{name}: STRING" for name in COLUMNS)
    schema = f"operation STRING, committed_at TIMESTAMP, {table.row_column} STRUCT<{ddl}>"
    at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    captured = spark.createDataFrame([(operation, at, tuple(row.values())) for operation, row in given], schema)
    time = rows.time("coalesce(day, committed_at)", Site("test", ""))
    found = captured.selectExpr(*(f"{sql} AS {name}" for name, sql in rows.columns.items()), f"{time} AS time", "operation").collect()
    first = found[0].asDict()
    expected = {name: value for name, (_, _, value) in COLUMNS.items() if name != "total"}
    assert {name: first[name] for name in expected} == expected
    assert str(first["total"]) == "12.50"
    whole = round(at.timestamp() * 1000)
    assert found[1]["time"] == whole
    assert found[1]["empty"] is None
    assert [row["time"] for row in found[2:] if row["operation"] == "update"] == [None] * len(wrong)
    assert [row["time"] for row in found[2:] if row["operation"] == "delete"] == [whole] * len(wrong)
