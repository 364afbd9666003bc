"""Many small epochs under long windows: what is kept of them stays in few files, whatever the kind of windows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements, require_conservation
from tests.seeds import PROFILE
from tidemark.spark.operators.aligned import sliced, triggered
from tidemark.spark.operators.session import session_epoch
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MINUTE = 60_000
LONG = PROFILE == "long"
EPOCHS, MERGED = (10_000, 8) if LONG else (8, 2)
"""How many epochs there are, and how many files of a size make a merge: twice as many in the smallest size, where reading costs less."""

KEYS = 6


def windows(source: tm.Stream) -> dict[str, tm.Stream]:
    """Return a job's windows, each of them open for all of the epochs."""
    keyed = source.key_by("k")
    early = tm.event_time_trigger(early=tm.each_epoch_trigger())
    return {
        "early": keyed.window(tm.tumbling("1000 days")).trigger(early).aggregate(n=tm.count()).uid("early"),
        "sliding": keyed.window(tm.sliding("1000 days", "10 minutes")).aggregate(n=tm.count()).uid("sliding"),
        "session": keyed.window(tm.session("1000 days")).aggregate(n=tm.count()).uid("session"),
    }


def test_live_files_stay_few(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (triggered, sliced, session_epoch):
        monkeypatch.setattr(module, "plan_compaction", partial(plan_compaction, min_files=MERGED))
    batches = [[(NOW + epoch * MINUTE, f"k{(epoch + key) % KEYS}") for key in range(3)] for epoch in range(EPOCHS)]
    streams = windows(elements(*batches, schema="t BIGINT, k STRING"))
    outputs = {name: tm.memory(stream, f"{tmp_path}/{name}") for name, stream in streams.items()}
    job = tm.Job("job", outputs, store=str(tmp_path / "store"), parallelism=2)
    seen: list[EpochProgress] = []
    tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False, on_epoch=seen.append)
    assert len(seen) == EPOCHS
    for epoch in seen:
        require_conservation(epoch)
    tables = {"early": 2, "sliding": 1, "session": 1}
    for uid, count in tables.items():
        files = [epoch.operators[uid].state_files for epoch in seen]
        # An epoch adds a file per partition to each table, and the merging of them takes place at its end.
        assert max(files) <= count * 2 * (MERGED + 1), uid
        assert max(files[EPOCHS // 2 :]) <= max(files[: EPOCHS // 2]), uid
    panes = tm.memory_table(f"{tmp_path}/early")
    assert panes is not None
    assert panes.num_rows == 3 * EPOCHS
    newest = {row["k"]: row["n"] for row in panes.to_pylist()}
    assert sum(newest.values()) == 3 * EPOCHS
