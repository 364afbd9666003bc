"""Silence and waiting input: no split goes idle while rows of it may wait, and every split does that truly has none."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
HOUR = 60 * MINUTE
IDLE_AFTER = 5 * MINUTE

Row = tuple[str, int]


class Landing:
    """A folder of files, and a job that counts what arrives there, in windows of a minute, over all splits."""

    def __init__(self, spark: SparkSession, folder: Path, *, others: Sequence[str] = (), **source: object) -> None:
        self.clock = ManualClock(NOW)
        self.seen: list[EpochProgress] = []
        self._spark = spark
        self._folder = folder
        self._files = 0
        strategy = tm.bounded_out_of_orderness(
            "10 minutes", timestamp="t", split_by="k", idle_after="5 minutes", advance_when_idle=bool(source.pop("advance", False))
        )
        streams = []
        for name in ("landing", *others):
            (folder / name).mkdir()
            spec = tm.files(str(folder / name), format="json", schema="k STRING, t BIGINT", **source)  # type: ignore[arg-type]
            streams.append(tm.source(name, spec, watermarks=strategy))
        united = streams[0].union(*streams[1:]) if others else streams[0]
        panes = united.window_all(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("w")
        self._job = tm.Job("job", outputs={"panes": tm.memory(panes, str(folder / "panes"))}, store=str(folder / "store"))

    def land(self, *rows: Row, into: str = "landing") -> None:
        """Write a file, a second younger than the one before, since an epoch takes the oldest first."""
        self._files += 1
        unseen = self._folder / f"{self._files}.json"
        unseen.write_text("".join(json.dumps({"k": key, "t": time}) + "\n" for key, time in rows))
        os.utime(unseen, (1_600_000_000 + self._files,) * 2)
        unseen.rename(self._folder / into / unseen.name)

    def run(
        self, *, trigger: str | None = None, after: Callable[[EpochProgress, threading.Event], None] | None = None
    ) -> list[EpochProgress]:
        """Run the job; ``after`` sees each epoch and may stop the run."""
        first, stop = len(self.seen), threading.Event()

        def on_epoch(epoch: EpochProgress) -> None:
            self.seen.append(epoch)
            if after is not None:
                after(epoch, stop)

        tm.run(self._job, spark=self._spark, trigger=trigger, clock=self.clock, stop=stop, on_epoch=on_epoch, handle_signals=False)
        for epoch in self.seen[first:]:
            require_conservation(epoch)
        return self.seen[first:]


def idle(epoch: EpochProgress, source: str = "landing") -> list[str]:
    """Return the splits that are idle after an epoch."""
    return [name for name, split in epoch.sources[source].splits.items() if split.idle]


def test_a_backlog_is_read_before_anything_goes_idle(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(spark, tmp_path, max_files_per_epoch=1, advance=True)
    landing.land(("north", NOW), ("south", NOW))
    landing.run()
    # Much later, with what came meanwhile: north's first, so that south waits for its turn.
    landing.clock.advance(24 * HOUR)
    for minute in range(1, 4):
        landing.land(("north", NOW + minute * MINUTE))
    landing.land(("south", NOW + MINUTE), ("south", NOW + 2 * MINUTE))

    def after(epoch: EpochProgress, stop: threading.Event) -> None:
        if epoch.sources["landing"].splits["south"].rows:
            stop.set()

    backlog = landing.run(trigger="50 milliseconds", after=after)
    assert [(epoch.rows_in, idle(epoch)) for epoch in backlog] == [(1, []), (1, []), (1, []), (2, [])]
    assert [epoch.operators["w"].rows_late for epoch in backlog] == [0, 0, 0, 0]
    assert {epoch.sources["landing"].watermark for epoch in backlog[:3]} == {NOW - 10 * MINUTE - 1}

    # From then on nothing waits, and silence is silence.
    def silence(_epoch: EpochProgress, stop: threading.Event) -> None:
        stop.set()

    landing.clock.advance(IDLE_AFTER)
    (silent,) = landing.run(trigger="50 milliseconds", after=silence)
    assert (silent.rows_in, idle(silent)) == (0, ["north", "south"])
    assert (
        silent.sources["landing"].watermark == max(split.watermark or 0 for split in silent.sources["landing"].splits.values()) + IDLE_AFTER
    )


def test_a_silent_split_goes_idle_while_others_have_rows(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(spark, tmp_path)
    landing.land(("north", NOW), ("south", NOW))

    def after(epoch: EpochProgress, stop: threading.Event) -> None:
        if epoch.epoch == 4:
            stop.set()
        landing.clock.advance(2 * MINUTE)
        landing.land(("north", NOW + (epoch.epoch + 1) * HOUR))

    busy = landing.run(trigger="50 milliseconds", after=after)
    assert [epoch.rows_in for epoch in busy] == [2, 1, 1, 1, 1]
    assert [idle(epoch) for epoch in busy] == [[], [], [], ["south"], ["south"]]
    held = NOW - 10 * MINUTE - 1
    assert [epoch.sources["landing"].watermark for epoch in busy] == [held, held, held, held + 3 * HOUR, held + 4 * HOUR]


def test_a_large_file_waits_behind_a_small_one(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(spark, tmp_path, max_bytes_per_epoch=200)
    landing.land(("north", NOW), ("south", NOW))
    landing.run()
    landing.clock.advance(HOUR)
    landing.land(("north", NOW + HOUR))
    landing.land(*(("south", NOW + second) for second in range(20)))
    small, large = landing.run()
    assert [(epoch.rows_in, idle(epoch), epoch.operators["w"].rows_late) for epoch in (small, large)] == [(1, [], 0), (20, [], 0)]


def test_what_came_since_a_folder_was_listed_may_wait(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(spark, tmp_path, max_files_per_epoch=2)
    landing.land(("north", NOW), ("south", NOW))
    landing.run()
    for minute in range(1, 4):
        landing.land(("north", NOW + HOUR + minute * MINUTE))

    def after(epoch: EpochProgress, stop: threading.Event) -> None:
        if epoch.epoch == 1:
            landing.clock.advance(IDLE_AFTER + MINUTE)
            landing.land(("south", NOW + MINUTE))
        if epoch.epoch == 3:
            stop.set()

    read = landing.run(trigger="50 milliseconds", after=after)
    # The second epoch takes the last file that was listed in front of the first.
    assert [(epoch.rows_in, idle(epoch), epoch.operators["w"].rows_late) for epoch in read] == [(2, [], 0), (1, [], 0), (1, [], 0)]


def test_drains_see_deadlines_too(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(spark, tmp_path, max_files_per_epoch=1)
    landing.land(("north", NOW), ("south", NOW))
    assert len(landing.run()) == 1
    landing.clock.advance(2 * MINUTE)
    landing.land(("north", NOW + HOUR))
    (read,) = landing.run()
    assert (read.rows_in, idle(read)) == (1, [])
    assert landing.run() == []
    landing.clock.advance(3 * MINUTE)
    (silent,) = landing.run()
    assert (silent.rows_in, silent.rows_out, idle(silent)) == (0, 1, ["south"])
    assert silent.operators["w"].watermark == NOW + 50 * MINUTE - 1
    assert landing.run() == []


def test_what_comes_during_a_drain_may_wait(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(spark, tmp_path, others=["quiet"], max_files_per_epoch=1)
    landing.land(("q", NOW), into="quiet")
    for hour in range(3):
        landing.land(("north", NOW + hour * HOUR))

    def after(_epoch: EpochProgress, _stop: threading.Event) -> None:
        landing.clock.advance(IDLE_AFTER)
        landing.land(("q", NOW + MINUTE), into="quiet")

    long = landing.run(after=after)
    assert sum(epoch.rows_in for epoch in long) == 4
    # The drain took five minutes and more from quiet's only row; nobody looked whether another had come.
    assert [idle(epoch, "quiet") for epoch in long] == [[]] * len(long)
    waiting = landing.run()
    assert sum(epoch.sources["quiet"].rows_read for epoch in waiting) == len(long)
    assert [epoch.operators["w"].rows_late for epoch in [*long, *waiting]] == [0] * len([*long, *waiting])
