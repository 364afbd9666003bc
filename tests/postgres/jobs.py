"""The jobs that write to Postgres and are killed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tidemark as tm
from tests.crash.fares import clock_of, open_session, run
from tests.postgres.rig import VARIABLE

SCHEMA = "k STRING, v BIGINT, at BIGINT"
FILES: list[list[tuple[str | None, int]]] = [
    [("a", 1), ("b", 2), (None, 3)],
    [("a", 4), ("c", 5), ("b", None)],  # type: ignore[list-item]
    [("a", 6), (None, 7), ("c", -1)],
    [("d", 8), ("b", 9), ("c", 10)],
]
"""Each is an epoch; a negative or missing value takes the key out of the filtered table."""

COLUMNS = {"added": "k, v, epoch", "newest": "k, v", "history": "k, v, operation, epoch"}
# By hand, from the files: what each epoch adds, and how it changes the newest row of each key that is not negative.
ADDED = [(key, value, epoch) for epoch, rows in enumerate(FILES) for key, value in rows]
NEWEST = [("a", 6), (None, 7), ("d", 8), ("b", 9), ("c", 10)]
HISTORY = [
    ("a", 1, "insert", 0), ("b", 2, "insert", 0), (None, 3, "insert", 0),
    ("a", 4, "update", 1), ("c", 5, "insert", 1), ("b", 2, "delete", 1),
    ("a", 6, "update", 2), (None, 7, "update", 2), ("c", 5, "delete", 2),
    ("d", 8, "insert", 3), ("b", 9, "insert", 3), ("c", 10, "insert", 3),
]  # fmt: skip
WHOLE: Mapping[str, list[tuple[Any, ...]]] = {
    "added": sorted(ADDED, key=repr),
    "newest": sorted(NEWEST, key=repr),
    "history": sorted(HISTORY, key=repr),
}
"""What each table has in the end."""


def make_job(folder: Path, schema: str) -> tm.Job:
    """Return a job over the files below a folder, with one output of each mode."""
    rows = tm.source(
        "rows",
        tm.files(str(folder / "landing"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.ascending(timestamp="at"),
    )
    newest = rows.latest(by=["k"]).uid("newest").filter("v >= 0").select("k", "v")
    return tm.Job(
        "shop",
        {
            "added": tm.postgres(rows.select("k", "v"), table=f"{schema}.added", dsn_env=VARIABLE, with_epoch=True),
            "newest": tm.postgres(newest, table=f"{schema}.newest", dsn_env=VARIABLE, mode="upsert"),
            "history": tm.postgres(newest, table=f"{schema}.history", dsn_env=VARIABLE),
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
        path.write_text("".join(f"{json.dumps({'k': key, 'v': value, 'at': 10 * number})}\n" for key, value in rows))
        # The oldest file is read first.
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    return folder


def drive(folder: str, schema: str, attempt: str = "0") -> None:
    """Run the job to the end of its files, in a process of its own."""
    run(make_job(Path(folder), schema), open_session(), clock_of(int(attempt)))
