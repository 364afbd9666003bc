"""A memory table holds the rows of one job, and relative paths start from Python's working directory, not from Java's."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import tidemark as tm
from tidemark.errors import SinkError
from tidemark.spark.env.file_systems import readable
from tidemark.spark.sinks.local_sinks import MemorySink
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Writer:
    """A job's memory sink, whose epochs have a row each."""

    folder: Path
    table: str

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.sink = MemorySink("out", self.table, JobStore.open(str(self.folder)))

    def write(self, epoch: int, value: str) -> None:
        path = self.folder / "staging" / "out" / str(epoch) / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"value": [value]}), path)
        record: Any = SimpleNamespace(files=[SimpleNamespace(path=str(path.relative_to(self.folder)))], folder=str(path.parent))
        self.sink.publish(record, self.folder.name, epoch)


def values(table: str) -> list[str]:
    found = tm.memory_table(table)
    return [] if found is None else found["value"].to_pylist()


def test_another_job_replaces_the_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.sinks.local_sinks.folder_of", lambda record: record.folder)
    monkeypatch.setattr(JobStore, "remove_folder", lambda *_: None)
    table = str(tmp_path)
    first, second = Writer(tmp_path / "first", table), Writer(tmp_path / "second", table)
    first.write(0, "a")
    first.write(1, "b")
    assert values(table) == ["a", "b"]
    with caplog.at_level(logging.WARNING, "tidemark"):
        second.write(0, "c")
    assert values(table) == ["c"]
    assert "no longer those of" in caplog.text
    with pytest.raises(SinkError, match=r"has been replaced by that of another job, .*second.*Fix: give each job of a process a table"):
        first.write(2, "d")
    assert values(table) == ["c"]
    tm.clear_memory(table)
    first.write(3, "e")
    assert values(table) == ["e"]


def test_paths_that_spark_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark: Any = None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert readable(spark, "landing/*.json") == str(tmp_path / "landing" / "*.json")
    assert readable(spark, "~/landing") == str(tmp_path / "home" / "landing")
    assert readable(spark, "/landing") == "/landing"
    assert readable(spark, "file:/landing/x") == "file:/landing/x"


@pytest.mark.spark
def test_relative_paths_start_from_where_python_is(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Java's own directory is that in which the session was started.
    monkeypatch.chdir(tmp_path)
    Path("landing").mkdir()
    Path("landing", "1.json").write_text('{"id": 1, "at": "2025-01-06T09:00:00Z"}\n')
    write_deltalake("lake", pa.table({"id": pa.array([2], pa.int32()), "zone": ["north"]}))
    files = tm.source("files", tm.files("landing", format="json", schema="id INT, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at"))
    table = tm.source("table", tm.delta_source("lake", schema="id INT, zone STRING"), watermarks=tm.ingestion_time())
    zones = files.lookup(tm.delta_table("lake", schema="id INT, zone STRING"), on="id", how="left")
    outputs = {"files": tm.delta(zones.select("id"), "out/files"), "table": tm.parquet(table.select("id"), "out/table")}
    tm.run(tm.Job("relative", outputs, store="jobs"), spark=spark)
    found = pa.concat_tables(pq.read_table(path).select(["id"]) for path in sorted(Path("out").rglob("part-*[0-9a-z].parquet")))
    assert {value for value in found["id"].to_pylist() if value} == {1, 2}
    assert {path.name for path in tmp_path.iterdir()} == {"landing", "lake", "jobs", "out"}


def sums(rows: list[tuple[str, int, int]], store: Path, late: tm.OutputTag, tables: Path) -> tm.Job:
    read = tm.source(
        "e",
        tm.from_elements(epochs=[rows], schema="k STRING, t BIGINT, v BIGINT"),
        watermarks=tm.ascending(timestamp="timestamp_millis(t)"),
    )
    windows = read.key_by("k").window(tm.tumbling("1 minute")).late_to(late).aggregate(total=tm.sum("v")).uid("sums")
    outputs = {"sums": tm.memory(windows, f"{tables}/sums"), "late": tm.memory(windows.side_output(late), f"{tables}/late")}
    return tm.Job("sums", outputs, store=str(store))


@pytest.mark.spark
def test_a_table_without_rows_has_the_columns_of_its_output(spark: SparkSession, tmp_path: Path) -> None:
    late = tm.OutputTag("late")
    assert tm.memory_table(f"{tmp_path}/sums") is None
    tm.run(sums([("a", 0, 1)], tmp_path, late, tmp_path), spark=spark)
    empty, nothing_late = tm.memory_table(f"{tmp_path}/sums"), tm.memory_table(f"{tmp_path}/late")
    assert empty is not None
    assert nothing_late is not None
    assert (empty.num_rows, nothing_late.num_rows) == (0, 0)
    assert nothing_late.column_names == ["k", "t", "v"]
    tm.run(sums([("a", 0, 1)], tmp_path, late, tmp_path), spark=spark, end_of_input=True)
    found = tm.memory_table(f"{tmp_path}/sums")
    assert found is not None
    assert found.num_rows == 1
    assert (found.schema.names, found.schema.types) == (empty.schema.names, empty.schema.types)
    tm.run(sums([("b", 0, 1)], tmp_path / "other", late, tmp_path), spark=spark)
    replaced = tm.memory_table(f"{tmp_path}/sums")
    assert replaced is not None
    assert replaced.num_rows == 0
    tm.clear_memory(f"{tmp_path}/sums")
    assert tm.memory_table(f"{tmp_path}/sums") is None
