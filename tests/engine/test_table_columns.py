"""Tables that get the columns of the rows, and rows without a column of the table; no Spark runs here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from tests.killed import kill_at
from tests.savepoints.delta_jobs import job_with_tables, run_epoch
from tests.savepoints.delta_jobs import publish as publish_others
from tidemark.errors import PublishError, SinkError
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind
from tidemark.spark.sinks.delta import delta_commits, delta_sink
from tidemark.spark.sinks.delta.delta_files import LiveFile
from tidemark.spark.sinks.delta.delta_rewrite import Change
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.delta.delta_tags import COLUMNS_FOR, EPOCH, MAINTENANCE
from tidemark.state.delta.delta_tags import LINEAGE as LINEAGE_TAG
from tidemark.state.log.parquet_files import describe_parquet
from tidemark.state.log.records import OutputRecord, StagedFile
from tidemark.state.store.store import JobStore

T = pytest.importorskip("pyspark.sql.types")
LINEAGE = "0123456789abcdef"
KINDS = {"k": T.StringType(), "n": T.LongType(), "top": T.DoubleType(), "at": T.TimestampNTZType()}
ARROW = {"k": pa.string(), "n": pa.int64(), "top": pa.float64(), "at": pa.timestamp("us")}
UPSERT = Upsert(("k",))
Row = dict[str, Any]


def schema(*names: str) -> Any:
    return T.StructType([T.StructField(name, KINDS[name]) for name in names])


class PlainRewriter:
    """Does what Spark does with rows that are known by ``k``."""

    file_bytes = 64 * 1024 * 1024

    def __init__(self, store: JobStore) -> None:
        self.store = store

    def starts(self, change: Change, limit: int) -> list[int | None] | None:  # noqa: ARG002
        return None

    def touched(self, change: Change, files: Sequence[LiveFile]) -> dict[str, int]:
        new = self._keys([file.path for file in change.files])
        counts = {file.path: sum(row["k"] in new for row in self._rows(file.path)) for file in files}
        return {path: count for path, count in counts.items() if count}

    def survivors(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        new, names = self._keys([file.path for file in change.files]), [field["name"] for field in json.loads(schema)["fields"]]
        stay = [row for file in files for row in self._rows(file.path) if row["k"] not in new]
        return write(self.store, [{name: row.get(name) for name in names} for row in stay], f"{folder}/part-0.parquet", names)

    def versions(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        raise NotImplementedError

    def merged(self, schema: str, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        raise NotImplementedError

    def _keys(self, paths: Sequence[str]) -> set[str]:
        return {row["k"] for path in paths for row in self._rows(path)}

    def _rows(self, path: str) -> list[Row]:
        rows: list[Row] = pq.read_table(io.BytesIO(self.store.get(path))).to_pylist()
        return rows


def write(store: JobStore, rows: Sequence[Row], path: str, names: Sequence[str]) -> list[StagedFile]:
    if not rows:
        return []
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=pa.schema([(name, ARROW[name]) for name in names])), buffer)
    store.put(path, buffer.getvalue().to_pybytes())
    return [file.as_staged_file() for file in describe_parquet(store, [path])]


def sink_at(folder: Path | str, upsert: Upsert | None, *, own: bool = True) -> DeltaSink:
    """Return the sink of a process that has just begun."""
    sink = DeltaSink("rows", str(folder), upsert, own=lambda: own)
    return DeltaSink("rows", str(folder), upsert, PlainRewriter(sink.staging), own=lambda: own)


def stage(sink: DeltaSink, epoch: int, *rows: Row) -> OutputRecord:
    """Stage rows that all have the same columns, as an epoch does."""
    names = list(rows[0])
    sink.check(schema(*names))
    files = write(sink.staging, rows, f"{sink.staging_folder(new_staging(LINEAGE, epoch))}/part-0.parquet", names)
    options = dict(sink.upsert.options) if sink.upsert is not None else {}
    return OutputRecord("delta", sink.location, schema(*names).json(), tuple(files), len(rows), options)


def epoch(sink: DeltaSink, number: int, *rows: Row) -> None:
    sink.publish(stage(sink, number, *rows), LINEAGE, number)


def rows_of(folder: Path) -> list[Row]:
    rows: list[Row] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["k"], row["n"]))


def tags(folder: Path) -> list[Mapping[str, Any]]:
    return [
        {key: value for key, value in commit.items() if key.startswith("tidemark.")}
        for commit in reversed(DeltaTable(str(folder)).history())
    ]


@pytest.mark.parametrize("upsert", [None, UPSERT], ids=["append", "upsert"])
def test_the_table_gets_columns_and_keeps_those_that_rows_lack(upsert: Upsert | None, tmp_path: Path) -> None:
    table = tmp_path / "table"
    epoch(sink_at(table, upsert), 0, {"k": "a", "n": 1, "top": 0.5}, {"k": "b", "n": 2, "top": 1.5})
    sink = sink_at(table, upsert)
    record = stage(sink, 1, {"k": "a", "at": None, "n": 3})
    assert DeltaTable(str(table)).version() == 1, "nothing is changed before the epoch is committed"
    sink.publish(record, LINEAGE, 1)
    assert [field.name for field in DeltaTable(str(table)).schema().fields] == ["k", "n", "top", "at"]
    assert all(field.nullable for field in DeltaTable(str(table)).schema().fields)
    old = {"k": "a", "n": 1, "top": 0.5, "at": None}
    kept = [{"k": "a", "n": 3, "top": None, "at": None}, {"k": "b", "n": 2, "top": 1.5, "at": None}]
    assert rows_of(table) == (kept if upsert else [old, *kept])
    made = tags(table)[2]
    assert made == {MAINTENANCE: "columns", COLUMNS_FOR: f"{LINEAGE}/1"}
    # Published again, by the same process and by another one, it changes nothing; the next epoch needs no version of its own.
    version = DeltaTable(str(table)).version()
    sink.publish(record, LINEAGE, 1)
    sink_at(table, upsert).publish(record, LINEAGE, 1)
    epoch(sink, 2, {"k": "c", "at": None, "n": 4})
    assert DeltaTable(str(table)).version() == version + 1
    assert [commit[EPOCH] for commit in tags(table) if EPOCH in commit] == ["0", "1", "2"]


@pytest.mark.parametrize("upsert", [None, UPSERT], ids=["append", "upsert"])
def test_killed_between_the_columns_and_the_rows(upsert: Upsert | None, tmp_path: Path) -> None:
    table = tmp_path / "table"
    epoch(sink_at(table, upsert), 0, {"k": "a", "n": 1})
    record = stage(sink_at(table, upsert), 1, {"k": "a", "n": 2, "top": 2.5})
    (tmp_path / "record").write_text(json.dumps([record.schema, record.files[0].path, record.files[0].bytes, dict(record.options)]))
    kill_at("tests.engine.test_table_columns:publish_one", "columns-added", [str(tmp_path)])
    assert rows_of(table) == [{"k": "a", "n": 1, "top": None}]
    assert sink_at(table, upsert).newest(LINEAGE) == 0
    sink_at(table, upsert).publish(record, LINEAGE, 1)
    old, new = {"k": "a", "n": 1, "top": None}, {"k": "a", "n": 2, "top": 2.5}
    assert rows_of(table) == ([new] if upsert else [old, new])
    assert [COLUMNS_FOR in commit for commit in tags(table)] == [False, False, True, False]


def publish_one(folder: str) -> None:
    """Publish the staged epoch in a process of its own."""
    text, path, size, options = json.loads((Path(folder) / "record").read_text())
    sink = sink_at(f"{folder}/table", Upsert.of_options(options))
    sink.publish(OutputRecord("delta", sink.location, text, (StagedFile(path, 1, size),), 1, options), LINEAGE, 1)


@pytest.mark.parametrize("upsert", [None, UPSERT], ids=["append", "upsert"])
def test_another_commit_comes_first(upsert: Upsert | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table"
    epoch(sink_at(table, upsert), 0, {"k": "a", "n": 1})
    sink = sink_at(table, upsert)
    record = stage(sink, 1, {"k": "b", "n": 2, "top": 2.5})
    add = delta_commits.add_columns

    def write_z() -> None:
        write_deltalake(str(table), pa.table({"k": ["z"], "n": [9]}), mode="append", schema_mode="merge")

    others: list[Callable[[], None]] = [write_z]

    def slow(found: DeltaTable, *rest: Any) -> bool:
        for other in others:
            other()
        if len(others) == 1:
            others.clear()
        return add(found, *rest)

    monkeypatch.setattr(delta_sink, "add_columns", slow)
    monkeypatch.setattr("tidemark.spark.sinks.delta.delta_merge.add_columns", slow)
    sink.publish(record, LINEAGE, 1)
    assert [row["k"] for row in rows_of(table)] == ["a", "b", "z"]
    # A rewind that closes the table to the epoch leaves no columns behind either.
    late = stage(sink, 2, {"k": "c", "n": 2, "at": None})

    def close() -> None:
        closing = CommitProperties(app_transactions=[Transaction(f"{LINEAGE}/rows", 2)])
        there = DeltaTable(str(table))
        there.create_write_transaction(actions=[], mode="append", schema=there.schema(), commit_properties=closing)

    others.append(close)
    sink.publish(late, LINEAGE, 2)
    assert "at" not in rows_of(table)[0]
    others[:] = [write_z] * 2
    with pytest.raises(PublishError, match="10 times another commit"):
        sink.publish(stage(sink, 3, {"k": "c", "n": 2, "at": None}), LINEAGE, 3)


def test_a_table_that_the_output_has_not_written_to_stays_as_it_is(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "foreign"), pa.table({"k": ["a"], "n": [1]}))
    epoch(sink_at(tmp_path / "ours", None), 0, {"k": "a", "n": 1})
    for place, own in (("foreign", True), ("ours", False)):
        for names in (("k", "n", "top"), ("k",)):
            with pytest.raises(SinkError, match=r"lacks column '(top|n)'"):
                sink_at(tmp_path / place, None, own=own).check(schema(*names))
        sink_at(tmp_path / place, None, own=own).check(schema("n", "k"))


def test_a_key_that_is_new_is_refused(tmp_path: Path) -> None:
    epoch(sink_at(tmp_path, UPSERT), 0, {"k": "a", "n": 1})
    with pytest.raises(SinkError, match=r"'top' \(DOUBLE\) is a key and new"):
        sink_at(tmp_path, Upsert(("k", "top"))).check(schema("k", "n", "top"))


def test_files_of_a_folder_have_the_same_columns_in_any_order(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "k": ["a"]}), tmp_path / "part-0.parquet")
    ParquetSink("rows", str(tmp_path)).check(schema("k", "n"))
    for names, says in ((("k", "n", "top"), "the folder lacks column 'top' .DOUBLE."), (("k",), "the output lacks column 'n'")):
        with pytest.raises(SinkError, match=says) as raised:
            ParquetSink("rows", str(tmp_path)).check(schema(*names))
        assert "part-0.parquet" in str(raised.value)


def test_a_rewind_takes_columns_back(tmp_path: Path) -> None:
    """Also when the rows that need them were never published; and they count for the epoch that needed them."""
    job = job_with_tables(tmp_path)
    for number in range(3):
        last = run_epoch(job)
        if number == 0:
            job.savepoints.take("good")
    table = tmp_path / "late"

    def run_wider() -> None:
        # The versions and their tags are what counts, so the rows may stay away.
        record = job.commit()
        tagged = CommitProperties(
            custom_metadata={LINEAGE_TAG: record.lineage, EPOCH: str(record.epoch)},
            app_transactions=[Transaction(f"{record.lineage}/late", record.epoch)],
        )
        found = DeltaTable(str(table))
        found.create_write_transaction(actions=[], mode="append", schema=found.schema(), commit_properties=tagged)
        others = {name: output for name, output in record.outputs.items() if name != "late"}
        publish_others(replace(record, outputs=others))

    def widen(name: str, number: int) -> None:
        found = DeltaTable(str(table))
        text = json.dumps({"type": "struct", "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}}]})
        assert delta_commits.add_columns(found, text, {MAINTENANCE: "columns", COLUMNS_FOR: f"{last.lineage}/{number}"})
        assert Field(name, PrimitiveType("long")) in found.schema().fields

    widen("first", 3)
    assert job.savepoints.take("between").info.tables["late"].version == 2
    run_wider()
    widen("second", 4)
    assert job.savepoints.take("after").info.tables["late"].version == 4
    job.driver.release()
    for name, columns in (("after", ["epoch", "first"]), ("between", ["epoch"]), ("good", ["epoch"])):
        plan = preview_rewind(job.root, "taxi", name, clock=job.clock)
        assert (plan.refusals, "late" in plan.changed) == ((), True)
        rewind(job.root, "taxi", name, clock=job.clock)
        assert [field.name for field in DeltaTable(str(table)).schema().fields] == columns, name
    assert DeltaTable(str(table)).to_pyarrow_table().to_pylist() == [{"epoch": 0}]
