"""The resource with the real engine behind it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import make_job
from tidemark.assets import (
    Conservation,
    LateRatio,
    NoGaps,
    StateFits,
    UniquePanes,
    WatermarkFreshness,
    expectation_checks,
    streaming_assets,
)
from tidemark.resources import SparkResource, TidemarkResource
from tidemark.resources.run_events import StreamingEvent
from tidemark.state.status.history import read_history
from tidemark.state.store.store import JobStore

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

SUITE = {
    "name": "hourly",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "trips", "min_value": 1}, "meta": {"check": "has_trips"}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "zone"}, "meta": {"check": "has_zone"}},
    ],
}


def land(folder: Path, name: str, *rows: tuple[int, float, str] | str) -> None:
    """Write a file of trips: (zone, fare, time) or a line as it is."""
    landing = folder / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps({"zone": row[0], "fare": row[1], "at": row[2]}) for row in rows]
    (landing / name).write_text("\n".join(lines) + "\n")


def make_assets(job: tm.Job) -> dg.AssetsDefinition:
    checks = (
        Conservation(),
        UniquePanes(),
        NoGaps(),
        LateRatio(),
        WatermarkFreshness(reference="newest_event"),
        StateFits(),
        expectation_checks(SUITE, rows="run"),
    )

    @streaming_assets(job=job, checks=checks)
    def cabs(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context).with_row_counts()

    return cabs


def drain(assets: dg.AssetsDefinition, store: Path, *, end_of_input: bool = False) -> dg.ExecuteInProcessResult:
    settings = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    resource = TidemarkResource(store=str(store), spark=SparkResource(spark_config=settings), end_of_input=end_of_input)
    return dg.materialize([assets], resources={"tidemark": resource})


def numbers(result: dg.ExecuteInProcessResult, key: str) -> dict[str, object]:
    found = (event.step_materialization_data.materialization for event in result.get_asset_materialization_events())
    return {event.asset_key.path[-1]: event.metadata[key].value for event in found if key in event.metadata}


def test_two_drains_and_the_end_of_input(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    assets = make_assets(job)
    handler = signal.getsignal(signal.SIGINT)
    land(
        tmp_path,
        "a.json",
        (1, 5.0, "2024-03-04T00:10:00Z"),
        (1, 7.0, "2024-03-04T00:50:00Z"),
        (1, -2.0, "2024-03-04T00:20:00Z"),
        "not json",
    )
    land(tmp_path, "b.json", (2, 1.0, "2024-03-04T02:30:00Z"))
    first = drain(assets, store)
    assert signal.getsignal(signal.SIGINT) is handler
    assert numbers(first, "tidemark/rows_read")["hourly"] == 5
    assert numbers(first, "dagster/row_count")["rejected"] == 1
    assert numbers(first, "dagster/row_count")["malformed"] == 1

    land(tmp_path, "c.json", (1, 3.0, "2024-03-04T00:05:00Z"), (2, 3.0, "2024-03-04T01:05:00Z"), (2, 4.0, "2024-03-04T02:35:00Z"))
    second = drain(assets, store, end_of_input=True)
    # 00:05 is hours behind a watermark of 02:24:59.999 and late; 01:05 is as well, its window having ended at 02:00 with 10 minutes' grace.
    assert numbers(second, "tidemark/late_rows")["hourly"] == 2
    assert numbers(second, "dagster/row_count")["late"] == 2
    assert numbers(second, "tidemark/rows_added")["malformed"] == 0
    found = {evaluation.check_name: evaluation for evaluation in second.get_asset_check_evaluations()}
    assert found["conservation"].passed, found["conservation"].description
    assert found["unique_panes"].passed
    assert not found["no_gaps"].passed, "nothing was on time between 01:00 and 02:00"
    assert not found["late_ratio"].passed
    assert found["late_ratio"].severity == dg.AssetCheckSeverity.ERROR
    assert found["has_trips"].passed
    assert found["watermark_freshness"].passed
    assert (found["state_fits"].passed, found["state_fits"].metadata["tidemark/verdict"].value) == (True, "compatible")

    third = drain(assets, store)
    assert numbers(third, "tidemark/epochs")["hourly"] == 0
    history = read_history(JobStore.open(str(store)), job.name)
    tags = [event.step_materialization_data.materialization.tags or {} for event in third.get_asset_materialization_events()]
    assert {found["dagster/data_version"] for found in tags} == {f"{history[-1].lineage}:{history[-1].epoch}"}
