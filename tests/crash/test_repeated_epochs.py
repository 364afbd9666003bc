"""Spark's own log is behind the job's: it brings a committed epoch once more, as it was or with other offsets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.bad_inputs import HOUR, ROWS, Lab
from tidemark.errors import OffsetMismatchError
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.usefixtures("queries")]
"""Only a query has a log of its own, which can be behind the job's."""

EPOCHS: list[list[tuple[object, ...]]] = [ROWS, [("c", 6 * HOUR, 1)], [("a", 9 * HOUR, 3)]]
SEED = SparkCheckpoint.seed


def rows_job(lab: Lab) -> tm.Job:
    stream = lab.source(*EPOCHS)
    return lab.job(rows=tm.delta(stream, lab.path("rows")), more=tm.parquet(stream, lab.path("more")))


def seen(lab: Lab) -> tuple[list[int], Counter[object], Counter[object]]:
    """Return the committed epochs, and the rows that readers of either output see."""
    log = JobLog(JobStore.open(lab.path("store")).at(lab.name), lab.name)
    rows = DeltaTable(lab.path("rows")).to_pyarrow_table().to_pylist()
    more = [row.asDict() for row in lab.spark.read.parquet(lab.path("more")).collect()]
    counted = [Counter[object](tuple(row.values()) for row in found) for found in (rows, more)]
    return [record.epoch for record in log.epochs()], counted[0], counted[1]


def forgetful(*, offsets: tuple[str, str] = ("", "")) -> object:
    """Return a way to fill Spark's checkpoint that leaves out that the newest epoch is done, and may change its offsets."""

    def seed(checkpoint: SparkCheckpoint, record: EpochRecord | None) -> int:
        first = SEED(checkpoint, record)
        folder = Path(checkpoint.path.removeprefix("file://"))
        (folder / "commits" / str(first - 1)).unlink()
        # All entries alike: Spark never goes back from one to the next.
        for entry in (folder / "offsets").iterdir():
            text = entry.read_text()
            assert offsets[0] in text
            entry.write_text(text.replace(*offsets))
        return first

    return seed


def test_an_epoch_that_comes_again_is_only_published_again(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, spark)
    lab.run(rows_job(lab), max_epochs=2)
    before = seen(lab)
    with monkeypatch.context() as patch:
        patch.setattr(SparkCheckpoint, "seed", forgetful(offsets=('"logOffset":1', '"logOffset":0')))
        with pytest.raises(OffsetMismatchError, match="other source offsets"):
            lab.run(rows_job(lab))
    assert seen(lab) == before
    with monkeypatch.context() as patch:
        patch.setattr(SparkCheckpoint, "seed", forgetful())
        again = lab.run(rows_job(lab))
    everything = Counter(row for epoch in EPOCHS for row in epoch)
    assert [epoch.epoch for epoch in again.epochs] == [2]
    assert seen(lab) == ([2, 1, 0], everything, everything)
