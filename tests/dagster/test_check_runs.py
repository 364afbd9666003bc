"""The check sensor has the checks of jobs that run on executed: at its first tick, and when their assets were materialized since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.fake_engine import FakeTidemark, fake_resource, make_job
from tests.dagster.instances import instance_in_memory
from tidemark.assets import Conservation, LateRatio, build_asset_checks, build_output_asset_specs, streaming_assets
from tidemark.clock import SYSTEM_CLOCK
from tidemark.operations import control_jobs
from tidemark.resources.run_events import StreamingEvent
from tidemark.sensors import build_check_sensor
from tidemark.testing.manual_clock import ManualClock

pytestmark = pytest.mark.dagster

MINUTE = 60_000


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


class Rig:
    """A code location with a job that runs on and one that is drained, and the check sensor, ticked as Dagster's daemon does."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, **given: object) -> None:
        self.instance = instance
        # What Dagster keeps has the system's time.
        self.clock = ManualClock(SYSTEM_CLOCK.now_ms())
        job, drained = (make_job(folder / name, name, store=str(folder / "store")) for name in ("fares", "drained"))

        @streaming_assets(job=drained, checks=[Conservation()])
        def drain(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
            yield from tidemark.run(context=context)

        self.sensor = build_check_sensor(str(folder / "store"), clock=self.clock, **given)  # type: ignore[arg-type]
        checks = build_asset_checks(job, [Conservation(compare_tables=False), LateRatio("hourly")])
        defs = dg.Definitions(
            assets=[*build_output_asset_specs(job), drain],
            asset_checks=checks,
            sensors=[self.sensor],
            resources={"tidemark": fake_resource(folder / "store")},
        )
        self.defs = dg.Definitions.merge(defs, control_jobs(job))
        self.repository = self.defs.get_repository_def()

    def tick(self, *, minutes: int = 0) -> list[set[str]]:
        """Let time pass and tick; run what is requested, and return the checks of each run."""
        self.clock.advance(minutes * MINUTE)
        tick = self.sensor.evaluate_tick(dg.build_sensor_context(instance=self.instance, repository_def=self.repository))
        made = []
        for request in tick.run_requests or ():
            assert request.job_name is not None
            job = self.repository.get_job(request.job_name)
            subset = job.get_subset(asset_selection=set(), asset_check_selection=set(request.asset_check_keys or ()))
            found = subset.execute_in_process(instance=self.instance, tags=request.tags).get_asset_check_evaluations()
            assert all(each.passed for each in found), found
            made.append({each.asset_check_key.to_user_string() for each in found})
        return made


def test_checks_that_nobody_executed_are_at_the_first_tick_and_then_when_they_are_out_of_date(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    rig = Rig(tmp_path, instance)
    both = {"fares/hourly:conservation", "fares/hourly:late_ratio"}
    assert rig.tick() == [both], "neither those of runs, nor the job's health"
    assert rig.tick(minutes=180) == [], "nothing has come since"
    instance.report_runless_asset_event(dg.AssetMaterialization(["fares", "hourly"]))
    assert rig.tick() == [both]


def test_what_was_executed_before_there_was_anything_to_look_at_is_executed_at_once(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    instance.event_log_storage.wipe()
    rig = Rig(tmp_path, instance)
    assert len(rig.tick()) == 1
    instance.report_runless_asset_event(dg.AssetMaterialization(["fares", "hourly"]))
    assert len(rig.tick()) == 1
    instance.report_runless_asset_event(dg.AssetMaterialization(["fares", "hourly"]))
    assert rig.tick() == []


def test_a_check_whose_run_came_to_no_result_waits_as_others_do(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    instance.event_log_storage.wipe()
    rig = Rig(tmp_path, instance, recheck="1 hour")
    instance.report_runless_asset_event(dg.AssetMaterialization(["fares", "hourly"]))

    def failing(name: str) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=dg.AssetKey(["fares", "hourly"]), name=name)
        def check() -> dg.AssetCheckResult:
            raise RuntimeError("no result")

        return check

    checks = dg.Definitions(asset_checks=[failing("conservation"), failing("late_ratio")])
    job = checks.resolve_implicit_global_asset_job_def()
    assert not job.execute_in_process(instance=instance, raise_on_error=False).success
    assert rig.tick() == []
    instance.report_runless_asset_event(dg.AssetMaterialization(["fares", "hourly"]))
    assert rig.tick() == []
    assert len(rig.tick(minutes=61)) == 1


def test_not_more_often_than_once_in_so_long_and_not_at_all_where_nobody_wants_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    instance.event_log_storage.wipe()
    rig = Rig(tmp_path, instance, recheck="1 hour")
    instance.report_runless_asset_event(dg.AssetMaterialization(["fares", "hourly"]))
    assert len(rig.tick()) == 1
    instance.report_runless_asset_event(dg.AssetMaterialization(["fares", "hourly"]))
    assert rig.tick(minutes=30) == []
    assert len(rig.tick(minutes=31)) == 1
    instance.event_log_storage.wipe()
    assert Rig(tmp_path, instance, recheck=None).tick() == []
