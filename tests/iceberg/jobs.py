"""The job that writes to Iceberg and is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import tidemark as tm
from tests.crash.fares import clock_of, open_session, run

SCHEMA = "k STRING, v BIGINT, at TIMESTAMP"
FILES: list[list[tuple[str | None, int]]] = [
    [("a", 1), ("b", 2), (None, 3)],
    [("a", 4), ("c", 5), ("b", 6)],
    [("a", 6), (None, 7), ("c", -1)],
]
"""Each is an epoch, of a day of its own; a negative value takes the key out of the history's stream."""


def make_job(folder: Path) -> tm.Job:
    """Return a job over the files below a folder: rows by partitions, and the history of a changelog."""
    rows = tm.source(
        "rows",
        tm.files(str(folder / "landing"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.ascending(timestamp="at"),
    )
    newest = rows.latest(by=["k"]).uid("newest").filter("v >= 0").select("k", "v")
    return tm.Job(
        "shop",
        {
            "added": tm.iceberg(rows, table="shop.added", catalog="lake", partition_by=["day(at)", "truncate(1, k)"]),
            "history": tm.iceberg(newest, table="shop.history", catalog="lake"),
        },
        store=str(folder / "store"),
        parallelism=1,
    )


def write_landing(folder: Path) -> Path:
    """Write the input; returns the folder."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    for number, rows in enumerate(FILES):
        path = landing / f"{number}.json"
        lines = [{"k": key, "v": value, "at": f"2026-01-0{number + 1}T23:30:00Z"} for key, value in rows]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        # The oldest file is read first.
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    return folder


def drive(folder: str, attempt: str = "0") -> None:
    """Run the job to the end of its files, in a process of its own."""
    run(make_job(Path(folder)), open_session(), clock_of(int(attempt)))
