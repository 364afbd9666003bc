"""Existing Delta tables: those that ask more of a writer than an append are refused; no Spark runs here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types

from tidemark.errors import CorruptStoreError, SinkError
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.sinks import BoundSink, require_not_ahead
from tidemark.state.log.records import OutputRecord, StagedFile

T = pytest.importorskip("pyspark.sql.types")
ROWS = types.StructType(
    [
        types.StructField("k", types.StringType()),
        types.StructField("v", T.LongType()),
        types.StructField("many", types.ArrayType(T.LongType())),
    ]
)
LEGACY = {"minReaderVersion": 1, "minWriterVersion": 2}


def features(*names: str, reader: tuple[str, ...] = ()) -> dict[str, object]:
    return {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": [*names, *reader], "readerFeatures": list(reader)}


def make_table(
    path: Path,
    protocol: Mapping[str, object] = LEGACY,
    *,
    settings: Mapping[str, str] | None = None,
    partitions: tuple[str, ...] = (),
    column: Mapping[str, object] | None = None,
    array_nulls: bool = True,
    mapped: bool = False,
) -> None:
    """Write a table's first log entry, as another engine would have."""
    fields = json.loads(ROWS.json())["fields"]
    fields[1] |= column or {}
    fields[2]["type"]["containsNull"] = array_nulls
    for number, field in enumerate(fields if mapped else ()):
        field["metadata"] |= {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    metadata = {
        "id": "4b1c1d0e-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partitions),
        "configuration": dict(settings or {}),
        "createdTime": 1,
    }
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("\n".join(json.dumps(action) for action in ({"protocol": protocol}, {"metaData": metadata})))


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "partitioned": ({"partitions": ("k",)}, "partitioned by k"),
    "column mapping": (
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}, "settings": {"delta.columnMapping.mode": "name"}, "mapped": True},
        "maps its columns by name",
    ),
    "constraint": ({"settings": {"delta.constraints.positive": "v > 0"}}, "constraint positive (v > 0)"),
    "generated": ({"column": {"metadata": {"delta.generationExpression": "1"}}}, "column 'v' is generated"),
    "invariant": ({"column": {"metadata": {"delta.invariants": '{"expression":{"expression":"v > 0"}}'}}}, "column 'v' has an invariant"),
    "not null": ({"column": {"nullable": False}}, "column 'v' is NOT NULL"),
    "no null inside": ({"array_nulls": False}, "column 'many' takes no null inside"),
    "row tracking": ({"protocol": features("rowTracking", "domainMetadata")}, "domainMetadata; it has the table feature rowTracking"),
    "in-commit timestamps": ({"protocol": features("inCommitTimestamp")}, "table feature inCommitTimestamp"),
    "type widening": ({"protocol": features(reader=("typeWidening",))}, "table feature typeWidening"),
    "identity columns": ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}, "writer version 6"),
    "a feature to come": ({"protocol": features("dreams")}, "table feature dreams"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_a_table_that_asks_more_than_an_append_is_refused(made: dict[str, object], says: str, tmp_path: Path) -> None:
    make_table(tmp_path, **made)  # type: ignore[arg-type]
    with pytest.raises(SinkError) as raised:
        DeltaSink("rows", str(tmp_path)).check(ROWS)
    for text in (says, "'rows'", str(tmp_path), "another path"):
        assert text in str(raised.value)


TAKEN: dict[str, dict[str, object]] = {
    "plain": {},
    "wider": {"protocol": {"minReaderVersion": 1, "minWriterVersion": 5}, "settings": {"delta.columnMapping.mode": "none"}},
    "change feed": {"protocol": features("changeDataFeed", "appendOnly"), "settings": {"delta.enableChangeDataFeed": "true"}},
    "deletion vectors": {"protocol": features("invariants", reader=("deletionVectors", "v2Checkpoint"))},
}


@pytest.mark.parametrize("made", TAKEN.values(), ids=TAKEN.keys())
def test_other_tables_are_appended_to(made: dict[str, object], tmp_path: Path) -> None:
    make_table(tmp_path, **made)  # type: ignore[arg-type]
    sink = DeltaSink("rows", str(tmp_path))
    sink.check(ROWS)
    publish(sink, 0)
    publish(sink, 0)
    assert DeltaTable(tmp_path).get_add_actions()["num_records"].to_pylist() == [1]


def publish(sink: DeltaSink | ParquetSink, epoch: int) -> None:
    """Stage a row and publish it."""
    path = f"{sink.staging_folder(f'l1-{epoch:012d}-00000000')}/part-0.parquet"
    rows = pa.table({"k": ["a"], "v": pa.array([7], pa.int64()), "many": pa.array([[1]], pa.list_(pa.int64()))})
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer)
    data = buffer.getvalue().to_pybytes()
    sink.staging.put(path, data)
    sink.publish(OutputRecord(sink.kind, sink.location, ROWS.json(), (StagedFile(path, 1, len(data)),), 1), "l1", epoch)


@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_an_output_ahead_of_the_log_is_found(kind: type[DeltaSink | ParquetSink], tmp_path: Path) -> None:
    sink = kind("rows", str(tmp_path))
    bound = {"rows": BoundSink("rows", sink)}
    require_not_ahead(bound, "l1", -1)
    for epoch in (0, 1, 3):
        publish(sink, epoch)
    require_not_ahead(bound, "l1", 3)
    require_not_ahead(bound, "l1", 4)
    require_not_ahead(bound, "l2", -1)
    for known, says in ((2, "log ends at epoch 2"), (-1, "log has no epoch")):
        with pytest.raises(CorruptStoreError) as raised:
            require_not_ahead({"rows": BoundSink("rows", kind("rows", str(tmp_path)))}, "l1", known)
        for text in (says, "holds epoch 3", "'rows'", str(tmp_path), "as it was after epoch 3"):
            assert text in str(raised.value)


def test_another_writers_transactions_do_not_matter(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"k": ["a"]}))
    require_not_ahead({"rows": BoundSink("rows", DeltaSink("rows", str(tmp_path)))}, "l1", -1)


@pytest.mark.parametrize(
    "kind",
    [
        types.DayTimeIntervalType(0, 0),
        types.ArrayType(types.YearMonthIntervalType(0, 0)),
        types.StructType([types.StructField("a", types.MapType(types.StringType(), types.DayTimeIntervalType(1, 1)))]),
    ],
)
def test_a_column_that_no_table_holds_is_refused(kind: types.DataType, tmp_path: Path) -> None:
    schema = types.StructType([types.StructField("k", types.StringType()), types.StructField("x", kind)])
    sink = DeltaSink("fares", str(tmp_path / "t"))
    for call in (sink.check, sink.create):
        with pytest.raises(SinkError, match=r"column 'x' of output 'fares' is of type INTERVAL \w+, which Delta.*CAST\(x AS STRING\)"):
            call(schema)
    assert not list((tmp_path / "t").iterdir())
