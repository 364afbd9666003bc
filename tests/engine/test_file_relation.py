"""DataFrames over known Parquet files: the same rows and columns as Spark's reader has, and an error where a file is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from tidemark.spark.file_relation import read_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = T.StructType(
    [
        T.StructField("k", T.StringType(), nullable=False),
        T.StructField("n", T.StructType([T.StructField("x", T.LongType())])),
        T.StructField("absent", T.LongType()),
    ]
)
CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


def written(folder: Path) -> list[str]:
    """Write two files in a folder whose name has characters of URIs and patterns; return their addresses."""
    folder.mkdir()
    for number in range(2):
        rows = pa.table({"k": ["a", f"b{number}"], "n": [{"x": number}, None], "other": [1.5, 2.5]})
        pq.write_table(rows, folder / f"part {number}.parquet", write_page_checksum=True)
    return [f"file://{folder}/part {number}.parquet" for number in range(2)]


def test_rows_and_columns_are_those_of_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path / "a b=é%20")
    made = read_parquet(spark, files, SCHEMA, CHECKED)
    known = spark.read.schema(SCHEMA).options(**CHECKED).parquet(*files)
    assert made.schema == known.schema
    assert sorted(map(str, made.collect())) == sorted(map(str, known.collect()))
    assert made.where("n.x = 1").select("k").collect() == [T.Row(k="a")]
    assert len(made.inputFiles()) == 2


def test_characters_of_patterns_are_none(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path / "{a}[b]*")
    assert read_parquet(spark, files, SCHEMA, CHECKED).count() == 4


def test_a_missing_file_is_an_error_even_if_missing_files_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path / "in")
    (tmp_path / "in" / "part 1.parquet").unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(AnalysisException, match=r"part 1\.parquet") as raised:
            read_parquet(spark, files, SCHEMA, CHECKED)
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert raised.value.getCondition() == "PATH_NOT_FOUND"
