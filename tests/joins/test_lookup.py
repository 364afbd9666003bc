"""The join with a table: versions, refreshes, what is in the record, columns, and mistakes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.engine.lab import NOW, Lab, elements
from tests.joins.table_runs import SCHEMA, killed_at, row, run_epochs
from tidemark.errors import SourceError
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.spark.operators.lookup.runtime import LookupRuntime
from tidemark.spark.operators.lookup.versions import TableReader
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(path: Path, rows: Sequence[tuple[str | None, str]], **settings: Any) -> None:
    write_deltalake(str(path), pa.table({"k": [key for key, _ in rows], "name": [name for _, name in rows]}), mode="overwrite", **settings)


@pytest.mark.spark
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_version_is_used_until_it_is_time_to_look_for_a_newer_one(spark: SparkSession, tmp_path: Path, partitioned: bool) -> None:  # noqa: FBT001
    settings: dict[str, Any] = {"partition_by": ["name"]} if partitioned else {}
    path = tmp_path / "names"
    write(path, [("a", "one")], **settings)
    stream = elements(*([row(second, "a")] for second in range(4)), schema=SCHEMA).lookup(tm.delta_table(str(path)), on="k")

    def between(number: int, clock: ManualClock) -> None:
        write(path, [("a", f"written {number}"), ("b", "other")], **settings)
        clock.advance(40_000)

    with mock.patch.object(LookupRuntime, "table", autospec=True, side_effect=LookupRuntime.table) as read:
        found = run_epochs(spark, tmp_path, stream, between)
    # At 0, 40, 80 and 120 seconds; a version is looked for at 0 and 80.
    assert found == [["one"], ["one"], ["written 2"], ["written 2"]]
    versions = [call.args[1].table.version.partition("@") for call in read.call_args_list]
    assert [number for number, _, _ in versions] == ["0", "0", "2", "2"]
    assert {table for _, _, table in versions} == {DeltaTable(str(path)).metadata().id}
    plan = next(path for path in (tmp_path / "store").rglob("*") if path.is_file() and b'"tables"' in path.read_bytes())
    assert '"2@' in plan.read_text(encoding="utf-8")


@pytest.mark.spark
@pytest.mark.parametrize("refresh", ["0 seconds", "1 hour"])
def test_a_table_that_was_made_again_is_another_one(spark: SparkSession, tmp_path: Path, refresh: str) -> None:
    path, epochs = tmp_path / "names", [[row(second, "a")] for second in range(4)]
    write(path, [("a", "old")])

    def run(count: int) -> list[str]:
        def made_again(progress: EpochProgress) -> None:
            if progress.epoch == 1:
                shutil.rmtree(path)
                write(path, [("a", "new")])

        stream = elements(*epochs[:count], schema=SCHEMA).lookup(tm.delta_table(str(path)), on="k", refresh=refresh).uid("names")
        job = tm.Job("again", outputs={"rows": tm.memory(stream, f"{tmp_path}/rows")}, store=f"{tmp_path}/store")
        tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False, on_epoch=made_again)
        found = tm.memory_table(f"{tmp_path}/rows")
        assert found is not None
        return [each["name"] for each in found.to_pylist()]

    # The rows in memory are used until it is time to look for newer ones; a new run finds that they are not to be had any more.
    within = ["old", "old", "new" if refresh == "0 seconds" else "old"]
    assert run(3) == within
    assert run(4) == [*within, "new"]


def test_a_version_of_a_table_that_is_gone_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "names"
    write(path, [("a", "old")])
    node = elements([row(1, "a")], schema=SCHEMA).lookup(tm.delta_table(str(path)), on="k").uid("names").node
    assert isinstance(node, LookupNode)
    planned = TableReader(node).newest()
    shutil.rmtree(path)
    write(path, [("a", "new")])
    with pytest.raises(SourceError, match=r"it was deleted and made again.*Fix: restore that one in its place"):
        TableReader(node).version(mock.sentinel.spark, planned)


@pytest.mark.spark
def test_columns_keys_and_several_rows(spark: SparkSession, tmp_path: Path) -> None:
    zones = pa.table({"k": ["a", "a", "B", None], "name": ["one", "two", "bee", "nobody"], "t2": [1, 2, 3, 4]})
    write_deltalake(str(tmp_path / "zones"), zones)
    (tmp_path / "files").mkdir()
    pq.write_table(zones, tmp_path / "files" / "part-0.parquet")
    given = elements([row(1, "a"), row(2, "b"), row(3, None)], schema=SCHEMA)
    delta, files = tm.delta_table(str(tmp_path / "zones")), tm.parquet_table(str(tmp_path / "files"), schema="k STRING, name STRING")
    streams = {
        "left": given.lookup(delta, on="k", columns=["name"]),
        "inner": given.lookup(delta, on={"upper(k)": "upper(k)"}, how="inner", columns=["t2", "name"]),
        "files": given.lookup(files, on="k", refresh="0 seconds", columns=["name"]).filter("name IS NOT NULL"),
    }
    ran = Lab(spark, tmp_path).run(streams)
    assert tuple(ran.rows["left"][0]) == ("t", "k", "n", "name")
    assert ran.of("left", "k", "name") == [("a", "one"), ("a", "two"), ("b", None), (None, None)]
    assert ran.of("inner", "k", "name", "t2") == [("a", "one", 1), ("a", "two", 2), ("b", "bee", 3)]
    assert ran.of("files", "k", "name") == [("a", "one"), ("a", "two")]


@pytest.mark.spark
def test_an_epoch_that_failed_runs_again_with_its_version(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "names"
    write(path, [("a", "planned")])
    stream = elements([row(1, "a")], schema=SCHEMA).lookup(tm.delta_table(str(path)), on="k")

    with killed_at("before-commit", monkeypatch):
        run_epochs(spark, tmp_path, stream, lambda *_: None)
    write(path, [("a", "newer")])
    job = tm.Job("lookup", outputs={"out": tm.memory(stream, f"{tmp_path}/out")}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, clock=ManualClock(NOW + 500_000), handle_signals=False, takeover=True)
    assert [each["name"] for each in tm.memory_table(f"{tmp_path}/out").to_pylist()] == ["planned"]  # type: ignore[union-attr]
    tm.clear_memory(f"{tmp_path}/out")


def map_columns(path: Path) -> None:
    """Have the columns of a table map to other names in its files, as by a setting of readers of version 2, which have no features."""
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], 1):
                field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
            action["metaData"] |= {"schemaString": json.dumps(schema), "configuration": settings}
    log.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


@pytest.mark.spark
@pytest.mark.parametrize("mistake", ["missing", "columns", "clash", "types", "declared", "mapped"])
def test_what_only_the_table_says(spark: SparkSession, tmp_path: Path, mistake: str) -> None:
    path = tmp_path / "names"
    if mistake != "missing":
        write_deltalake(str(path), pa.table({"k": ["a"], "n": [1]}))
    if mistake == "mapped":
        map_columns(path)
    given = elements([row(1, "a")], schema=SCHEMA)
    table = tm.delta_table(str(path))
    made: dict[str, Callable[[], tuple[tm.Stream, str]]] = {
        "missing": lambda: (given.lookup(table, on="k", columns=["m"]), "does not exist.*Fix: create it"),
        "columns": lambda: (given.lookup(table, on="k", columns=["m"]), "column 'm' of table"),
        "clash": lambda: (given.lookup(table, on="k"), "both sides have a column 'n'"),
        "types": lambda: (given.select("n").lookup(table, on="n"), "compares 'n' of type INT with 'n' of type BIGINT"),
        "declared": lambda: (given.lookup(tm.delta_table(str(path), schema="k STRING, m INT"), on="k"), "column 'm' of table"),
        "mapped": lambda: (given.select("k").lookup(table, on="k"), "needs columnMapping to be read.*Fix: write the table without"),
    }
    stream, message = made[mistake]()
    with pytest.raises(tm.TidemarkError, match=f"(?s){message}"):
        Lab(spark, tmp_path).run({"out": stream})


ZONES = tm.delta_table("lake/zones", schema="id BIGINT, k STRING, borough STRING, n INT")
MISTAKES: dict[str, tuple[Callable[[tm.Stream], object], str]] = {
    "clash": (lambda given: given.lookup(ZONES, on="k"), "both sides have a column 'n'"),
    "types": (lambda given: given.lookup(ZONES, on={"n": "id"}, columns=["borough"]), "of type INT with 'id' of type BIGINT"),
    "column": (lambda given: given.lookup(ZONES, on="k", columns=["boro"]), "did you mean 'borough'"),
    "key": (lambda given: given.lookup(ZONES, on={"k": "zone"}), "unknown column 'zone'"),
    "how": (lambda given: given.lookup(ZONES, on="k", columns=["id"], how="full"), "how='full'"),  # type: ignore[arg-type]
    "no table": (lambda given: given.lookup("lake/zones", on="k"), "not a table"),  # type: ignore[arg-type]
    "refresh": (lambda given: given.lookup(ZONES, on="k", columns=["id"], refresh="soon"), "soon"),
    "no path": (lambda _: tm.parquet_table(" "), "names no path"),
    "a changelog": (lambda given: given.as_changelog(["k"]).lookup(ZONES, on="k", columns=["id"]), "lookup is given a changelog"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_says_what_to_write(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(tm.TidemarkError, match=f"(?s){message}") as raised:
        call(elements(schema=SCHEMA))
    assert "Fix: " in str(raised.value)


def test_columns_that_are_declared_are_known_to_what_follows() -> None:
    joined = elements(schema=SCHEMA).lookup(ZONES, on="k", columns=["borough"])
    with pytest.raises(tm.TidemarkError, match="did you mean 'borough'"):
        joined.filter("borogh = 'Queens'")
    assert json.dumps(joined.node.table.path) == '"lake/zones"'  # type: ignore[attr-defined]
