"""The job whose upserts are killed: windows that fire again, written as all panes and as the newest ones, and a stream with keys."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import tidemark as tm
from tests.crash.fares import MINUTE, clock_of, open_session, run

if TYPE_CHECKING:
    from tidemark.testing.manual_clock import ManualClock

HOUR = 60 * MINUTE
SCHEMA = "id BIGINT, zone STRING, at BIGINT, fare BIGINT"
FILES: list[list[tuple[str | None, int, int]]] = [
    [("a", 1, 10), ("b", 2, 20), (None, 3, 30), ("c", 4, 40)],
    [("a", HOUR + 1, 11), ("b", HOUR + 2, 21), ("c", HOUR + 3, 31)],
    [("a", 5, 12), ("d", 6, 50), ("c", 2 * HOUR, 41)],
    [("b", 7, 22), (None, HOUR + 4, 32), ("a", 2 * HOUR + 1, 13)],
    [("b", 8, 23), ("c", 3 * HOUR, 43), ("d", HOUR + 5, 51)],
]
"""Each is an epoch; zone, time and fare. From the third on there are late elements of windows that have fired."""


def make_job(folder: Path) -> tm.Job:
    """Return the job on the files below a folder; it writes there too."""
    fares = tm.source(
        "fares",
        tm.files(str(folder / "landing"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.ascending(timestamp="at"),
    )
    windows = fares.key_by("zone").window(tm.tumbling("1 hour")).allowed_lateness("1 day")
    hourly = windows.aggregate(fares=tm.count(), total=tm.sum("fare")).uid("hourly")
    return tm.Job(
        "upserts",
        outputs={
            "panes": tm.delta(hourly, str(folder / "panes")),
            "newest": tm.delta(hourly, str(folder / "newest"), mode="upsert"),
            "last": tm.delta(fares, str(folder / "last"), mode="upsert", keys=["zone"]),
        },
        store=str(folder / "store"),
        parallelism=1,
        retained_epochs=2,
    )


def write_landing(folder: Path) -> Path:
    """Write the input; returns the folder."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    for number, rows in enumerate(FILES):
        lines = [json.dumps({"id": row, "zone": zone, "at": at, "fare": fare}) for row, (zone, at, fare) in enumerate(rows)]
        path = landing / f"{number}.json"
        path.write_text("".join(f"{line}\n" for line in lines))
        # Spark takes the oldest file first.
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    return folder


def drive(folder: str, attempt: str = "0") -> None:
    """Run the job to its end; what a killed process was doing, and what its successor does."""
    clock: ManualClock = clock_of(int(attempt))
    run(make_job(Path(folder)), open_session(), clock, end_of_input=True)


def drive_behind_a_savepoint(folder: str, epochs: str = "100") -> None:
    """Run two epochs, take a savepoint, and run on."""
    job, session, clock = make_job(Path(folder)), open_session(), clock_of(0)
    run(job, session, clock, max_epochs=2)
    tm.savepoints_of(job).take("good")
    run(job, session, clock, max_epochs=int(epochs))
