"""The join with a table that keeps no versions: copies, which of them are kept, and what a replay reads."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.lab import elements
from tests.joins.table_runs import SCHEMA, killed_at, row, run_epochs
from tidemark.clock import SYSTEM_CLOCK
from tidemark.state.gc.sweep import sweep
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.records import OperatorState
from tidemark.state.store.store import JobStore
from tidemark.testing import ManualClock, OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE = 30_000


def write(folder: Path, rows: Sequence[tuple[str | None, str | None]], number: int = 0) -> None:
    """Replace a folder's only file, of another name each time that has a column that nothing reads."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.parquet"):
        path.unlink()
    columns = {"K": [key for key, _ in rows], "name": [name for _, name in rows], "unread": [number] * len(rows)}
    pq.write_table(
        pa.table(columns, pa.schema({"K": pa.string(), "name": pa.string(), "unread": pa.int64()})), folder / f"{number}.parquet"
    )


def state_of(folder: Path, job: str = "lookup") -> OperatorState:
    """Return the state of a job's only operator after its newest epoch."""
    head = JobLog(JobStore.open(str(folder / "store")).at(job), job).load().epoch
    assert head is not None
    (state,) = head.operators.values()
    return state


def swept(folder: Path, job: str = "lookup") -> set[str]:
    """Sweep a job's folder as drivers do between epochs, twice and more than a lease apart; return the state files that are left."""
    clock = ManualClock(SYSTEM_CLOCK.now_ms() + 10 * LEASE)
    store = JobStore.open(str(folder / "store")).at(job)
    driver = JobLog(store, job, clock).acquire(current_owner(), takeover=True)
    for _ in range(2):
        sweep(driver)
        clock.advance(LEASE + 1)
    driver.release()
    return {file.path for file in store.list("state") if file.path.endswith(".parquet")}


@pytest.mark.spark
def test_a_folder_is_copied_when_it_is_time_and_its_rows_have_changed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "names"
    write(path, [("a", "one"), (None, "nobody"), ("b", None)])
    table = tm.parquet_table(str(path), schema="k STRING, name STRING")
    stream = elements(*([row(second, "a")] for second in range(6)), schema=SCHEMA).lookup(table, on="k").uid("names")
    versions: list[tuple[Any, Any]] = []
    rewritten: list[list[tuple[str | None, str | None]]] = [
        [("a", "one"), ("b", None)],
        [("b", None), ("a", "one")],
        [("a", "two")],
        [],
        [("a", "three")],
    ]

    def between(number: int, clock: ManualClock) -> None:
        state = state_of(tmp_path)
        versions.append((state.definition["table_version"], state.files))
        if number <= len(rewritten):
            write(path, rewritten[number - 1], number)
        clock.advance(40_000 if number < 4 else 60_000)

    found = run_epochs(spark, tmp_path, stream, between)
    # At 0, 40, 80, 120, 180 and 240 seconds; it is looked for a version at 0, 80, 180 and 240.
    assert found == [["one"], ["one"], ["one"], ["one"], ["None"], ["three"]]
    first, _, same, _, empty, last = versions
    assert versions[:4] == [first] * 4, "rows in another order, of another file, are no other version"
    assert same[1][0].part == "table"
    assert empty[1] == ()
    assert len({version for version, _ in versions}) == 3
    stored = pq.read_table(tmp_path / "store" / "lookup" / last[1][0].path)
    assert stored.to_pylist() == [{"__tm_key_0": "a", "name": "three"}]
    # One epoch is retained, with its copy.
    assert swept(tmp_path) == {file.path for file in last[1]}


@pytest.mark.spark
def test_a_replay_reads_the_copy_that_its_plan_names(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "names"
    write(path, [("a", "planned")])
    stream = elements([row(1, "a")], schema=SCHEMA).lookup(tm.parquet_table(str(path)), on={"k": "lower(K)"}, columns=["name"]).uid("names")
    with killed_at("table-copied", monkeypatch):
        run_epochs(spark, tmp_path, stream)
    garbage = {file.path for file in JobStore.open(str(tmp_path / "store")).at("lookup").list("state") if file.path.endswith(".parquet")}
    assert garbage
    with killed_at("before-commit", monkeypatch):
        run_epochs(spark, tmp_path, stream)
    write(path, [("a", "newer")], 1)
    kept = swept(tmp_path)
    assert kept
    assert not kept & garbage
    assert run_epochs(spark, tmp_path, stream, at=SYSTEM_CLOCK.now_ms()) == [["planned"]]
    assert {file.path for file in state_of(tmp_path).files} == kept


@pytest.mark.spark
def test_savepoints_keep_copies_and_others_read_them(spark: SparkSession, tmp_path: Path) -> None:
    path, now = tmp_path / "names", SYSTEM_CLOCK.now_ms()
    write(path, [("a", "first")])

    table = tm.parquet_table(str(path), schema="K STRING, name STRING")

    def given(*seconds: int) -> tm.Stream:
        return elements(*([row(second, "a")] for second in seconds), schema=SCHEMA)

    def stream(*seconds: int) -> tm.Stream:
        return given(*seconds).lookup(table, on={"k": "K"}, columns=["name"]).uid("names")

    def between(number: int, clock: ManualClock) -> None:
        if number == 1:
            tm.savepoints_of("lookup", store=str(tmp_path / "store")).take("early")
            write(path, [("a", "second")], 1)
        clock.advance(60_000)

    assert run_epochs(spark, tmp_path, stream(1, 2, 3), between, at=now) == [["first"], ["second"], ["second"]]
    assert len(swept(tmp_path)) == 2
    shutil.rmtree(path)
    # The fork, and the job itself, begin at the time of the savepoint, when the copy is still in use.
    restore = tm.Restore("early", job="lookup")
    assert run_epochs(spark, tmp_path, stream(2), name="fork", at=now, restore=restore) == [["first"]]
    assert [file.owner for file in state_of(tmp_path, "fork").files] == ["lookup"]
    assert run_epochs(spark, tmp_path, stream(1, 2), at=now, restore=tm.Restore("early")) == [["first"]]
    # Another kind of operator may have the uid from now on: it has nothing of the copy.
    other = given(1, 2, 3).key_by("n").deduplicate(within="1 hour").uid("names").select("n", name="k")
    assert run_epochs(spark, tmp_path, other, at=now) == [["a"]]
    assert all(file.part != "table" for file in state_of(tmp_path).files)


def test_the_harness_looks_for_versions_as_the_engine_does(tmp_path: Path) -> None:
    path = tmp_path / "names"
    write(path, [])
    stream = elements(schema=SCHEMA).lookup(tm.parquet_table(str(path)), on={"k": "K"}, columns=["name"])
    harness = OperatorHarness(stream)
    found = []
    for number in range(4):
        harness.set_processing_time(40_000 * number)
        harness.process({"k": "a", "n": number}, at=number)
        found += [each["name"] for each in harness.advance_watermark(number)]
        write(path, [("a", f"written {number}")], number)
    assert found == [None, None, "written 1", "written 1"]
