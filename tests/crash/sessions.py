"""The job whose sessions are killed: late elements that join sessions, early panes, and files merged in every epoch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import tidemark as tm
from tests.crash.fares import clock_of, open_session, run
from tidemark.spark.operators.session import session_deferral, session_epoch
from tidemark.state.gc.compaction import plan_compaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k STRING, t BIGINT, v BIGINT"
OUTPUTS = ("plain", "newest", "triggered", "late", "simple")
FILES: list[list[tuple[str | None, int, int]]] = [
    [("a", 0, 1), ("b", 2, 2), (None, 3, 3), ("c", 4, 4), ("a", 40, 5)],
    [("a", 8, 6), ("b", 30, 7), ("d", 35, 8), (None, 12, 9)],
    [("a", 15, 10), ("a", 22, 11), ("c", 50, 12), ("b", 11, 13)],
    [("a", 31, 14), ("b", 21, 15), ("d", 70, 16), ("d", 71, 24), (None, 20, 17)],
    [("b", 1, 18), ("c", 13, 19), ("d", 44, 20), ("e", 120, 21), ("a", 3, 22), ("e", -5, 23)],
]
"""Each is an epoch; key, time and value. With a gap of 10 and the greatest time for a watermark, sessions are joined after they fired."""


def make_job(folder: Path) -> tm.Job:
    """Return the job on the files below a folder; it writes there too."""
    source = tm.source(
        "e",
        tm.files(str(folder / "landing"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.ascending(timestamp="t"),
    )
    late = tm.OutputTag("late")
    windows = source.key_by("k").window(tm.session("10 milliseconds")).allowed_lateness("60 milliseconds")
    plain = windows.late_to(late).aggregate(n=tm.count(), total=tm.sum("v")).uid("plain")
    trigger = tm.event_time_trigger(early=tm.count_trigger(2), late=tm.count_trigger(2))
    triggered = windows.trigger(trigger).aggregate(n=tm.count(), values=tm.collect_list("v")).uid("triggered")
    simple = source.key_by("k").window(tm.session("200 milliseconds")).aggregate(n=tm.count(), total=tm.sum("v")).uid("simple")
    return tm.Job(
        "sessions",
        outputs={
            "plain": tm.delta(plain, str(folder / "plain")),
            "newest": tm.delta(plain, str(folder / "newest"), mode="upsert"),
            "triggered": tm.delta(triggered, str(folder / "triggered")),
            "late": tm.delta(plain.side_output(late), str(folder / "late")),
            "simple": tm.delta(simple, str(folder / "simple")),
        },
        store=str(folder / "store"),
        parallelism=1,
        retained_epochs=2,
    )


def write_landing(folder: Path, files: Sequence[Sequence[tuple[str | None, int, int]]] = FILES) -> Path:
    """Write the input; returns the folder."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    for number, rows in enumerate(files):
        path = landing / f"{number}.json"
        path.write_text("".join(json.dumps({"k": k, "t": t, "v": v}) + "\n" for k, t, v in rows))
        # Spark takes the oldest file first.
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    return folder


@contextmanager
def many_files() -> Iterator[None]:
    """Let every epoch write only the sessions that it touches, or put that off, and merge files."""
    merging = partial(plan_compaction, min_files=1)
    touching: dict[str, Any] = {"FEW_ROWS": -1, "FEW_TOUCHED": 1e-4, "MANY_OUT_OF_DATE": 10**9, "plan_compaction": merging}
    putting_off: dict[str, Any] = {"MANY_OPEN": -1, "FEW_TOUCHED": 0, "EPOCHS_AHEAD": 0, "EPOCHS_OF_DOUBT": 0}
    with mock.patch.multiple(session_epoch, **touching), mock.patch.multiple(session_deferral, **putting_off):
        yield


def run_to_the_end(folder: Path, spark: SparkSession, attempt: int) -> None:
    """Run the job to the end of its input."""
    with many_files():
        run(make_job(folder), spark, clock_of(attempt), end_of_input=True)


def drive(folder: str, attempt: str = "0") -> None:
    """Run the job to its end; what a killed process was doing, and what its successor does."""
    run_to_the_end(Path(folder), open_session(), int(attempt))
