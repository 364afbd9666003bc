"""State made from a history is what a job that ran over it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.keyed_process.test_replay import EPOCHS, SCHEMA, InBatches, Pairs, Quiet, limited
from tidemark.errors import DefinitionError
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_000
WATERMARK = 39
"""Of the operators after the first two epochs."""

QUIET_ROWS = "what STRING, n BIGINT"
LAST = {"last": ("v", "BIGINT")}


def job_of(store: Path) -> tm.Job:
    """Return a job with one operator of each kind that has keys and no windows."""
    elements = tm.from_elements(epochs=EPOCHS[:2], schema=SCHEMA)
    rides = tm.source("rides", elements, watermarks=tm.bounded_out_of_orderness("20 ms", timestamp="t"))
    keyed, small, large = rides.key_by("k"), rides.filter("v < 4"), rides.filter("v >= 4")
    sides = {tm.OutputTag("large"): "v BIGINT"}
    streams = {
        "quiet": keyed.process(Quiet, returns=QUIET_ROWS, side_outputs=sides, on_error=tm.OutputTag("failed")),
        "batches": keyed.process(InBatches, returns="v BIGINT"),
        "pairs": small.key_by("k").connect(large.key_by("k")).process(Pairs, returns="v BIGINT, newest BIGINT"),
        "limited": keyed.connect(small.broadcast("limits", key="k", value="v BIGINT")).process(limited, returns="v BIGINT, limit BIGINT"),
        "once": keyed.deduplicate(within="1 hour"),
        "changes": keyed.process(tm.sql_state(LAST, returns={"v": "v", "last": "last"})),
        "totals": keyed.running_aggregate(total=tm.sum("v")),
    }
    outputs = {uid: tm.memory(stream.uid(uid), f"{store}/{uid}") for uid, stream in streams.items()}
    return tm.Job("bootstrapped", outputs=outputs, store=str(store))


def kept(stored: Any, uid: str, spark: SparkSession) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows.collect())) for name, rows in stored.tables(uid, spark).items()}


@pytest.mark.spark
def test_each_kind_has_the_state_of_a_run(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(tmp_path / "store")
    tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False)
    ran = tm.savepoint(job)
    history = spark.createDataFrame([row for epoch in EPOCHS[:2] for row in epoch], SCHEMA)
    small, large = history.where("v < 4"), history.where("v >= 4")
    histories = {"pairs": {"first": small, "second": large}, "limited": {"elements": history, "broadcast": small}}
    made = tm.new_savepoint(f"{tmp_path}/made", job, spark=spark, clock=ManualClock(NOW))
    for uid in job.outputs:
        made.bootstrap(job, uid, histories.get(uid, history), time="t", watermark=WATERMARK)
    made.write()
    found = tm.savepoint(f"{tmp_path}/made/")
    assert set(ran.watermarks.values()) == {WATERMARK}
    for uid in job.outputs:
        wanted = kept(ran, uid, spark)
        assert any(wanted.values()), uid
        assert kept(found, uid, spark) == wanted, uid


@pytest.mark.spark
def test_histories_belong_to_inputs(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(tmp_path / "store")
    history = spark.createDataFrame(EPOCHS[0], SCHEMA)
    made = tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)
    with pytest.raises(DefinitionError, match="'pairs' has several inputs") as caught:
        made.bootstrap(job, "pairs", history, time="t")
    assert caught.value.fix == "give the history of each: {'first': ..., 'second': ...}"
    with pytest.raises(DefinitionError, match="'quiet' has no input 'second'"):
        made.bootstrap(job, "quiet", {"second": history}, time="t")
