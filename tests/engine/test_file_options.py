"""The options of sources of files: all that Spark's readers know, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError
from tidemark.graph.api.sources import FileFormat
from tidemark.graph.checks.file_options import OF_READERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES = {
    "csv": "catalyst.csv.CSV",
    "json": "catalyst.json.JSON",
    **{kind: f"execution.datasources.{kind}.{kind.title()}" for kind in ("parquet", "orc", "text")},
}


@pytest.mark.spark
def test_the_options_are_those_of_spark(spark: SparkSession) -> None:
    found = {}
    for kind, place in PLACES.items():
        options: Any = spark._jvm  # noqa: SLF001
        for name in f"org.apache.spark.sql.{place}Options$.MODULE$".split("."):
            options = getattr(options, name)
        found[kind] = set(options.getAllOptions().mkString(",").split(","))
    assert found == {kind: set(names) for kind, names in OF_READERS.items()}
    assert set(found) == set(get_args(FileFormat))


@pytest.mark.parametrize(
    ("format", "name", "fix"), [("csv", "headr", "write 'header'"), ("parquet", "colour", "it is one of compression, ")]
)
def test_an_option_that_spark_would_leave_out_is_refused(format: FileFormat, name: str, fix: str) -> None:
    with pytest.raises(DefinitionError, match=rf"files\(options=\{{'{name}': …\}}\) is no option of .* {format}.*at .*py:\d+.*Fix: {fix}"):
        tm.files("landing", format=format, schema="a INT", options={name: "true"})


def test_options_in_any_case_of_folders_and_of_file_systems_are_kept() -> None:
    given = {"HEADER": "true", "recursivefilelookup": "true", "fs.s3a.endpoint": "http://localhost:1"}
    for format in get_args(FileFormat):
        assert tm.files("landing", format=format, schema="value STRING", options=given).options == given
