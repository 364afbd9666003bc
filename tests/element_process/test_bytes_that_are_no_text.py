"""Lines of a file that is not UTF-8: Spark takes their bytes for text, which Python cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidemark as tm
from tidemark.errors import UserCodeError
from tidemark.testing import ManualClock

Row = Mapping[str, Any]
NO_TEXT = tm.OutputTag("no_text")


def lengths(row: Row) -> Row:
    return {"n": len(row["value"])}


def each_length(row: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    del ctx
    yield lengths(row)


FUNCTIONS: Mapping[str, Callable[[tm.Stream], tm.Stream]] = {
    "map": lambda read: read.map(lengths, returns="n BIGINT"),
    "process": lambda read: read.process(each_length, returns="n BIGINT"),
    "keyed": lambda read: read.key_by("value").process(each_length, returns="n BIGINT"),
    "by length": lambda read: read.key_by(k="length(value)").process(each_length, returns="n BIGINT"),
}


def lines(folder: Path) -> tm.Stream:
    """Return lines of which one is in Latin-1."""
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"tea\ncaf\xe9\n")
    return tm.source("lines", tm.files(str(folder), format="text"), watermarks=tm.ingestion_time())


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_they_are_named(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    found = FUNCTIONS[kind](lines(tmp_path / "in")).uid("lengths")
    job = tm.Job("fails", outputs={"n": tm.parquet(found, str(tmp_path / "n"))}, store=str(tmp_path / "store"))
    with pytest.raises(UserCodeError, match=r"an element has a text that is not UTF-8: b'.*caf\\xe9'") as raised:
        tm.run(job, spark=spark, clock=ManualClock(0))
    assert raised.value.uid == "lengths"
    assert raised.value.fix is not None
    assert ".filter('is_valid_utf8(value)', rejects_to=tm.OutputTag('no_text'))" in raised.value.fix


def test_they_can_be_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    texts = lines(tmp_path / "in").filter("is_valid_utf8(value)", rejects_to=NO_TEXT).uid("texts")
    streams = {"n": texts.map(lengths, returns="n BIGINT").uid("lengths"), "aside": texts.side_output(NO_TEXT)}
    outputs = {name: tm.parquet(stream, str(tmp_path / name)) for name, stream in streams.items()}
    tm.run(tm.Job("aside", outputs=outputs, store=str(tmp_path / "store")), spark=spark, clock=ManualClock(0))
    assert [row.n for row in spark.read.parquet(str(tmp_path / "n")).collect()] == [3]
    (aside,) = spark.read.parquet(str(tmp_path / "aside")).selectExpr("CAST(value AS BINARY) AS bytes").collect()
    assert aside.bytes == b"caf\xe9"
