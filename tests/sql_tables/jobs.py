"""The jobs that write to MariaDB or SQLite and are killed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import tidemark as tm
from tests.crash.fares import clock_of, open_session, run
from tests.postgres.jobs import FILES, SCHEMA, write_landing
from tests.postgres.rig import VARIABLE
from tidemark.graph.connectors.sql_table.node import SqlDatabase


def make_job(folder: Path, database: str) -> tm.Job:
    """Return a job over the files below a folder, with one output of each mode."""
    rows = tm.source(
        "rows",
        tm.files(str(folder / "landing"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.ascending(timestamp="at"),
    )
    newest = rows.latest(by=["k"]).uid("newest").filter("v >= 0").select("k", "v")
    kind = cast("SqlDatabase", database)
    return tm.Job(
        "shop",
        {
            "added": tm.sql_table(rows.select("k", "v"), database=kind, table="added", dsn_env=VARIABLE, with_epoch=True),
            "newest": tm.sql_table(newest, database=kind, table="newest", dsn_env=VARIABLE, mode="upsert"),
            "history": tm.sql_table(newest, database=kind, table="history", dsn_env=VARIABLE),
        },
        store=str(folder / "store"),
        parallelism=1,
    )


def drive(folder: str, database: str, attempt: str = "0") -> None:
    """Run the job to the end of its files, in a process of its own."""
    run(make_job(Path(folder), database), open_session(), clock_of(int(attempt)))


__all__ = ["FILES", "drive", "make_job", "write_landing"]
