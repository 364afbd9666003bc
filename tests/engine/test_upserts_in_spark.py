"""Upserts with Spark: which rows of an epoch stay, what is rewritten, and whole jobs whose windows fire again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.engine.delta_rig import COLUMNS, LINEAGE, SESSIONS, WINDOWS, Rig, Row, as_table, row
from tests.engine.lab import MINUTE, NOW, elements
from tidemark.errors import SinkError
from tidemark.spark.sinks.delta.delta_files import live_files
from tidemark.spark.sinks.delta.delta_maintenance import Maintenance
from tidemark.spark.sinks.delta.delta_rewrite import SparkRewriter
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sinks.staging.staging import folder_of
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HOUR = 60 * MINUTE


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "2")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return own


def frame(session: SparkSession, rows: Iterable[Row], folder: Path, *hidden: tuple[int, int]) -> DataFrame:
    """Return rows as an operator gives them; ``hidden`` are their event times and positions, if they have any."""
    table = as_table(rows)
    if hidden:
        times, positions = zip(*hidden, strict=True)
        table = table.append_column("__tm_time", pa.array(times, pa.int64())).append_column(
            "__tm_position", pa.array(positions, pa.int64())
        )
    folder.mkdir(exist_ok=True, parents=True)
    pq.write_table(table, folder / "rows.parquet")
    return session.read.parquet(str(folder / "rows.parquet"))


def newest(
    session: SparkSession, folder: Path, upsert: Upsert, *rows: Row, hidden: Iterable[tuple[int, int]] = ()
) -> list[tuple[object, ...]]:
    """Return what stays of an epoch's rows: key, start and number."""
    found = upsert.newest(frame(session, rows, folder, *hidden)).rows
    assert found.columns == COLUMNS.names
    return sorted(((item.k, item.n) for item in found.collect()), key=str)


def test_of_one_epoch_the_newest_row_of_a_key_stays(session: SparkSession, tmp_path: Path) -> None:
    early, on_time, late = row("a", 0, 1), row("a", 0, 2, pane=1), row("a", 0, 3, pane=2)
    assert newest(session, tmp_path, WINDOWS, on_time, late, early, row("b", 0, 4)) == [("a", 3), ("b", 4)]
    # Panes before times, times before positions; a count window has no bounds, and null is a key like any other.
    groups = [row(None, None, 1), row(None, None, 2), row(None, None, 3), row("a", None, 4), row("a", None, 5, pane=1)]
    assert newest(session, tmp_path, WINDOWS, *groups, hidden=[(5, 9), (7, 1), (7, 2), (9, 1), (2, 2)]) == [("a", 5), (None, 3)]


def test_rows_that_one_of_the_same_epoch_replaces_do_not_stay(session: SparkSession, tmp_path: Path) -> None:
    rows = [row("a", 20, 1), row("a", 0, 2, end=40, replaces=[0, 20]), row("b", 20, 3), row(None, 20, 4), row("a", None, 5)]
    assert newest(session, tmp_path, SESSIONS, *rows) == [("a", 2), ("a", 5), ("b", 3), (None, 4)]
    assert newest(session, tmp_path, Upsert(("k",)), *rows, hidden=[(1, 1), (2, 1), (1, 1), (1, 1), (3, 1)]) == [
        ("a", 5),
        ("b", 3),
        (None, 4),
    ]


def test_the_bounds_of_what_is_replaced_are_recorded(session: SparkSession, tmp_path: Path) -> None:
    bound = BoundSink("rows", DeltaSink("rows", str(tmp_path / "table"), SESSIONS))
    rows = frame(session, [row("a", 0), row("b", 5), row("a", 0, pane=1)], tmp_path / "0", (1, 1), (2, 2), (3, 3))
    plain = bound.stage(rows, LINEAGE, 0, 0)
    assert pq.read_schema(tmp_path / "table" / plain.files[0].path).names == COLUMNS.names
    assert (plain.rows, sum(file.rows for file in plain.files)) == (3, 2)
    assert dict(plain.options) == {"mode": "upsert", "keys": '["k", "window_start"]'}
    merged = bound.stage(frame(session, [row("a", 0, replaces=[7, 3]), row("b", 5, replaces=[9])], tmp_path / "1"), LINEAGE, 1, 0)
    assert json.loads(merged.options["replaces"]) == [3000, 9000]
    assert merged.rows == 2


@pytest.mark.parametrize("upsert", [WINDOWS, SESSIONS], ids=["windows", "sessions"])
def test_spark_rewrites_as_a_dictionary_does(session: SparkSession, tmp_path: Path, upsert: Upsert) -> None:
    rig = Rig(tmp_path / "table", upsert)
    bound = BoundSink("rows", DeltaSink("rows", str(rig.folder), upsert))
    dice = Random(11)
    for epoch in range(5):
        starts = [0, 10, 20, 1000 * epoch, None]
        found = {(key, start): row(key, start, dice.randrange(99)) for key in ("a", "b", None) for start in dice.sample(starts, 3)}
        if upsert is SESSIONS and epoch % 2:
            found = {key: item for key, item in found.items() if key[0] != "a"}
            found["a", 0] = row("a", 0, 100 + epoch, end=40, replaces=[10, 20])
        rig.stage(*found.values())
        record = bound.stage(frame(session, found.values(), tmp_path / f"{epoch}").repartition(1 + epoch % 3), LINEAGE, epoch, 0)
        bound.publish(record, LINEAGE, epoch)
        if epoch == 2:
            # A restart; from here on every file is rewritten by itself.
            bound = BoundSink("rows", DeltaSink("rows", str(rig.folder), upsert, SparkRewriter(rig.store, 1)))
        assert rig.rows == rig.expected
        assert set(rig.live) <= rig.files_there()
    replaced = [int(commit["tidemark.rows_replaced"]) for commit in rig.table.history() if "tidemark.rows_replaced" in commit]
    assert sum(replaced) > 20
    # The rewritten files are like those that were staged: readers of Delta know no INT96.
    kinds = {str(pq.read_schema(rig.folder / path).field("window_start").type) for path in rig.live}
    assert kinds == {"timestamp[us, tz=UTC]"}


@pytest.mark.usefixtures("session")
def test_spark_merges_small_files(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "table")
    for number in range(63):
        rig.run(row("b", 10 * (63 - number), number), row("a", 10 * (63 - number), number))
    record = rig.stage(row("c", 0))
    rig.publish(record)
    assert len(rig.live) == 64
    rewriter = SparkRewriter(rig.store, sum(file.bytes for file in live_files(rig.table)) // 2 + 1)
    Maintenance("rows", rig.store, rewriter).after_publication(rig.table, folder_of(record))
    assert rig.rows == rig.expected
    merged = live_files(rig.table, {"window_start": "timestamp"})
    assert ["/compacted-" in file.path for file in merged] == [True, True]
    starts = sorted((file.columns["window_start"].low, file.columns["window_start"].high) for file in merged)
    assert starts[0][1] < starts[1][0] + 10_000, "windows that come together lie together"  # type: ignore[operator]


def test_keys_that_cannot_be_compared_are_refused(session: SparkSession, tmp_path: Path) -> None:
    sink = BoundSink("rows", DeltaSink("rows", str(tmp_path / "table"), Upsert(("m", "x"))))
    with pytest.raises(SinkError) as raised:
        sink.stage(session.sql("SELECT map(1, 2) AS m, 3 AS v"), LINEAGE, 0, 0)
    for text in ("there is no 'x'", "'m' of type map<int,int> cannot be compared", "keys=[...]"):
        assert text in str(raised.value)


def hourly(*epochs: list[tuple[object, ...]]) -> tm.Stream:
    stream = elements(*epochs, schema="k STRING, t BIGINT, v INT")
    return (
        stream.key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("2 hours").aggregate(n=tm.count(), total=tm.sum("v")).uid("hours")
    )


EPOCHS: list[list[tuple[object, ...]]] = [
    [("a", 1, 1), ("b", 2, 2), (None, 3, 3)],
    [("a", HOUR + 1, 4), ("b", HOUR + 2, 5)],
    [("a", 4, 6), ("c", 5, 7), ("a", 2 * HOUR, 8)],
    [("a", 6, 9), (None, 7, 10), ("b", 2 * HOUR + 1, 11)],
]


def newest_panes(panes: pa.Table) -> list[tuple[object, ...]]:
    """Return the last pane of each key and window among all panes."""
    best: dict[tuple[object, ...], Row] = {}
    for pane in panes.to_pylist():
        key = pane["k"], pane["window_start"]
        if key not in best or best[key]["pane_index"] < pane["pane_index"]:
            best[key] = pane
    return sorted((tuple(pane.values()) for pane in best.values()), key=str)


def in_order(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(found.values()) for found in table.to_pylist()), key=str)


def test_late_panes_replace_those_on_time(spark: SparkSession, tmp_path: Path) -> None:
    """The same job appends and upserts; the one table is the newest panes of the other."""
    results = hourly(*EPOCHS)
    job = tm.Job(
        "panes",
        outputs={
            "all": tm.delta(results, str(tmp_path / "all")),
            "newest": tm.delta(results, str(tmp_path / "newest"), mode="upsert"),
            "busy": tm.delta(results.filter("n > 1"), str(tmp_path / "busy"), mode="upsert"),
        },
        store=str(tmp_path / "store"),
        parallelism=2,
    )
    ran = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True, handle_signals=False)
    panes, newest = (DeltaTable(str(tmp_path / name)).to_pyarrow_table() for name in ("all", "newest"))
    assert panes.num_rows > newest.num_rows
    assert {"ON_TIME", "LATE"} == set(newest["pane_timing"].to_pylist())
    assert in_order(newest) == newest_panes(panes)
    busy = DeltaTable(str(tmp_path / "busy")).to_pyarrow_table()
    assert 0 < busy.num_rows < newest.num_rows
    assert in_order(busy) == in_order(newest.filter(pc.field("n") > 1))
    # The counts are of panes, so those of both outputs are the same.
    for epoch in ran.epochs:
        assert epoch.outputs["newest"].rows == epoch.outputs["all"].rows
    assert sum(epoch.outputs["newest"].rows for epoch in ran.epochs) == panes.num_rows
    written = [int(commit["tidemark.epoch"]) for commit in DeltaTable(str(tmp_path / "newest")).history() if "tidemark.epoch" in commit]
    assert sorted(written) == [epoch.epoch for epoch in ran.epochs if epoch.outputs["newest"].rows]


def test_a_stream_with_keys_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    stream = elements(*EPOCHS, schema="k STRING, t BIGINT, v INT")
    job = tm.Job(
        "keys",
        outputs={"last": tm.delta(stream, str(tmp_path / "last"), mode="upsert", keys=["k"])},
        store=str(tmp_path / "store"),
        parallelism=2,
    )
    ran = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True, handle_signals=False)
    found = {item["k"]: item["v"] for item in DeltaTable(str(tmp_path / "last")).to_pyarrow_table().to_pylist()}
    # Of one epoch the latest element by event time, of several epochs the later one.
    assert found == {"a": 9, "b": 11, None: 10, "c": 7}
    assert sum(epoch.outputs["last"].rows for epoch in ran.epochs) == sum(map(len, EPOCHS))
