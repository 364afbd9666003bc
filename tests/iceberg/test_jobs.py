"""Jobs that write to Iceberg: every type, partitions, histories; killed around their publications, and rewound."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal

import tidemark as tm
from tests.crash.fares import clock_of, rescaled, run
from tests.iceberg import jobs
from tests.iceberg.rig import Lake
from tests.killed import kill_at
from tests.seeds import only_long
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

INSTANT = datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
TYPES = (
    "t BIGINT, b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20, 5), n DECIMAL(9, 2), s STRING, "
    "x BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, xs ARRAY<STRUCT<a: TINYINT, b: ARRAY<STRING>>>, p MAP<STRING, DECIMAL(5, 1)>"
)
BY = ["b", "truncate(10, i2)", "truncate(2, s)", "month(day)", "hour(at)", "year(local)", "i1"]
ADDED = [(key, value) for rows in jobs.FILES for key, value in rows]
HISTORY = [
    ("a", 1, "insert", 0),
    ("b", 2, "insert", 0),
    (None, 3, "insert", 0),
    ("a", 4, "update", 1),
    ("c", 5, "insert", 1),
    ("b", 6, "update", 1),
    ("a", 6, "update", 2),
    (None, 7, "update", 2),
    ("c", 5, "delete", 2),
]


def every_type() -> list[dict[str, Any]]:
    """Return rows with ordinary values, odd ones, and none."""
    local = INSTANT.replace(tzinfo=None)
    first: dict[str, Any] = {
        "t": 1, "b": True, "i1": -128, "i2": 32767, "i4": -(2**31), "i8": 2**63 - 1, "f": 0.5, "d": 0.1,
        "m": Decimal("123456789012345.67891"), "n": Decimal("-1.25"), "s": "text", "x": b"\x00\xff", "day": date(1969, 12, 31),
        "at": INSTANT, "local": local, "xs": [{"a": 1, "b": ["x", None]}, {"a": None, "b": None}], "p": {"x": Decimal("0.1"), "y": None},
    }  # fmt: skip
    early = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)
    odd: dict[str, Any] = {
        **dict.fromkeys(first), "t": 2, "b": False, "i2": -1, "s": "\U0001f600\U0001f601x", "day": date(9999, 12, 31), "at": early,
        "xs": [],
    }  # fmt: skip
    return [first, odd, {**dict.fromkeys(first), "t": 3}, {**first, "t": 4, "i2": 7, "s": ""}]


def test_every_type_and_partition(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    given = every_type()
    rows = tm.source("rows", tm.from_elements(epochs=[given[:2], given[2:]], schema=TYPES), watermarks=tm.ascending(timestamp="t"))
    outputs = {
        "plain": tm.iceberg(rows, table="shop.plain", catalog="lake"),
        "parted": tm.iceberg(rows, table="shop.parted", catalog="lake", partition_by=BY),
    }
    tm.run(tm.Job("types", outputs, store=str(tmp_path / "store")), spark=spark)
    # PyIceberg itself shows a null array of structs as an empty one; the files have the null.
    wanted = [{**row, "p": list(row["p"].items()) if row["p"] is not None else None, "xs": row["xs"] or []} for row in given]
    for name in outputs:
        table = lake.table(name)
        paths = [file["file_path"].removeprefix("file://") for file in table.inspect.files().to_pylist()]
        arrays = {row["t"]: row["xs"] for path in paths for row in pq.read_table(path, columns=["t", "xs"], partitioning=None).to_pylist()}
        assert arrays == {row["t"]: row["xs"] for row in given}
        found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["t"])
        assert found == wanted, name
    kinds = {field.name: str(field.field_type) for field in lake.table("plain").schema().fields}
    assert (kinds["i1"], kinds["at"], kinds["local"], kinds["m"]) == ("int", "timestamptz", "timestamp", "decimal(20, 5)")
    check_bounds(lake.table("plain"), given)
    parted = lake.table("parted")
    files = parted.inspect.files().to_pylist()
    assert len(files) == len(given)
    assert {file["partition"]["s_trunc"] for file in files} == {"te", "\U0001f600\U0001f601", None, ""}
    assert {file["partition"]["i2_trunc"] for file in files} == {32760, -10, None, 0}
    assert {file["partition"]["at_hour"] for file in files} == {474_791, -1, None}
    assert parted.scan("s = 'text'").to_arrow()["t"].to_pylist() == [1]
    assert len(list(parted.scan("s = 'text'").plan_files())) == 1
    assert parted.scan(f"at < '{INSTANT.isoformat()}'").to_arrow()["t"].to_pylist() == [2]


def check_bounds(table: Table, given: list[dict[str, Any]]) -> None:
    """Check that readers that search for a value do not skip the file that has it."""
    for column in ("b", "i1", "i2", "i4", "i8", "f", "d", "m", "n", "s", "x", "day", "at", "local"):
        value = given[0][column]
        found = table.scan(EqualTo(term=Reference(column), value=literal(value)), selected_fields=("t",)).to_arrow()["t"].to_pylist()
        assert sorted(found) == [row["t"] for row in given if row[column] == value], column


def test_a_text_that_is_too_long_to_partition_by_fails_before_the_commit(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    rows = tm.source("rows", tm.from_elements(epochs=[[{"t": 1}]], schema="t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    output = tm.iceberg(rows.with_columns(s="repeat('x', 5000)"), table="shop.bad", catalog="lake", partition_by=["s"])
    job = tm.Job("bad", {"bad": output}, store=str(tmp_path / "store"))
    with pytest.raises(TidemarkError, match="do not show its partition s"):
        tm.run(job, spark=spark)
    assert tm.savepoints_of(job).pins.log.load().epoch is None
    assert not lake.rows("bad", ["s"])


def tables(lake: Lake) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    return lake.rows("added"), lake.rows("history", ["k", "v", "operation", "epoch"])


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@pytest.mark.crash
@pytest.mark.parametrize(
    "points",
    [
        # The second epoch both times: in the next process the first one's two tables need nothing.
        ("outputs-staged:2", "iceberg-manifests-written:1"),
        pytest.param(("after-commit:2",), marks=only_long),
        pytest.param(("iceberg-manifests-written:3",), marks=only_long),
        pytest.param(("iceberg-committed:3",), marks=only_long),
    ],
    ids=" then ".join,
)
def test_killed_around_a_publication(
    points: tuple[str, ...], jvm: Mapping[str, str], spark: SparkSession, lake: Lake, *, tmp_path: Path
) -> None:
    jobs.write_landing(tmp_path)
    for attempt, point in enumerate(points):
        kill_at("tests.iceberg.jobs:drive", point, [str(tmp_path), str(attempt)], environment={**jvm, **lake.variables})
        added, history = tables(lake)
        assert len(added) in (3, 6)
        assert history == ordered([row for row in HISTORY if row[3] <= max(epoch for *_, epoch in history)])
    run(jobs.make_job(tmp_path), spark, clock_of(len(points)))
    assert tables(lake) == (ordered(ADDED), ordered(HISTORY))


def test_a_rewind_a_rescale_and_what_follows(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    job = jobs.make_job(jobs.write_landing(tmp_path))
    run(job, spark, clock_of(0), max_epochs=1)
    tm.savepoints_of(job).take("good")
    run(job, spark, clock_of(1))
    assert tables(lake) == (ordered(ADDED), ordered(HISTORY))
    tm.rewind(job, "good")
    assert tables(lake) == (ordered(ADDED[:3]), ordered(HISTORY[:3]))
    run(rescaled(job, 3), spark, clock_of(2))
    assert tables(lake) == (ordered(ADDED), ordered(HISTORY))
    tm.run(job, spark=spark, clock=clock_of(3), restore=tm.Restore("good"), max_epochs=1)
    assert tables(lake) == (ordered([*ADDED, *ADDED[3:6]]), ordered([*HISTORY, *HISTORY[3:6]]))
