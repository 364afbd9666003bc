"""The jobs that write to Postgres and are killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

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
