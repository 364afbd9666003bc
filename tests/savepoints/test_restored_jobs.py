"""A job with windows, in long runs with every kind of them, resumes from a savepoint: tables put back, any parallelism, as another job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.seeds import PROFILE
from tidemark.errors import RewindError, StateMismatchError
from tidemark.savepoints.model.rewind_journal import RewindJournal, remove_rewind, write_rewind
from tidemark.state.log.joblog import JobLog
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOW = 1_700_000_000_000
EPOCHS = 4
SPLIT = 1
"""The epoch of the savepoint; more follow."""

SCHEMA = "k STRING, t BIGINT, v INT"
Tables = Mapping[str, list[str]]


def land(folder: Path) -> None:
    """Write a file per epoch: elements that drift on, some of them late."""
    random = Random(11)
    folder.mkdir()
    for epoch in range(EPOCHS):
        rows = [
            {"k": random.choice("abc"), "t": max(0, 80 * epoch + random.randint(-90, 80)), "v": random.randint(-9, 9)} for _ in range(40)
        ]
        path = folder / f"{epoch}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_600_000_000 + epoch,) * 2)


def streams(landing: Path, prefix: str = "") -> dict[str, tm.Stream]:
    spec = tm.files(str(landing), format="json", schema=SCHEMA, max_files_per_epoch=1)
    keyed = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("20 milliseconds", timestamp="t")).key_by("k")
    late = tm.OutputTag("late")
    aggregates = {"n": tm.count(), "total": tm.sum("v")}
    tumbling = (
        keyed.window(tm.tumbling("30 milliseconds"))
        .allowed_lateness("25 milliseconds")
        .late_to(late)
        .aggregate(**aggregates)
        .uid(f"{prefix}tumbling")
    )
    sliding = keyed.window(tm.sliding("60 milliseconds", "20 milliseconds")).aggregate(**aggregates).uid(f"{prefix}sliding")
    growing = keyed.window(tm.cumulative("80 milliseconds", "20 milliseconds")).aggregate(**aggregates).uid(f"{prefix}growing")
    sessions = keyed.window(tm.session("2 milliseconds")).aggregate(**aggregates).uid(f"{prefix}sessions")
    counted = keyed.window(tm.count_window(7)).aggregate(**aggregates).uid(f"{prefix}counted")
    early = (
        keyed.window(tm.tumbling("50 milliseconds"))
        .trigger(tm.event_time_trigger(early=tm.count_trigger(3)))
        .aggregate(**aggregates)
        .uid(f"{prefix}early")
    )
    others = {"sliding": sliding, "growing": growing} if PROFILE == "long" else {}
    return others | {
        "tumbling": tumbling,
        "late": tumbling.side_output(late),
        "sessions": sessions,
        "counted": counted,
        "early": early,
    }


def job_of(folder: Path, name: str = "job", prefix: str = "") -> tm.Job:
    outputs = {key: tm.delta(stream, str(folder / name / key)) for key, stream in streams(folder / "landing", prefix).items()}
    return tm.Job(name, outputs=outputs, store=str(folder / "store"))


def run(
    spark: SparkSession,
    job: tm.Job,
    *,
    restore: tm.Restore | None = None,
    parallelism: Callable[[], int | None] | None = None,
    max_epochs: int | None = None,
) -> tm.RunResult:
    return tm.run(
        job,
        spark=spark,
        clock=ManualClock(NOW),
        handle_signals=False,
        restore=restore,
        parallelism=parallelism,
        max_epochs=max_epochs,
    )


def tables(folder: Path, name: str = "job") -> Tables:
    """Return the rows of the job's tables as sorted texts."""
    found = {}
    for place in sorted((folder / name).iterdir()):
        rows = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
        found[place.name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


def minus(all_rows: Tables, some: Tables) -> Tables:
    left = {}
    for name, rows in all_rows.items():
        rest = list(rows)
        for row in some.get(name, []):
            rest.remove(row)
        left[name] = rest
    return left


def test_a_job_goes_on_from_a_savepoint_as_if_nothing_had_been(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "landing")
    job = job_of(tmp_path)
    store = tm.savepoints_of(job)
    run(spark, job, max_epochs=SPLIT + 1)
    at_split = tables(tmp_path)
    run(spark, job)
    golden = tables(tmp_path)
    # Otherwise little would be shown: each table has rows from before the savepoint, and from after it.
    assert {name for name, rows in golden.items() if 0 < len(at_split.get(name, [])) < len(rows)} == set(golden)

    # All of that was at two partitions. Of an epoch long past, from nothing but the log; and back to it again.
    store.take("split", epoch=SPLIT)
    tm.rewind(job, "split")
    assert tables(tmp_path) == at_split
    asked = [7, 1]
    result = run(spark, job, parallelism=lambda: asked.pop(0))
    assert [epoch.epoch for epoch in result.epochs] == list(range(SPLIT + 1, EPOCHS))
    assert tables(tmp_path) == golden
    # Asked before each epoch: what is asked for is what the next one runs at.
    assert asked == []
    tm.rewind(job, "split")
    assert tables(tmp_path) == at_split

    # Another job goes on from it, under other uids, and writes elsewhere what came after; the first one may go.
    other = job_of(tmp_path, "other", "new-")
    uids = {uid: f"new-{uid}" for uid in store.get("split").record.operators}
    with pytest.raises(StateMismatchError, match="nothing in the job claims"):
        run(spark, other, restore=tm.Restore("split", job="job"))
    restore = tm.Restore("split", job="job", uids=uids, identity="once")
    run(spark, other, restore=restore, max_epochs=1)
    assert [hold.job for hold in store.file_references("split")] == ["other"]
    result = run(spark, other, restore=restore)
    assert [epoch.epoch for epoch in result.epochs] == list(range(SPLIT + 2, EPOCHS)), "a restore with a name is made once"
    assert tables(tmp_path, "other") == minus(golden, at_split)

    # Exported, and gone on from in another store.
    tm.export_savepoint(job, "split", str(tmp_path / "export"))
    moved = job_of(tmp_path, "moved")
    tm.import_savepoint(moved, str(tmp_path / "export"))
    run(spark, moved, restore=tm.Restore("split"))
    assert tables(tmp_path, "moved") == minus(golden, at_split)

    # Half a rewind: the job does not start, and says what to do.
    folder = store.folder
    write_rewind(folder, RewindJournal("r", "split", "l", SPLIT, {}, NOW))
    with pytest.raises(RewindError, match="tidemark rewind job --to split"):
        run(spark, job)
    remove_rewind(folder, "r")


def test_sources_come_and_go_with_a_restore(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "landing")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "0.json").write_text(json.dumps({"k": "z", "t": 5, "v": 1}) + "\n")

    def job(**folders: str) -> tm.Job:
        outputs = {}
        for name, folder in folders.items():
            spec = tm.files(str(tmp_path / folder), format="json", schema=SCHEMA)
            rows = tm.source(name, spec, watermarks=tm.bounded_out_of_orderness("20 milliseconds", timestamp="t"))
            outputs[name] = tm.delta(rows, str(tmp_path / "job" / name))
        return tm.Job("job", outputs=outputs, store=str(tmp_path / "store"))

    first = job(landing="landing", gone="landing")
    run(spark, first)
    tm.savepoints_of(first).take("a")
    changed = job(more="more", landing="landing")
    with pytest.raises(StateMismatchError, match="the position of source 'gone'"):
        run(spark, changed, restore=tm.Restore("a"))
    result = run(spark, changed, restore=tm.Restore("a", allow_non_restored_state=True))
    # The new source from its beginning, the old one from where it was.
    assert sum(epoch.rows_in for epoch in result.epochs) == 1
    head = JobLog(tm.savepoints_of(changed).folder, "job").load().epoch
    assert head is not None
    assert (set(head.sources), head.parent is not None) == ({"more", "landing"}, True)
    assert len(tables(tmp_path)["landing"]) == 40 * EPOCHS
