"""``raw`` of malformed rows is the record as it came, whatever Spark reads of it and wherever the source's folder lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import tidemark as tm
from tests.engine.lab import Lab
from tidemark.graph.api.sources import FileFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BAD = tm.OutputTag("bad")
NULL = "event time 't' is null"


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


REQUIRED = "k STRING NOT NULL, t BIGINT, s STRUCT<a: INT NOT NULL, b: STRING>"
MISSING = "column '{}' is null, and the schema declares it NOT NULL"
NO_K, NO_A = (MISSING.format(name) for name in ("k", "s.a"))


def malformed(lab: Lab, kind: FileFormat, schema: str, files: dict[str, str], *, path: str = "") -> list[tuple[str, str]]:
    """Return raw and reason of the malformed records of files, by their names below the lab's folder."""
    for name, text in files.items():
        file = lab.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    spec = tm.files(path or str(next(iter((lab.folder / name).parent for name in files))), format=kind, schema=schema)
    source = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"), malformed_to=BAD)
    return lab.run({"rows": source.select("t"), "bad": source.side_output(BAD)}, end_of_input=False).of("bad", "raw", "reason")


TEXTS = (
    ("k STRING, t BIGINT", ['{"k": 7.50,"t":null}', '{"k":"7.50" ,"t":null}', '{"k":1e3,"t":null}', '{"k": {"a" : 1.0},"t":null}']),
    ("k STRING, t BIGINT", ['{"k":[1 , 2.0],"t":null}', '{"k":true ,"t":null}', '{"k":"[1, 2]" ,"t":null}', '{"k": "a,b","t":null}']),
    ("k STRING, t BIGINT", ['{"k":7.50,"t":null}', '{"k": 7.5,"t":null}', '{"k":7.50,"t":null}', '{"k": null,"t":null}']),
    ("s STRUCT<a: STRING, `b c`: INT>, t BIGINT", ['{"s": {"a": 7.50, "b c": 1},"t":null}', '{"s":null ,"t":null}']),
    ("a ARRAY<STRING>, m MAP<STRING, STRING>, t BIGINT", ['{"a": [7.50, "x"],"m": {"7.50": 7.50},"t":null}', '{"a":[ ],"t":null}']),
)


def test_json_that_is_no_text_in_columns_of_text(lab: Lab) -> None:
    streams: dict[str, tm.Stream] = {}
    for number, (schema, records) in enumerate(TEXTS):
        folder, bad = lab.folder / str(number), tm.OutputTag(f"bad-{number}")
        folder.mkdir()
        (folder / "f.json").write_text("\n".join(records), encoding="utf-8")
        spec = tm.files(str(folder), format="json", schema=schema)
        source = tm.source(f"texts_{number}", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"), malformed_to=bad)
        streams |= {f"rows-{number}": source.select("t"), bad.name: source.side_output(bad)}
    ran = lab.run(streams, end_of_input=False)
    for number, (_, records) in enumerate(TEXTS):
        assert ran.of(f"bad-{number}", "raw", "reason") == sorted((record, NULL) for record in records)


def test_a_folder_above_the_sources_own_is_no_column(lab: Lab) -> None:
    records = ['{"k":"a" ,"t":null}', '{"day": "x","k":"a","t":null}']
    schema = "k STRING, t BIGINT, day STRING"
    assert malformed(lab, "json", schema, {"day=2024/in/f.json": "\n".join(records)}) == sorted((record, NULL) for record in records)


def test_fields_of_csv_are_counted_without_folders_above(lab: Lab) -> None:
    bad = "column 't' cannot be read as BIGINT: 'x'"
    assert malformed(lab, "csv", "k STRING, t BIGINT, day INT", {"day=2024/in/f.csv": "a,1,2024\nb,x,2025\n"}) == [("b,x,2025", bad)]


@pytest.mark.parametrize("how", ["absolute", "file", "slash"])
def test_folders_below_the_sources_own_are_columns(lab: Lab, how: str) -> None:
    top = lab.folder / "day=2024" / "in here"
    path = {"absolute": str(top), "file": f"file://{top}", "slash": f"{top}/"}[how]
    files = {f"day=2024/in here/day=202{number}/f.csv": f"a,1\nb,x{number}\nc,\n" for number in (5, 6)}
    found = malformed(lab, "csv", "k STRING, t BIGINT, day INT", files, path=path)
    reasons = [(f"b,x{number}", f"column 't' cannot be read as BIGINT: 'x{number}'") for number in (5, 6)]
    assert found == [*reasons, ("c,", NULL), ("c,", NULL)]


def test_below_a_pattern_no_folder_is_a_column(lab: Lab) -> None:
    files = {"in/day=2024/f.csv": "a,1,3\nb,x,4\nc,,5\n"}
    found = malformed(lab, "csv", "k STRING, t BIGINT, day INT", files, path=f"{lab.folder}/in/*")
    assert found == [("b,x,4", "column 't' cannot be read as BIGINT: 'x'"), ("c,,5", NULL)]


def test_json_without_a_value_that_the_schema_requires(lab: Lab) -> None:
    bad = {
        '{"t": 1, "s": null}': NO_K,
        '{"k": null, "t": 1, "s": {"a": 2}}': NO_K,
        '{"k": "x", "t": 1, "s": {"b": "c"}}': NO_A,
        '{"t": null, "s": {}}': NULL,
        '{"k": "x", "t": 1, "s": {"a": "one"}}': "record cannot be parsed",
    }
    good = ['{"k": "", "t": 1, "s": {"a": 2}}', '{"k": "x", "t": 1}', '{"k": "x", "t": 1, "s": null}']
    assert malformed(lab, "json", REQUIRED, {"in/f.json": "\n".join([*bad, *good])}) == sorted(bad.items())


INSIDE = """t BIGINT, a ARRAY<STRUCT<i: INT NOT NULL>>, m MAP<STRING, STRUCT<v: ARRAY<STRUCT<`x y`: INT NOT NULL>>>>,
    s STRUCT<a: ARRAY<ARRAY<STRUCT<i: STRING NOT NULL>>>>"""
WITHIN = {
    "a.i": ['{"t":9, "a":[{"i":1},{"i":null}]}', '{"t":9, "a":[{}]}'],
    "m.v.x y": ['{"t":9, "m":{"k":null,"l":{"v":[null,{"x y":null}]}}}'],
    "s.a.i": ['{"t":9, "s":{"a":[null,[{"i":"a"}],[{"i":null}]]}}'],
}
WHOLE = [
    '{"t":1, "a":null}',
    '{"t":2, "a":[],"m":{},"s":{}}',
    '{"t":3, "a":[null],"m":{"k":null,"l":{"v":null}},"s":{"a":[[null],[{"i":""}]]}}',
]


def test_arrays_and_maps_without_a_value_that_the_schema_requires(lab: Lab) -> None:
    (lab.folder / "in").mkdir()
    records = [*WHOLE, *(record for records in WITHIN.values() for record in records)]
    (lab.folder / "in" / "f.json").write_text("\n".join(records), encoding="utf-8")
    read = lab.spark.read.schema(INSIDE).json(str(lab.folder / "in"))
    read.coalesce(1).write.parquet(str(lab.folder / "columns"))
    kinds: dict[FileFormat, str] = {"json": "in", "parquet": "columns"}
    for kind, name in kinds.items():
        spec = tm.files(str(lab.folder / name), format=kind, schema=INSIDE)
        source = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"), malformed_to=BAD)
        run = lab.run({"rows": source.select("t"), "bad": source.side_output(BAD)}, job=kind, end_of_input=False)
        assert run.of("rows", "t") == [1, 2, 3]
        found = run.of("bad", "raw", "reason") if kind == "json" else run.of("bad", "reason")
        reasons = [(record, MISSING.format(path)) for path, records in WITHIN.items() for record in records]
        assert found == sorted(reasons if kind == "json" else [reason for _, reason in reasons])
        assert run.epochs[-1].watermark == 2


def test_csv_without_a_value_that_the_schema_requires(lab: Lab) -> None:
    found = malformed(lab, "csv", "k STRING NOT NULL, t BIGINT", {"in/f.csv": "a,1\n,2\n,\n"})
    assert found == [(",", NULL), (",2", NO_K)]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files_of_columns_without_a_value_that_the_schema_requires(lab: Lab, kind: FileFormat) -> None:
    written = lab.spark.createDataFrame(
        [("a", 1, (2, "c")), (None, 9, (2, "c")), ("b", 9, (None, "c")), ("d", 3, None)], REQUIRED.replace(" NOT NULL", "")
    )
    written.coalesce(1).write.format(kind).save(str(lab.folder / "in"))
    source = tm.source(
        "landing",
        tm.files(str(lab.folder / "in"), format=kind, schema=REQUIRED),
        watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"),
        malformed_to=BAD,
    )
    run = lab.run({"rows": source.select("t"), "bad": source.side_output(BAD)}, end_of_input=False)
    assert run.of("bad", "raw", "reason") == [
        ('{"k":"b","t":9,"s":{"a":null,"b":"c"}}', NO_A),
        ('{"k":null,"t":9,"s":{"a":2,"b":"c"}}', NO_K),
    ]
    assert run.of("rows", "t") == [1, 3]
    # They move no watermark.
    assert run.epochs[-1].watermark == 2


def test_the_reason_is_the_same_whether_or_not_rows_before_were_malformed(lab: Lab) -> None:
    ahead = "event time 't' is more than max_future_skew ahead of processing time"
    bad, far = '{"k": null, "t": 9000000000000}', '{"k": "x", "t": 9000000000000}'
    for number, (files, reasons) in enumerate([([bad], [NO_K]), ([bad, bad], [NO_K, NO_K]), ([far, bad], [ahead, NO_K])]):
        folder = lab.folder / str(number)
        folder.mkdir()
        for place, text in enumerate(files):
            (folder / f"{place}.json").write_text(text, encoding="utf-8")
            os.utime(folder / f"{place}.json", (place, place))
        source = tm.source(
            "landing",
            tm.files(str(folder), format="json", schema=REQUIRED, max_files_per_epoch=1),
            watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"),
            malformed_to=BAD,
        )
        run = lab.run({"rows": source, "bad": source.side_output(BAD)}, job=f"job-{number}", end_of_input=False)
        assert (len(run.epochs), run.of("bad", "reason")) == (len(files), sorted(reasons))


def test_a_format_without_a_value_that_the_schema_requires(lab: Lab) -> None:
    class Rows(SimpleDataSourceStreamReader):
        """Three rows, one without a key."""

        def initialOffset(self) -> dict[str, int]:  # noqa: N802  # PySpark's names
            return {"read": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[object, ...]], dict[str, int]]:
            return self.readBetweenOffsets(start, {"read": 3}), {"read": 3}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[object, ...]]:  # noqa: N802
            rows = [("a", 1, (1, "x")), (None, 9, (1, "x")), ("b", 9, (None, "x"))]
            return iter(rows[start["read"] : end["read"]])

    class Format(DataSource):
        """A format in Python, which gives what it is asked for."""

        @classmethod
        def name(cls) -> str:
            return "three"

        def simpleStreamReader(self, schema: object) -> Rows:  # noqa: N802, ARG002
            return Rows()

    lab.spark.dataSource.register(Format)
    source = tm.source(
        "landing",
        tm.streaming_format("three", schema=REQUIRED),
        watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"),
        malformed_to=BAD,
    )
    run = lab.run({"rows": source.select("k", "s"), "bad": source.side_output(BAD)}, end_of_input=False)
    assert run.of("rows", "k") == ["a"]
    assert run.of("bad", "raw", "reason") == [
        ('{"k":"b","t":9,"s":{"a":null,"b":"x"}}', NO_A),
        ('{"k":null,"t":9,"s":{"a":1,"b":"x"}}', NO_K),
    ]


def test_a_source_of_which_all_rows_are_malformed_is_named_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "tidemark"):
        malformed(lab, "json", "k STRING, t BIGINT", {"in/one.json": '{"k": "a"}\n{"k": "b"}', "in/two.json": '{"k": "c"}'})
    (message,) = [each for each in caplog.messages if "malformed" in each]
    assert message.startswith("source 'landing': all 3 rows of epoch 0 are malformed")
    assert "side output 'bad' has each with its reason" in message
