"""Nexmark's queries come to what the same queries make of all events at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from benchmarks.nexmark.batch import BATCH
from benchmarks.nexmark.generator import events, write_events
from benchmarks.nexmark.queries import QUERIES, q13, streams
from benchmarks.nexmark.sql import SQL, sql_queries
from tests.seeds import PROFILE, only_long
from tidemark.graph.checks.changelogs import changelog_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 3_000
FILES = 3 if PROFILE == "long" else 2
"""An epoch each: the second meets what the first one stored."""

IN_SQL = [*SQL] if PROFILE == "long" else ["q6", "q23"]
"""The queries that run as SQL; the other ones do as streams, in the long profile all."""


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows in order, averages rounded: their sums are taken in another order."""
    return sorted((tuple(round(value, 6) if isinstance(value, float) else value for value in row) for row in rows), key=repr)


def content(table_name: str, keys: tuple[str, ...] | None) -> list[tuple[Any, ...]]:
    """Return the rows that an output has come to."""
    table = tm.memory_table(table_name)
    rows = [] if table is None else table.to_pylist()
    if keys is None:
        return [tuple(row.values()) for row in rows]
    there: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        key = tuple(row[column] for column in keys)
        if row["operation"] == "delete":
            del there[key]
        else:
            there[key] = tuple(value for column, value in row.items() if column not in ("operation", "epoch"))
    return list(there.values())


def test_a_slice_of_events_is_the_same_wherever_it_is_made() -> None:
    whole, parts = events(0, 3_000), [events(first, 1_000) for first in (0, 1_000, 2_000)]
    for name in ("persons", "auctions", "bids"):
        assert getattr(whole, name) == pa.concat_tables([getattr(part, name) for part in parts])
    assert (whole.persons.num_rows, whole.auctions.num_rows, whole.bids.num_rows) == (60, 180, 2_760)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [pytest.param(2, marks=only_long), 7])
def test_queries(spark: SparkSession, tmp_path: Path, parallelism: int) -> None:
    write_events(tmp_path / "events", EVENTS, files=FILES)
    side = tmp_path / "side"
    side.mkdir()
    pq.write_table(pa.table({"key": list(range(1000, 1100)), "value": [f"value {n}" for n in range(100)]}), side / "part.parquet")
    given = streams(tmp_path / "events")
    shown = [name for name in QUERIES if name not in IN_SQL or PROFILE == "long"]
    found = {name: QUERIES[name](given) for name in shown} | {"q13": q13(given, tm.parquet_table(str(side)))}
    outputs = {name: tm.memory(stream, f"nexmark-{name}-{parallelism}") for name, stream in found.items()}
    job = tm.Job(f"nexmark-{parallelism}", outputs, store=str(tmp_path / "store"), parallelism=parallelism)
    tm.run(job, spark=spark, end_of_input=True)
    spark.read.parquet(str(side)).createOrReplaceTempView("side_table")
    require_same(spark, tmp_path / "events", {name: (stream, f"nexmark-{name}-{parallelism}") for name, stream in found.items()})


@pytest.mark.spark
@pytest.mark.slow
def test_queries_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path / "events", 1_000, files=2)
    found = sql_queries(streams(tmp_path / "events"))
    assert found.keys() == SQL.keys() == QUERIES.keys() - {"q7", "q8"}
    outputs = {name: tm.memory(found[name], f"nexmark-sql-{name}") for name in IN_SQL}
    tm.run(tm.Job("nexmark-sql", outputs, store=str(tmp_path / "store")), spark=spark, end_of_input=True)
    require_same(spark, tmp_path / "events", {name: (found[name], f"nexmark-sql-{name}") for name in IN_SQL})


def require_same(spark: SparkSession, folder: Path, found: Mapping[str, tuple[tm.Stream, str]]) -> None:
    """Check that what each stream put into a table comes to what a query over all events gives."""
    for name in ("persons", "auctions", "bids"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    for name, (stream, table) in found.items():
        rows = [tuple(row.values()) for row in spark.sql(BATCH[name]).toArrow().to_pylist()]
        assert rows, name
        assert comparable(content(table, changelog_keys(stream.node))) == comparable(rows), name
