"""Tables and folders before they have rows: there from the first start, with the columns that rows will have, and never counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

import tidemark as tm
from tests.engine.lab import NOW, elements
from tidemark.errors import SinkError
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemark.semantics.process.window_function_calls import WindowContext

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, t BIGINT, v DECIMAL(10, 2), tags ARRAY<STRING>"
LATE, BAD, REJECTED = tm.OutputTag("late"), tm.OutputTag("bad"), tm.OutputTag("rejected")
Epoch = list[tuple[object, ...]]

FIRST: Epoch = [("a", 1, None, ["x"]), ("b", 100, None, None)]
"""Nothing of it is late, malformed or rejected, and the windows of 100 stay open."""

REST: list[Epoch] = [
    [("a", 120, None, None), ("a", 5, None, ["y"]), ("gone", 130, None, None), ("a", None, None, None)],
]


def first_of(rows: Sequence[Mapping[str, Any]], context: WindowContext) -> list[dict[str, object]]:  # noqa: ARG001
    return [{"first": rows[0]["v"], "n": len(list(rows))}]


def doubled(rows: DataFrame) -> DataFrame:
    return rows.withColumn("twice", F.col("v") * 2)


def outputs_of(folder: Path, *epochs: Epoch) -> dict[str, tm.Output]:
    source = elements(*epochs, schema=SCHEMA, malformed_to=BAD)
    kept = source.filter("k <> 'gone'", rejects_to=REJECTED)
    windows = kept.key_by("k").window(tm.tumbling("10 milliseconds"))
    sums = windows.late_to(LATE).aggregate(total=tm.sum("v"), n=tm.count(), all=tm.collect_list("v")).uid("sums")
    sessions = kept.key_by("k").window(tm.session("10 milliseconds"))
    streams = {
        "late": sums.side_output(LATE),
        "bad": source.side_output(BAD),
        "rejected": kept.side_output(REJECTED),
        "sums": sums,
        "twice": kept.transform(doubled),
        "sessions": sessions.aggregate(n=tm.count()).uid("sessions"),
        "called": sessions.process(first_of, returns="first DECIMAL(10, 2), n BIGINT").uid("called"),
    }
    upserted = ("sessions", "called", "sums")
    found = {
        name: tm.delta(stream, str(folder / name), mode="upsert" if name in upserted else "append") for name, stream in streams.items()
    }
    return found | {f"{name}_files": tm.parquet(streams[name], str(folder / f"{name}_files")) for name in ("late", "sums")}


def run(spark: SparkSession, folder: Path, outputs: Mapping[str, tm.Output], *, name: str = "job", end: bool = False) -> tm.RunResult:
    job = tm.Job(name, outputs=outputs, store=str(folder / "store"), parallelism=2)
    return tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=end, handle_signals=False)


def columns_of(spark: SparkSession, folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the columns of tables and folders, as readers see them; all of them may be null."""
    found = {}
    for name in names:
        path = str(folder / name)
        if name.endswith("_files"):
            kind = spark.read.parquet(path).schema
            assert pq.read_table(path).schema.names == kind.names
            found[name] = kind.simpleString()
        else:
            schema = DeltaTable(path).schema()
            assert all(field.nullable for field in schema.fields)
            found[name] = schema.to_json()
    return found


def rows_in(spark: SparkSession, folder: Path, names: Sequence[str]) -> dict[str, int]:
    return {
        name: spark.read.parquet(str(folder / name)).count()
        if name.endswith("_files")
        else DeltaTable(str(folder / name)).to_pyarrow_table().num_rows
        for name in names
    }


def test_every_table_is_there_from_the_first_start(spark: SparkSession, tmp_path: Path) -> None:
    # Nothing to read, and no epoch.
    ran = run(spark, tmp_path, outputs_of(tmp_path))
    names = list(outputs_of(tmp_path))
    assert not ran.epochs
    before = columns_of(spark, tmp_path, names)
    assert set(rows_in(spark, tmp_path, names).values()) == {0}
    # As after a crash before the first epoch.
    run(spark, tmp_path, outputs_of(tmp_path))
    first = run(spark, tmp_path, outputs_of(tmp_path, FIRST))
    assert columns_of(spark, tmp_path, names) == before
    unwritten = [name for name, rows in rows_in(spark, tmp_path, names).items() if not rows]
    assert {"late", "bad", "rejected", "late_files"} <= set(unwritten)
    assert {DeltaTable(str(tmp_path / name)).version() for name in unwritten if not name.endswith("_files")} == {0}
    rest = run(spark, tmp_path, outputs_of(tmp_path, FIRST, *REST), end=True)
    assert columns_of(spark, tmp_path, names) == before
    rows = rows_in(spark, tmp_path, names)
    assert all(rows.values())
    for name in ("late", "bad", "rejected", "twice", "late_files", "sums_files"):
        assert sum(epoch.outputs[name].rows for epoch in (*first.epochs, *rest.epochs)) == rows[name], name


def job_of(folder: Path, column: str, *epochs: Epoch, late: Callable[[tm.Stream], tm.Stream] = lambda rows: rows) -> dict[str, tm.Output]:
    kept = elements(*epochs, schema=SCHEMA).with_columns(x=column)
    counts = kept.key_by("k").window(tm.tumbling("10 milliseconds")).late_to(LATE).aggregate(n=tm.count()).uid("counts")
    side = late(counts.side_output(LATE))
    return {"counts": tm.delta(counts, str(folder / "counts")), "late": tm.delta(side, str(folder / "late"))} | {
        "files": tm.parquet(side, str(folder / "files"))
    }


def test_what_had_no_rows_gets_the_columns_of_changed_code(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, job_of(tmp_path, "k", FIRST))
    assert '"x","type":"string"' in DeltaTable(str(tmp_path / "late")).schema().to_json().replace(" ", "")
    changed = job_of(tmp_path, "size(tags)", FIRST, REST[0])
    added = {**changed, "again": tm.delta(tm.Stream(changed["late"].node), str(tmp_path / "again"))}
    run(spark, tmp_path, added)
    late = DeltaTable(str(tmp_path / "late"))
    assert late.to_pyarrow_table().schema.field("x").type == pa.int32()
    assert late.to_pyarrow_table().num_rows == spark.read.parquet(str(tmp_path / "files")).count() == 1
    # An output that had rows is held to its columns.
    with pytest.raises(SinkError, match="types stay"):
        run(spark, tmp_path, job_of(tmp_path, "k", FIRST, *REST, [("a", 6, None, None)]), end=True)


def test_a_table_of_somebody_else_is_refused_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "late"), pa.table({"other": [1]}))
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"other": [1]}), tmp_path / "files" / "theirs.parquet")
    run(spark, tmp_path, job_of(tmp_path, "k", FIRST))
    with pytest.raises(SinkError, match="other"):
        run(spark, tmp_path, job_of(tmp_path, "k", FIRST, REST[0]))
    assert DeltaTable(str(tmp_path / "late")).version() == 0
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["theirs.parquet"]
