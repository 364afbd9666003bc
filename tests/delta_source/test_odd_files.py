"""Files whose names are written otherwise in addresses, and snapshots whose files are in no order of their rows' times."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.changelog.changes import Histories
from tests.delta_source.tables import append, entry, rides
from tidemark.graph import DeltaTableSpec
from tidemark.spark.sources.delta_tables.logged_versions import DataFile
from tidemark.spark.sources.delta_tables.table_rows import table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES = ("my file.parquet", "a+b.parquet", "100%.parquet", "20%25.parquet", "ü&=#.parquet", "plain.parquet")


def rename_files(path: Path, version: int, names: list[str]) -> None:
    """Give the files of a version other names, which the log has as a part of an address."""
    left = list(names)
    lines = [json.loads(line) for line in entry(path, version).read_text().splitlines()]
    for line in lines:
        if "add" in line:
            old = line["add"]["path"]
            folder, _, _ = old.rpartition("/")
            name = left.pop()
            shutil.move(path / old, path / folder / name)
            line["add"]["path"] = f"{folder}/{quote(name)}"
    entry(path, version).write_text("\n".join(map(json.dumps, lines)))


def test_names_that_are_written_otherwise_and_times_without_order(spark: SparkSession, tmp_path: Path) -> None:
    named, timed = tmp_path / "named", tmp_path / "timed"
    for number in (0, 1):
        zones = pa.table({"id": range(number * 6, number * 6 + 6), "zone": list("abcdef"), "fare": [1.0] * 6})
        append(named, zones, partition_by=["zone"])
        rename_files(named, number, [f"{number}{name}" for name in NAMES])
    # The newest rows are in the oldest file.
    for hour in (9, 5, 7, 1):
        append(timed, pa.table({"id": [hour], "at": pa.array([hour * 3_600_000_000], pa.timestamp("us", tz="UTC"))}))
    late = tm.OutputTag("late")
    rows = tm.source(
        "named", tm.delta_source(str(named), schema="id BIGINT, zone STRING", max_bytes_per_epoch=4000), watermarks=tm.ingestion_time()
    )
    hours = tm.source(
        "timed",
        tm.delta_source(str(timed), schema="id BIGINT, at TIMESTAMP", max_bytes_per_epoch=1),
        watermarks=tm.ascending(timestamp="at"),
    )
    counts = hours.key_by("id").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("counts")
    histories = Histories(spark, tmp_path)
    found = histories.run({"named": rows, "counts": counts, "late": counts.side_output(late)})
    expected = [(number, "abcdef"[number % 6]) for number in range(12)]
    assert sorted((row["id"], row["zone"]) for epoch in found["named"] for row in epoch) == expected
    assert [row for epoch in found["late"] for row in epoch] == []
    assert sorted(row["id"] for epoch in found["counts"] for row in epoch) == [1, 5, 7]
    # After the snapshot the watermark holds again.
    append(timed, pa.table({"id": [3, 11], "at": pa.array([3 * 3_600_000_000, 11 * 3_600_000_000], pa.timestamp("us", tz="UTC"))}))
    found = histories.run({"named": rows, "counts": counts, "late": counts.side_output(late)})
    assert [row["id"] for epoch in found["late"] for row in epoch] == [3]
    assert DeltaTable(str(timed)).version() == 4


def test_rows_of_a_file_that_was_not_asked_for_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    spec = DeltaTableSpec(path=str(tmp_path), schema="id BIGINT, zone STRING")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        append(tmp_path / name, rides(0, 1))
    addresses = [str(next((tmp_path / name).glob("*.parquet"))) for name in ("one", "two")]
    files = [DataFile(f"x/{number}.parquet", 1, 0, 0, partition={"zone": str(number)}) for number in range(2)]
    with pytest.raises(Exception, match="rows of a file that is not to be read"):
        table_rows(spark, spec, files, addresses).select("zone").collect()
