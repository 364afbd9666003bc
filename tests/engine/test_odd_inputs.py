"""Input that is odd and legal: file names, times that are text, split names with quotes, unions of unlike streams."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.engine.lab import Lab, elements
from tests.seeds import only_long
from tidemark.errors import SourceError, UserCodeError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.columns.expressions import ROW_STATUS, SPLIT, TIME
from tidemark.spark.columns.row_counts import MALFORMED, PASSING, RowCounter, RowCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BY_T = tm.bounded_out_of_orderness("0 ms", timestamp="t")
BAD = tm.OutputTag("bad")


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


NAMES = ("two words.parquet", "two%20words.parquet", "50%.parquet", "a#b.parquet", "a+b.parquet", "é.parquet")


def test_files_are_read_by_their_names_whatever_characters_these_have(lab: Lab) -> None:
    """A folder of partitions has percent signs in its own name; a name that looks encoded is another file's than the decoded one."""
    landing = lab.folder / "some landing"
    paths = [landing / f"hour=2019-01-01 0{number % 2}%3A00" / name for number, name in enumerate(NAMES)]
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"name": [path.name], "t": pa.array([number], pa.int64())}), path)
        os.utime(path, (1_600_000_000 + number,) * 2)
    spec = tm.files(str(landing), format="parquet", schema="name STRING, t BIGINT, hour STRING", max_files_per_epoch=3)
    ran = lab.run({"rows": tm.source("landing", spec, watermarks=BY_T)}, end_of_input=False)
    expected = [(name, number, f"2019-01-01 0{number % 2}:00") for number, name in enumerate(NAMES)]
    assert ran.of("rows", "name", "t", "hour") == sorted(expected, key=str)
    assert [epoch.rows_in for epoch in ran.epochs] == [3, 3]


@pytest.mark.parametrize(
    ("kind", "most"),
    [("parquet", 10), ("json", 1), pytest.param("parquet", 1, marks=only_long), pytest.param("json", 10, marks=only_long)],
)
def test_files_beside_folders_that_name_values_are_read(lab: Lab, kind: Literal["parquet", "json"], most: int) -> None:
    """Spark leaves out files of the one or the other kind of folder, without a word."""
    folders = ("", "day=2024-01-01", "day=__HIVE_DEFAULT_PARTITION__", "")
    for number, folder in enumerate(folders):
        path = lab.folder / "landing" / folder / f"{number}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = pa.table({"n": [number, number], "t": pa.array([number, None], pa.int64())})
        if kind == "parquet":
            pq.write_table(rows, path)
        else:
            path.write_text(f'{{"n": {number}, "t": {number}}}\n{{"n":  {number}}}\n', encoding="utf-8")
    spec = tm.files(str(lab.folder / "landing"), format=kind, schema="day DATE, n BIGINT, t BIGINT", max_files_per_epoch=most)
    source = tm.source("landing", spec, watermarks=BY_T, malformed_to=BAD)
    counts = source.key_by("day").window(tm.tumbling("1 second")).aggregate(n=tm.count()).uid("counts")
    ran = lab.run({"rows": source, "counts": counts, "bad": source.side_output(BAD)})
    days = (None, date(2024, 1, 1), None, None)
    assert ran.of("rows", "n", "day", "t") == sorted(((n, day, n) for n, day in enumerate(days)), key=str)
    assert ran.of("counts", "day", "n") == [(None, 3), (date(2024, 1, 1), 1)]
    if kind == "json":
        assert ran.of("bad", "raw") == [f'{{"n":  {number}}}' for number in range(4)]


def test_folders_name_no_columns_but_those_of_the_schema(lab: Lab) -> None:
    """Of others Spark guesses the types from the values of an epoch: the next one would not fit the output's table."""
    for number, folder in enumerate(("batch=1", "batch=late")):
        path = lab.folder / "landing" / folder / f"{number}.json"
        path.parent.mkdir(parents=True)
        path.write_text(f'{{"n": {number}, "t": {number}}}\n{{"n":  {number}}}\n', encoding="utf-8")
        os.utime(path, (1_600_000_000 + number,) * 2)
    spec = tm.files(str(lab.folder / "landing"), format="json", schema="n INT, t BIGINT", max_files_per_epoch=1)
    source = tm.source("landing", spec, watermarks=BY_T, malformed_to=BAD)
    table = str(lab.folder / "rows")
    outputs = {"rows": tm.delta(source, table), "bad": tm.memory(source.side_output(BAD), "bad")}
    ran = lab.run_job(tm.Job("job", outputs=outputs, store=str(lab.folder / "store")), {"bad": "bad"}, end_of_input=False)
    assert DeltaTable(table).to_pyarrow_table().sort_by("n").to_pylist() == [{"n": 0, "t": 0}, {"n": 1, "t": 1}]
    assert ran.of("bad", "raw") == ['{"n":  0}', '{"n":  1}']


@pytest.mark.parametrize(
    ("others", "fix"),
    [
        ("done", r"The folders are .*/done.*"),
        ("hour=7", r"The folders are .*/hour=7.*"),
        ("day=soon", "declare the column as STRING"),
    ],
)
def test_folders_that_spark_refuses_are_named_with_what_mends_them(lab: Lab, others: str, fix: str) -> None:
    for folder in ("day=2024-01-01", others):
        path = lab.folder / "landing" / folder / "a.json"
        path.parent.mkdir(parents=True)
        path.write_text('{"t": 1}', encoding="utf-8")
    spec = tm.files(str(lab.folder / "landing"), format="json", schema="t BIGINT, day DATE")
    with pytest.raises(SourceError, match=f"'landing' cannot be opened.*Fix: .*{fix}"):
        lab.run({"rows": tm.source("landing", spec, watermarks=BY_T)})


def test_a_file_that_cannot_be_read_is_named_with_its_source_and_the_cause(lab: Lab) -> None:
    ways = {
        "other type": ("cannot be read with the schema", "coerce_timestamps='us'"),
        "no file": ("is not a Parquet file", "restore"),
        "other names": ("has another header than the schema", "give the columns in schema= the names of the header"),
        "more columns": ("has another header than the schema", "give the columns in schema= the names of the header"),
    }
    for job, (what, fix) in ways.items():
        path = lab.folder / job / "a.parquet"
        path.parent.mkdir()
        options = {}
        if job == "no file":
            path.write_bytes(b"PAR1 and no more")
        elif job in {"other names", "more columns"}:
            path.write_text({"other names": "at\n1\n", "more columns": "t,n\n1,1\n"}[job], encoding="utf-8")
            options = {"header": "true", "enforceSchema": "false"}
        else:
            pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("ns", "UTC"))}), path)
        spec = tm.files(str(path.parent), format="csv" if options else "parquet", schema="t TIMESTAMP", options=options)
        of_files = tm.source("landing", spec, watermarks=BY_T)
        others = elements([("a", 1)], schema="k STRING, t BIGINT")
        with pytest.raises(SourceError) as raised:
            lab.run({"rows": of_files, "others": others}, job=job.replace(" ", "-"))
        assert raised.value.uid == "landing"
        assert what in str(raised.value)
        assert fix in str(raised.value)


def test_records_that_are_not_utf8_are_malformed_and_every_reader_reads_them(lab: Lab) -> None:
    path = lab.folder / "in" / "a.json"
    path.parent.mkdir()
    path.write_bytes('{"k": "Müller", "t": 1}\n'.encode("latin-1") + b'{"k": "ok", "t": 2}\n{"k": "\xfc"}\n')
    spec = tm.files(str(path.parent), format="json", schema="k STRING, t BIGINT")
    source = tm.source("landing", spec, watermarks=BY_T, malformed_to=BAD)
    outputs = {"rows": tm.delta(source, str(lab.folder / "rows")), "bad": tm.delta(source.side_output(BAD), str(lab.folder / "bad"))}
    lab.run_job(tm.Job("job", outputs=outputs, store=str(lab.folder / "store")), {})
    rows, bad = (DeltaTable(str(lab.folder / name)).to_pyarrow_table().sort_by("event_time" if name == "bad" else "t") for name in outputs)
    assert rows.to_pylist() == [{"k": "ok", "t": 2}]
    why = "record cannot be parsed: it is not text in UTF-8; options={'encoding': ...}"
    assert sorted((row["raw"], row["reason"]) for row in bad.to_pylist()) == [
        ('{"k": "M\ufffdller", "t": 1}', why),
        ('{"k": "\ufffd"}', why),
    ]


def test_seconds_are_named_once_by_the_run_also_with_the_end_of_input(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    rows = elements([("a", 1_600_000_000)], [("a", 1_600_000_100)], schema="k STRING, t BIGINT", name="rides")
    with caplog.at_level("WARNING", "tidemark"):
        lab.run({"rows": rows})
    (message,) = [each for each in caplog.messages if "in seconds" in each]
    assert message.startswith("event times of source 'rides' are about 1970-01-19")


def test_a_time_that_is_text_is_malformed_where_it_is_no_time(lab: Lab) -> None:
    rows = [("a", "1970-01-01T00:00:01Z", "02/01/1970"), ("b", "soon", "03/01/1970"), ("c", None, None), ("d", "1970-01-02 00:00:03", "x")]
    schema = "k STRING, at STRING, day STRING"
    plain = elements(
        rows,
        schema=schema,
        name="plain",
        watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="at"),
        malformed_to=tm.OutputTag("bad_at"),
    )
    stated = tm.bounded_out_of_orderness("0 ms", timestamp="try_to_timestamp(day, 'dd/MM/yyyy')")
    formatted = elements(rows, schema=schema, name="formatted", watermarks=stated, malformed_to=BAD)
    ran = lab.run(
        {
            "plain": plain,
            "formatted": formatted,
            "bad_at": plain.side_output(tm.OutputTag("bad_at")),
            "bad": formatted.side_output(BAD),
        },
        end_of_input=False,
    )
    assert ran.of("plain", "k") == ["a", "d"]
    assert ran.of("formatted", "k") == ["a", "b"]
    assert ran.of("bad", "reason") == ["event time 'try_to_timestamp(day, 'dd/MM/yyyy')' is null"] * 2
    assert ran.of("bad_at", "reason") == [
        "event time 'at' cannot be read as TIMESTAMP: 'soon'",
        "event time 'at' is null",
    ]
    assert ran.epochs[0].sources["plain"].watermark == 86_403_000 - 1
    assert ran.epochs[0].sources["formatted"].watermark == 2 * 86_400_000 - 1


def test_a_union_of_streams_whose_columns_only_spark_knows(lab: Lab) -> None:
    """The engine's own columns differ, since only one of the sources has splits; the user's must not."""
    split = tm.bounded_out_of_orderness("0 ms", timestamp="t", split_by="k")
    one = elements([("a", 1, 5), ("b", 2, 6)], schema="k STRING, t BIGINT, v INT", name="one", watermarks=split)
    two = elements([(7, "c", 3)], schema="v INT, K STRING, t BIGINT", name="two")
    united = one.transform(lambda frame: frame).union(two.transform(lambda frame: frame))
    assert lab.run({"rows": united}, end_of_input=False).of("rows", "k", "t", "v") == [("a", 1, 5), ("b", 2, 6), ("c", 3, 7)]

    narrower = two.transform(lambda frame: frame.drop("v"))
    with pytest.raises(UserCodeError, match="different columns: k, t, v and K, t") as raised:
        lab.run({"rows": one.transform(lambda frame: frame).union(narrower)}, job="unlike")
    assert __file__ in str(raised.value)


@pytest.mark.parametrize("silent", [False, True])
def test_a_union_has_one_type_per_column_whoever_has_rows(lab: Lab, *, silent: bool) -> None:
    """With the wider of two types for both, state and tables would have another one in epochs in which one stream is silent."""
    schema = "k STRING, t BIGINT, v INT"
    one = elements([("a", 1, 5)], schema=schema, name="one")
    rows = [] if silent else [("b", 1, 7)]
    two = elements(rows, schema=schema, name="two").transform(lambda frame: frame.withColumn("v", frame["v"].cast("bigint")))
    least = one.union(two).window_all(tm.tumbling("1 hour")).aggregate(least=tm.min("v")).uid("w")
    with pytest.raises(UserCodeError, match=r"column 'v' that is int in one and bigint in another.*Fix: cast it before the union"):
        lab.run({"least": least})
    assert not (lab.folder / "store").joinpath("epochs").exists()


SPLITS = ("it's", "back\\slash", "x' OR '1' = '1", "\\'", 'double"', "line\nbreak", "", "é")


@pytest.mark.parametrize("literally", ["true", "false"])
def test_split_names_mean_nothing_in_sql(spark: SparkSession, literally: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.parser.escapedStringLiterals", literally)
    node = elements(
        [("a", 1)], schema="k STRING, t BIGINT", watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t", split_by="k")
    ).node
    assert isinstance(node, SourceNode)
    rows = [(name, 10 * number + row, PASSING) for number, name in enumerate(SPLITS) for row in range(number + 1)]
    rows += [("it's", 999, MALFORMED), ("new", 5, PASSING)]
    counter = RowCounter([MALFORMED], node, SPLITS)
    counter.attach(session.createDataFrame(rows, f"{SPLIT} STRING, {TIME} BIGINT, {ROW_STATUS} INT").coalesce(1)).collect()
    row_counts = counter.counts()
    assert {name: (seen.rows, seen.max_event_time) for name, seen in row_counts.splits.items()} == {
        name: (number + 1, 11 * number) for number, name in enumerate(SPLITS)
    }
    assert row_counts.unknown_splits == 1


def test_what_a_repeated_task_counted_twice_is_mended_of_splits_too(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark adds the rows of a task that it runs twice to an observation twice."""
    figures, recount, exact = RowCounter.counts, RowCounter.recount, list[RowCounter]()

    def doubled(counter: RowCounter) -> RowCounts:
        found = figures(counter)
        if counter in exact:
            return found
        splits = {name: replace(split, rows=2 * split.rows) for name, split in found.splits.items()}
        return RowCounts(2 * found.total, {verdict: 2 * rows for verdict, rows in found.by_status.items()}, splits)

    def counted_anew(counter: RowCounter, rows: DataFrame) -> RowCounts:
        exact.append(counter)
        return recount(counter, rows)

    monkeypatch.setattr(RowCounter, "counts", doubled)
    monkeypatch.setattr(RowCounter, "recount", counted_anew)
    # Those of the first epoch are looked at by a groupBy, since their splits are new.
    epochs: list[list[tuple[object, ...]]] = [[("a", 1), ("b", 2)], [("a", 3), ("a", 4), ("b", 5)]]
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t", split_by="k")
    ran = lab.run(
        {"rows": elements(*epochs, schema="k STRING, t BIGINT", watermarks=strategy).filter("t > 0").uid("positive")}, end_of_input=False
    )
    assert exact
    assert [(epoch.sources["e"].rows_read, epoch.filters["positive"].rows_in) for epoch in ran.epochs] == [(2, 2), (3, 3)]
    assert [{name: split.rows for name, split in epoch.sources["e"].splits.items()} for epoch in ran.epochs] == [
        {"a": 1, "b": 1},
        {"a": 2, "b": 1},
    ]
