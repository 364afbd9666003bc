"""Sources of offsets are planned without a query by the classes that a query uses, and jobs go on in a query and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.loop.driver import JobDriver
from tidemark.spark.loop.planned_run import PlannedRun
from tidemark.spark.sources.planning import offset_planner
from tidemark.spark.sources.planning.offset_planner import has_offsets
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "rate-micro-batch"
OPTIONS = {"rowsPerBatch": "7", "numPartitions": "3", "startTimestamp": "1600000000000", "advanceMillisPerBatch": "60000"}


@pytest.mark.spark
def test_a_job_goes_on_in_a_query_and_back(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format of Spark's own, of which each drain reads one batch."""
    monkeypatch.setattr(offset_planner, "PLANNED_FORMATS", {FORMAT})
    planned: list[bool] = []
    run_epochs = PlannedRun.run_epochs

    def noted(run: PlannedRun, interval_ms: int | None) -> None:
        planned.append(True)
        run_epochs(run, interval_ms)

    monkeypatch.setattr(PlannedRun, "run_epochs", noted)
    table = f"{tmp_path}-rows"
    rows = tm.source("rows", tm.streaming_format(FORMAT, options=OPTIONS), watermarks=tm.ascending(timestamp="timestamp"))
    job = tm.Job("job", outputs={"rows": tm.memory(rows.select("value"), table)}, store=str(tmp_path / "store"))
    for query in (False, True, False, False, True, False):
        with monkeypatch.context() as patch:
            if query:
                patch.setattr(JobDriver, "plans_epochs", False)
            (epoch,) = tm.run(job, spark=spark, clock=ManualClock(NOW)).epochs
        require_conservation(epoch)
        assert epoch.rows_in == 7
    found = tm.memory_table(table)
    assert found is not None
    assert sorted(row["value"] for row in found.to_pylist()) == list(range(6 * 7))
    assert len(planned) == 4
    tm.clear_memory(table)


@pytest.mark.parametrize(
    ("format", "options", "planned"),
    [
        ("kafka", {}, True),
        ("Kafka", {"maxOffsetsPerTrigger": "5"}, True),
        ("kafka", {"minOffsetsPerTrigger": "5"}, False),
        ("kafka", {"MAXTRIGGERDELAY": "1m"}, False),
        ("delta", {}, False),
    ],
)
def test_which_sources_are_planned(format: str, options: dict[str, str], planned: bool) -> None:  # noqa: FBT001
    spec = tm.streaming_format(format, options={"subscribe": "rides", **options})
    assert isinstance(spec, FormatSpec)
    assert has_offsets(spec) is planned
