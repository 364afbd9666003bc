"""How many Spark jobs an epoch may cost: 3 where no window closes and nothing is late, and 2 more for each further output with rows.

Spark numbers its jobs one after the other, so two marker jobs around an epoch tell how many ran between them, whoever started them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
HOUR = 60 * MINUTE
NOW = 1_700_000_000_000
MARK = "tests mark"

Element = tuple[str | None, int | None, int]


class JobCounter:
    """Counts Spark's jobs through its status tracker, apart from the count that the engine takes itself."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._last = self._mark()

    def since(self) -> int:
        """Return how many jobs ran since the last call."""
        before, self._last = self._last, self._mark()
        return self._last - before - 1

    def _mark(self) -> int:
        """Run a job in a group of its own, in another thread, since the group belongs to the thread; return its number."""

        def work() -> None:
            self._context.setJobGroup(MARK, "marks a moment")
            self._context.parallelize([0], 1).count()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return max(self._context.statusTracker().getJobIdsForGroup(MARK))


def costs(job: tm.Job, spark: SparkSession, *, end_of_input: bool = False) -> list[tuple[EpochProgress, int]]:
    """Run a job; return its epochs, each with the number of jobs that ran for it."""
    found: list[tuple[EpochProgress, int]] = []
    counter = JobCounter(spark)
    tm.run(
        job,
        spark=spark,
        clock=ManualClock(NOW),
        on_epoch=lambda epoch: found.append((epoch, counter.since())),
        end_of_input=end_of_input,
        handle_signals=False,
    )
    return found


def hourly_job(spec: object, folder: Path, *, split_by: str | None = None, ordered: bool = False) -> tm.Job:
    """Return a job with every kind of output: main, late, rejected and malformed."""
    late, rejected, bad = (tm.OutputTag(name) for name in ("late", "rejected", "malformed"))
    watermarks = tm.bounded_out_of_orderness("10 minutes", timestamp="t", split_by=split_by)
    source = tm.source("e", spec, watermarks=watermarks, malformed_to=bad)  # type: ignore[arg-type]
    kept = source.filter("v >= 0", rejects_to=rejected).with_columns(twice="v * 2")
    aggregates = {"n": tm.count(), "total": tm.sum("twice")} | ({"ids": tm.collect_list("v")} if ordered else {})
    hours = kept.key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("30 minutes").late_to(late).aggregate(**aggregates).uid("hours")
    outputs = {
        "hours": tm.delta(hours, str(folder / "hours")),
        "late": tm.delta(hours.side_output(late), str(folder / "late")),
        "rejected": tm.delta(kept.side_output(rejected), str(folder / "rejected")),
        "malformed": tm.delta(source.side_output(bad), str(folder / "malformed")),
    }
    return tm.Job("hourly", outputs=outputs, store=str(folder / "store"), parallelism=2)


def require_cheap(epochs: Sequence[tuple[EpochProgress, int]]) -> None:
    for epoch, jobs in epochs:
        written = [name for name, output in epoch.outputs.items() if output.rows]
        allowed = 3 + 2 * len(written)
        assert jobs <= allowed, f"epoch {epoch.epoch} took {jobs} jobs for {written or 'no output'}: {dict(epoch.stages)}"
        assert epoch.spark_jobs == jobs, f"epoch {epoch.epoch} says {epoch.spark_jobs} jobs"


EPOCHS: list[list[Element]] = [
    [("a", 5, 1), ("b", 7, 2)],
    [("a", 9, 3), (None, 20, 0)],
    [("a", 80 * MINUTE, 1)],
    [("b", 6, 1), ("b", -6, 1)],
    [("b", 80 * MINUTE, -1)],
    [("b", None, 1)],
    [("b", 10**15, 1), ("b", NOW + 2 * 24 * HOUR, 1)],
    [("c", 80 * MINUTE + 5, 1)],
    [("c", 7 * HOUR, 1), ("c", -9, 1), ("c", None, 1), ("c", 1, -1)],
]
OUTPUTS = [[], [], ["hours"], ["hours", "late"], ["rejected"], ["malformed"], ["malformed"], [], ["hours", "late", "malformed", "rejected"]]


@pytest.mark.parametrize("ordered", [False, True])
def test_jobs_of_an_epoch(spark: SparkSession, tmp_path: Path, *, ordered: bool) -> None:
    spec = tm.from_elements(epochs=EPOCHS, schema="k STRING, t BIGINT, v INT")
    epochs = costs(hourly_job(spec, tmp_path, ordered=ordered), spark)
    assert epochs[3][0].operators["hours"].panes_late == 1
    assert [sorted(name for name, output in epoch.outputs.items() if output.rows) for epoch, _ in epochs] == OUTPUTS
    require_cheap(epochs)


def test_jobs_of_an_epoch_over_splits(spark: SparkSession, tmp_path: Path) -> None:
    # A split that was not there before has to be looked for, and later ones must not cost more than the first.
    batches: list[list[Element]] = [[("a", 5, 1)], [("a", 6, 1), ("b", 7, 1)], [("a", 8, 1), ("b", 9, 1)]]
    batches.append([(f"k{number}", 10, 1) for number in range(30)])
    batches.append([(f"k{number}", 11, 1) for number in range(30)])
    spec = tm.from_elements(epochs=batches, schema="k STRING, t BIGINT, v INT")
    epochs = costs(hourly_job(spec, tmp_path, split_by="k"), spark)
    assert [len(epoch.sources["e"].splits) for epoch, _ in epochs] == [1, 2, 2, 32, 32]
    require_cheap(epochs)


def test_jobs_of_many_small_epochs_over_files(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(18):
        rows = [{"k": key, "t": number, "v": number} for key in "abc"]
        (landing / f"{number:02d}.json").write_text("\n".join(map(json.dumps, rows)))
    spec = tm.files(str(landing), format="json", schema="k STRING, t BIGINT, v INT", max_files_per_epoch=1)
    epochs = costs(hourly_job(spec, tmp_path), spark)
    assert len(epochs) == 18
    # Among them are epochs that merge state files.
    assert max(epoch.operators["hours"].state_files for epoch, _ in epochs) < 18
    require_cheap(epochs)


def test_jobs_at_the_end_of_input(spark: SparkSession, tmp_path: Path) -> None:
    spec = tm.from_elements(epochs=EPOCHS[:2], schema="k STRING, t BIGINT, v INT")
    epochs = costs(hourly_job(spec, tmp_path), spark, end_of_input=True)
    assert epochs[-1][0].end_of_input
    assert epochs[-1][0].outputs["hours"].rows == 3
    require_cheap(epochs)
