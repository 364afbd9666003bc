"""A check and a sensor on whether the results of inputs are visible."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.control.read_jobs import Read, kafka
from tidemark.assets import InputsVisible, build_asset_checks
from tidemark.sensors import SensorOptions, build_input_sensor
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.dagster


def job_at(tmp_path: Path) -> tm.Job:
    rides = tm.source("rides", tm.from_elements([], schema="k STRING, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    return tm.Job("taxi", {"rides": tm.delta(rides, str(tmp_path / "rides"))}, store=str(tmp_path / "store"))


def test_runs_are_requested_for_keys_whose_inputs_are_all_visible(tmp_path: Path) -> None:
    read = Read(JobStore.open(str(tmp_path / "store")))
    wanted = {"monday": ["kafka:rides:0:3", "kafka:rides:1:0"], "tuesday": ["kafka:rides:0:3", "kafka:rides:0:9"], "never": []}

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition([*wanted]))
    def daily() -> None: ...

    options = SensorOptions(target=[daily], alert_key=None)
    sensor = build_input_sensor(job_at(tmp_path), lambda: wanted, partitioned=True, options=options)
    assert sensor.name == "taxi_inputs"

    def tick() -> dg.SensorResult:
        result = sensor(dg.build_sensor_context())
        assert isinstance(result, dg.SensorResult)
        return result

    assert "no epoch yet" in str(tick().skip_reason)
    read.publish(read.commit(kafka(p0=4, p1=0)))
    skipped = tick().skip_reason
    assert skipped is not None
    assert skipped.skip_message == (
        "0 of 3 keys have all their inputs; waiting for kafka:rides:1:0: source 'rides' has not read it by epoch 0 and 1 more"
    )
    read.publish(read.commit(kafka(p0=4, p1=1)))
    requested = tick().run_requests or []
    assert [(each.run_key, each.partition_key, each.tags["tidemark/epoch"]) for each in requested] == [("monday", "monday", "1")]


def test_the_check_names_what_is_missing(tmp_path: Path) -> None:
    read = Read(JobStore.open(str(tmp_path / "store")))
    read.publish(read.commit(kafka(p0=4)))
    checks = (InputsVisible(["kafka:rides:0:3"], name="first"), InputsVisible(lambda: ["kafka:rides:0:4", "epoch:7"], name="second"))
    made = build_asset_checks(job_at(tmp_path), checks)
    definitions = dg.Definitions(assets=[dg.AssetSpec(["taxi", "rides"])], asset_checks=made)
    done = definitions.resolve_implicit_global_asset_job_def().execute_in_process()
    found = {each.check_name: (each.passed, each.description) for each in done.get_asset_check_evaluations()}
    assert found == {
        "first": (True, "all 1 inputs are visible"),
        "second": (
            False,
            "kafka:rides:0:4: source 'rides' has not read it by epoch 0; epoch:7: the newest published epoch is 0",
        ),
    }
