"""The job over Delta tables that is killed: rows that are added to one, and changes of another, version by version."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.crash import fares

SCHEMA = "id BIGINT, zone STRING, fare BIGINT"
VERSIONS = 4


def write_tables(folder: Path) -> Path:
    """Write both tables; returns the folder."""
    for number in range(VERSIONS):
        write_deltalake(str(folder / "added"), _rows(number * 10, 10, number), mode="append", partition_by=["zone"])
    write_deltalake(str(folder / "changed"), _rows(0, 12, 1))
    for number in range(VERSIONS - 1):
        table = DeltaTable(str(folder / "changed"))
        if number == 1:
            table.delete("id = 3 OR id = 4")
        else:
            table.update(updates={"fare": "fare + 5", "zone": "'b'"}, predicate=f"id % 4 = {number}")
    return folder


def _rows(first: int, count: int, fare: int) -> pa.Table:
    zones = ["ab"[number % 2] for number in range(count)]
    return pa.table({"id": range(first, first + count), "zone": zones, "fare": [fare + number for number in range(count)]})


def make_job(folder: Path) -> tm.Job:
    """Return the job on the tables below a folder; it writes there too."""
    # A version of the first table has a file for each zone, of which an epoch takes one.
    spec = tm.delta_source(str(folder / "added"), schema=SCHEMA, from_version=0, max_bytes_per_epoch=1)
    added = tm.source("added", spec, watermarks=tm.ingestion_time())
    changes = tm.delta_source(str(folder / "changed"), schema=SCHEMA, changes=True, from_version=0, max_versions_per_epoch=1)
    changed = tm.delta_changes("changed", changes, key=["id"], watermarks=tm.ascending(timestamp="_commit_timestamp"))
    totals = changed.key_by("zone").aggregate(n=tm.count(), total=tm.sum("fare")).uid("totals")
    return tm.Job(
        "tables",
        outputs={
            "copied": tm.delta(added, str(folder / "copied")),
            "rows": tm.delta(changed, str(folder / "rows"), mode="upsert"),
            "totals": tm.delta(totals, str(folder / "totals"), mode="upsert"),
        },
        store=str(folder / "store"),
        parallelism=1,
    )


def drive(folder: str, attempt: str = "0") -> None:
    """Run the job until its input is read; what a killed process was doing."""
    fares.run(make_job(Path(folder)), fares.open_session(), fares.clock_of(int(attempt)))


def rows_of(folder: Path, name: str) -> list[dict[str, object]]:
    """Return the rows of a table in an order that depends on them alone."""
    found = cast("list[dict[str, object]]", DeltaTable(str(folder / name)).to_pyarrow_table().to_pylist())
    return sorted(found, key=repr)
