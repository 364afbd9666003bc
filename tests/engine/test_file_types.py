"""Columns of Parquet and ORC files whose values Spark would change to fit the schema are an error that names column, file and fix."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import tidemark as tm
from tests.engine.lab import Lab
from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.sources.files.file_types import require_types_of_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAME = "two%20 words#50%.parquet"
BY_T = tm.bounded_out_of_orderness("0 ms", timestamp="t")


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


class Column(NamedTuple):
    """A column in a file, the type that it is declared with, and the type to declare instead, None where all values fit."""

    values: pa.Array
    declared: str
    instead: str | None


WHOLE = {
    "int32 as TINYINT": Column(pa.array([300], pa.int32()), "TINYINT", "INT"),
    "int16 as TINYINT": Column(pa.array([300], pa.int16()), "TINYINT", "SMALLINT"),
    "int32 as SMALLINT": Column(pa.array([70_000], pa.int32()), "SMALLINT", "INT"),
    "int64 as INT": Column(pa.array([2**40]), "INT", "BIGINT"),
    "in a list": Column(pa.array([[300]], pa.list_(pa.int32())), "ARRAY<TINYINT>", "INT"),
    "in a struct": Column(pa.array([{"a": 300}], pa.struct([("a", pa.int32())])), "STRUCT<a: TINYINT>", "INT"),
    "in a map": Column(pa.array([[("a", 300)]], pa.map_(pa.string(), pa.int32())), "MAP<STRING, TINYINT>", "INT"),
    "int32 as BIGINT": Column(pa.array([300], pa.int32()), "BIGINT", None),
    "int8 as TINYINT": Column(pa.array([3], pa.int8()), "TINYINT", None),
    "null as INT": Column(pa.array([None], pa.int32()), "INT", None),
}
PARQUET = {
    **WHOLE,
    "uint8 as TINYINT": Column(pa.array([200], pa.uint8()), "TINYINT", "SMALLINT"),
    "uint16 as SMALLINT": Column(pa.array([60_000], pa.uint16()), "SMALLINT", "INT"),
    "uint32 as INT": Column(pa.array([4_000_000_000], pa.uint32()), "INT", "BIGINT"),
    "uint64 as BIGINT": Column(pa.array([2**63 + 5], pa.uint64()), "BIGINT", "DECIMAL(20,0)"),
    "decimal as BIGINT": Column(pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "BIGINT", "DECIMAL(10,2)"),
    "uint32 as BIGINT": Column(pa.array([4_000_000_000], pa.uint32()), "BIGINT", None),
    "uint64 as DECIMAL": Column(pa.array([2**63 + 5], pa.uint64()), "DECIMAL(20, 0)", None),
    "date as SMALLINT": Column(pa.array([70_000], pa.date32()), "SMALLINT", "DATE"),
    "timestamp as INT": Column(pa.array([2**40], pa.timestamp("us")), "INT", "TIMESTAMP_NTZ"),
    "uint32 as DOUBLE": Column(pa.array([4_000_000_000], pa.uint32()), "DOUBLE", "BIGINT"),
    "int32 as DOUBLE": Column(pa.array([2**24 + 1], pa.int32()), "DOUBLE", None),
    "date as INT": Column(pa.array([5], pa.date32()), "INT", None),
    "timestamp as BIGINT": Column(pa.array([1], pa.timestamp("us")), "BIGINT", None),
}
ORC = {
    **WHOLE,
    "double as INT": Column(pa.array([1.5]), "INT", "DOUBLE"),
    "text as INT": Column(pa.array(["x"]), "INT", "STRING"),
    "decimal of a smaller scale": Column(pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "DECIMAL(5, 1)", "DECIMAL(5,2)"),
    "int64 as DOUBLE": Column(pa.array([2**53 + 1]), "DOUBLE", "BIGINT"),
    "int32 as FLOAT": Column(pa.array([2**24 + 1], pa.int32()), "FLOAT", "INT"),
    "bytes as text": Column(pa.array([b"\xff\xfe"]), "STRING", "BINARY"),
    "text as bytes": Column(pa.array(["x"]), "BINARY", None),
    "truth as INT": Column(pa.array([True]), "INT", None),
    "int32 as DOUBLE": Column(pa.array([2**24 + 1], pa.int32()), "DOUBLE", None),
    "int as text": Column(pa.array([5]), "STRING", None),
    "text as VARCHAR": Column(pa.array(["x"]), "VARCHAR(3)", None),
    "date as TIMESTAMP": Column(pa.array([5], pa.date32()), "TIMESTAMP", None),
}


def found(spark: SparkSession, path: Path, column: Column) -> str | None:
    """Return the fix of the error about a column in a file, None where there is none."""
    written = pa.table({"V": column.values})
    kind: Literal["orc", "parquet"] = "orc" if path.suffix == ".orc" else "parquet"
    if kind == "orc":
        orc.write_table(written, path)
    else:
        # Of values in a dictionary Spark refuses some without a reason.
        pq.write_table(written, path, use_dictionary=False)
    files = tm.files(str(path.parent), format=kind, schema=f"v {column.declared}, t BIGINT")
    source = tm.source("landing", files, watermarks=BY_T).node
    assert isinstance(source, SourceNode)
    try:
        require_types_of_files(spark, source, [f"file:{path}"])
    except SourceError as error:
        return error.fix if f"file:{path}" in error.what and error.uid == "landing" else str(error)
    return None


@pytest.mark.parametrize(("suffix", "columns"), [("parquet", PARQUET), ("orc", ORC)], ids=["parquet", "orc"])
def test_types_that_do_not_hold_all_values_of_a_file_are_found(
    spark: SparkSession, tmp_path: Path, suffix: str, columns: dict[str, Column]
) -> None:
    fixes = {name: found(spark, tmp_path / f"{name}.{suffix}", column) for name, column in columns.items()}
    instead = {name: column.instead for name, column in columns.items()}
    assert fixes == {name: kind and f"declare it as {kind} in schema=, and cast it in a later step" for name, kind in instead.items()}


def test_all_files_of_an_epoch_are_looked_at_and_columns_of_folders_are_not(lab: Lab) -> None:
    landing = lab.folder / "landing"
    for number in range(20):
        folder = landing / f"day={number}"
        folder.mkdir(parents=True)
        kind = pa.int64() if number == 17 else pa.int32()
        # Spark has no type for columns of nanoseconds, and does not read this one.
        others = {"day": pa.array([number]), "nanoseconds": pa.array([number], pa.time64("ns"))}
        pq.write_table(pa.table({"t": pa.array([number]), "n": pa.array([number], kind), **others}), folder / NAME)
    files = tm.files(str(landing), format="parquet", schema="t BIGINT, n INT, day INT")
    with pytest.raises(SourceError, match=r"column 'n' is BIGINT in the file \S*17/two%20 words#50%.parquet, and INT in schema=") as raised:
        lab.run({"rows": tm.source("landing", files, watermarks=BY_T)})
    assert (raised.value.job, raised.value.uid, raised.value.epoch) == ("job", "landing", 0)
    (landing / "day=17" / NAME).unlink()
    ran = lab.run({"rows": tm.source("landing", files, watermarks=BY_T)})
    assert {row["n"] for row in ran.rows["rows"]} == set(range(20)) - {17}


def test_a_damaged_file_is_left_to_its_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and no more")
    source = tm.source("landing", tm.files(str(tmp_path), format="parquet", schema="t BIGINT"), watermarks=BY_T).node
    assert isinstance(source, SourceNode)
    require_types_of_files(spark, source, [f"file:{path}", f"file:{tmp_path}/gone.parquet"])


def test_files_beside_folders_are_looked_at_by_their_own_columns(spark: SparkSession, tmp_path: Path) -> None:
    source = tm.source("landing", tm.files(str(tmp_path), format="parquet", schema="t BIGINT, day SMALLINT"), watermarks=BY_T).node
    assert isinstance(source, SourceNode)
    paths = [tmp_path / "DAY=3" / "a.parquet", tmp_path / "b.parquet"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"t": [1], "day": pa.array([70_000], pa.int32())}), path)
    require_types_of_files(spark, source, [f"file:{paths[0]}"])
    with pytest.raises(SourceError, match=r"column 'day' is INT in the file \S+/b.parquet"):
        require_types_of_files(spark, source, [f"file:{path}" for path in paths])


def test_columns_of_orc_without_names_are_taken_by_their_places(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"_col0": pa.array([1]), "_col1": pa.array([2**40])}), path)
    source = tm.source("landing", tm.files(str(tmp_path), format="orc", schema="t BIGINT, n INT"), watermarks=BY_T).node
    assert isinstance(source, SourceNode)
    with pytest.raises(SourceError, match="column 'n' is BIGINT in the file"):
        require_types_of_files(spark, source, [f"file:{path}"])
