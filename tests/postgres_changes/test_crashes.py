"""A job that is killed in the middle of the snapshot and of the changes: its tables are those of the server in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.crash.fares import clock_of, rescaled
from tests.crash.fares import run as run_epochs
from tests.killed import kill_at
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres_changes import jobs
from tests.seeds import PROFILE
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition
from tidemark.state.log.epoch_intent import EpochIntent, read_intent
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.offset_log import files_of, positions
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_POSTGRES, pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

POINTS = ("slot-created", "changes-copied:2", "epoch-planned:2", "before-commit:2", "after-commit:2", "slot-advanced:2")
"""Each in the driver after the one before it: within the snapshot of the first table and of the second, and among the changes."""

CHAINS = [POINTS] if PROFILE != "long" else [POINTS, *((point,) for point in POINTS)]


def rows_of(path: Path, names: str) -> list[tuple[Any, ...]]:
    table = DeltaTable(str(path)).to_pyarrow_table()
    return sorted((tuple(row[name] for name in names.split(", ")) for row in table.to_pylist()), key=repr)


def server_rows(server: Server, table: str, names: str) -> list[tuple[Any, ...]]:
    return sorted(server.query(f"SELECT {names} FROM {table}"), key=repr)


def content_of_history(path: Path) -> list[tuple[Any, ...]]:
    """Return the rows that a history leaves, of which an epoch has one of each key at most."""
    found: dict[int, tuple[Any, ...]] = {}
    seen = set()
    for row in sorted(DeltaTable(str(path)).to_pyarrow_table().to_pylist(), key=lambda row: row["epoch"]):
        assert (row["epoch"], row["id"]) not in seen
        seen.add((row["epoch"], row["id"]))
        assert (row["operation"] == "insert") == (row["id"] not in found)
        if row["operation"] == "delete":
            del found[row["id"]]
        else:
            found[row["id"]] = (row["id"], row["total"], row["note"])
    return sorted(found.values(), key=repr)


def require_planned_files(folder: Path) -> None:
    """Make sure that the files of a planned epoch are there, and nothing of another one is named."""
    store = JobStore.open(str(folder / "store")).at("shop")
    intent = read_intent(store)
    assert intent is not None
    for path in intent.files:
        assert store.get(path)


def require_replayed(store: JobStore, planned: EpochIntent) -> None:
    """Make sure that a planned epoch was read from its files."""
    records = {record.epoch: record for record in JobLog(store, "shop").epochs()}
    assert files_of(positions(records[planned.epoch].offsets)["shop"]) == files_of(planned.inputs["shop"])


@pytest.mark.parametrize("points", CHAINS, ids=" then ".join)
def test_killed(
    points: tuple[str, ...], jvm: Mapping[str, str], *, spark: SparkSession, server: Server, schema: str, tmp_path: Path
) -> None:
    jobs.make_tables(server.dsn(), schema)
    store = JobStore.open(str(tmp_path / "store")).at("shop")
    replayed: EpochIntent | None = None
    for attempt, point in enumerate(points):
        arguments = [str(tmp_path), schema, server.dsn(), str(attempt)]
        kill_at("tests.postgres_changes.jobs:drive", point, arguments, environment=jvm)
        if replayed is not None:
            require_replayed(store, replayed)
        planned = read_intent(store)
        if planned is not None:
            require_planned_files(tmp_path)
        replayed = planned if point.startswith(("epoch-planned", "before-commit")) else None
    jobs.write(server.dsn(), schema, 1_000)
    # The rest of the changes, some two hundred: after several kills in one epoch, at another parallelism than the drivers before it.
    several = len(points) > 1
    job = jobs.make_job(tmp_path, schema, most=100 * jobs.MOST if several else jobs.MOST)
    run_epochs(rescaled(job, 3) if several else job, spark, clock_of(len(points)))
    if replayed is not None:
        require_replayed(store, replayed)
    assert rows_of(tmp_path / "orders", "id, total, note") == server_rows(server, f"{schema}.orders", "id, total, note")
    assert rows_of(tmp_path / "lines", "order_id, line, at") == server_rows(server, f"{schema}.lines", "order_id, line, at")
    assert content_of_history(tmp_path / "history") == server_rows(server, f"{schema}.orders", "id, total, note")
    records = {record.epoch: record for record in JobLog(store, "shop").epochs()}
    head = ChangesPosition.parse(positions(records[max(records)].offsets)["shop"])
    assert head is not None
    assert head.unfinished is None
    (slot,) = server.query("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", head.slot)
    assert slot[0] == json.loads(json.dumps(head.as_stored()))["lsn"]
