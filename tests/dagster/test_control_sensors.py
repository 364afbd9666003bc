"""Sensors that look after jobs: drivers are started and restarted, people are told, checks that fail are passed on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.autoscaler.scaled_job import ScaledJob
from tests.control.worlds import World
from tests.dagster.control_world import launchers, make_world
from tests.dagster.fake_engine import make_job
from tests.dagster.instances import instance_in_memory
from tidemark.assets import build_output_asset_specs
from tidemark.control.alerts.engine.alert_checks import CheckVerdict, failed_checks, report_check, verdict_files
from tidemark.control.model.spec import RestartPolicy
from tidemark.errors import AlertError, DefinitionError, SourceError
from tidemark.resources import Alert, AlertResource
from tidemark.sensors import build_check_sensor, build_job_health_sensor, build_reconcile_sensor, reconcile
from tidemark.sensors.health.check_verdicts import verdict_name
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.dagster

SENT: list[Alert] = []
INSTANCES: list[dg.DagsterInstance] = []
"""The one of these tests: without one, each context makes its own, with all its tables."""


class RecordingAlert(AlertResource):
    fails: bool = False

    def send(self, alert: Alert) -> None:
        if self.fails:
            raise AlertError("no line", fix="mend it")
        SENT.append(alert)


@pytest.fixture(scope="module", autouse=True)
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        INSTANCES.append(found)
        yield found


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def tick(sensor: dg.SensorDefinition, *, fails: bool = False) -> str:
    result = sensor(dg.build_sensor_context(instance=INSTANCES[-1], resources={"alerts": RecordingAlert(fails=fails)}))
    assert isinstance(result, dg.SensorResult)
    assert not result.run_requests
    return str(result.skip_reason.skip_message if result.skip_reason is not None else "")


def reconcile_sensor(world: World, **given: object) -> dg.SensorDefinition:
    return build_reconcile_sensor(world.store.uri, launchers=lambda: launchers(world), clock=world.clock, **given)  # type: ignore[arg-type]


def health_sensor(world: World, **given: object) -> dg.SensorDefinition:
    return build_job_health_sensor(world.store.uri, launchers=lambda: launchers(world), clock=world.clock, **given)  # type: ignore[arg-type]


def test_ticks_scale_a_job(tmp_path: Path) -> None:
    job = ScaledJob(store=JobStore.open(str(tmp_path / "store")))
    sensor = reconcile_sensor(job.world)
    said = []
    for _ in range(9):
        job.minute(look=False)
        said.append(tick(sensor))
    assert [text for text in said if "autoscaler" in text] == [
        "1 jobs observed, 0 acted on; fares: autoscaler scaled parallelism 1 -> 4, intake 1 -> 2.8"
    ]
    assert job.spec.spec.parallelism == 4


def test_ticks_keep_a_job_running(world: World) -> None:
    sensor = reconcile_sensor(world)
    assert tick(sensor) == "0 jobs observed, 0 acted on"
    world.submit(restart=RestartPolicy(kind="fixed", delay_ms=1_000))
    assert "fares: started attempt 1 (a test (ada))" in tick(sensor)
    world.tick()
    assert "fares: running" in tick(sensor)
    assert tick(sensor) == "1 jobs observed, 0 acted on"
    world.driver().end(-9)
    assert "failing" in tick(sensor)
    world.tick()
    assert "started attempt 2" in tick(sensor)
    world.tick()
    assert tick(sensor) == "1 jobs observed, 1 acted on; fares: running"
    world.want(wanted="suspended")
    assert "asked to stop (finish)" in tick(sensor)
    world.tick()
    assert "suspended" in tick(sensor)
    assert world.alive() == []


def test_two_code_locations_start_a_job_once(world: World) -> None:
    world.submit()
    sensors = [reconcile_sensor(world), reconcile_sensor(world)]
    for _ in range(4):
        for sensor in sensors:
            tick(sensor)
        world.tick()
    assert world.launched == [("fares", 1)]


def test_a_sensor_may_look_after_some_jobs_only(world: World) -> None:
    world.submit("fares")
    world.submit("rides")
    assert "1 jobs observed" in tick(reconcile_sensor(world, jobs=["rides"]))
    assert [job for job, _ in world.launched] == ["rides"]


def test_one_jobs_trouble_is_said_and_does_not_stop_the_tick(world: World) -> None:
    world.submit("fares")
    world.submit("rides")
    world.store.put("fares/control/specs/00000002.json", b"{")
    said = tick(reconcile_sensor(world))
    assert "rides: started" in said
    assert "fares: [" in said


def test_a_tick_ends_before_dagsters_time_is_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        world.submit(f"job-{number}")
    monkeypatch.setattr(reconcile, "PASS_SECONDS", 0.0)
    sensor = reconcile_sensor(world)
    monkeypatch.setattr(reconcile.threading.Timer, "start", lambda timer: timer.function())  # type: ignore[attr-defined]
    assert tick(sensor) == "0 jobs observed, 0 acted on; time limit reached; the next tick observes all jobs again"
    assert world.launched == []


def run(world: World, ticks: int, *sensors: dg.SensorDefinition, every: int = 40) -> list[str]:
    """Let the sensors tick so many times, with drivers that work in between; returns what they said last."""
    said = []
    for _ in range(ticks):
        said = [tick(sensor) for sensor in sensors]
        world.tick(every)
    return said


def test_a_job_that_fails_for_good_is_told_once_and_again_when_it_runs(world: World) -> None:
    sensors = (reconcile_sensor(world), health_sensor(world))
    world.submit()
    run(world, 3, *sensors)
    assert SENT == []
    world.driver().doomed = SourceError("the folder is gone", fix="bring it back")
    said = run(world, 4, *sensors)
    assert "1 jobs, 1 unhealthy; fares is failed (failed)" in said[1]
    assert "the folder is gone" in said[1]
    (alert,) = SENT
    assert (alert.level, alert.job) == ("error", "fares")
    assert "will not be restarted until requested" in alert.text
    world.want(restarts=1)
    # People hear of a job every five minutes at most, unless it gets worse.
    run(world, 5, *sensors, every=100)
    assert [alert.level for alert in SENT] == ["error", "resolved"]


def test_a_restart_loop_and_a_silent_driver_are_told(world: World) -> None:
    sensors = (reconcile_sensor(world), health_sensor(world))
    world.submit(restart=RestartPolicy(kind="fixed", delay_ms=1_000, attempts=20, same_epoch_failures=0))
    for _ in range(3):
        run(world, 3, *sensors, every=10)
        world.driver().end(-9)
    run(world, 4, *sensors)
    assert any("failed 3 times in 10m" in alert.text for alert in SENT)
    SENT.clear()
    world.driver().frozen = True
    # Nobody reconciles, so nobody kills it.
    run(world, 4, sensors[1], every=100)
    assert any("sends no heartbeat" in alert.text for alert in SENT)


def test_a_receiver_that_fails_is_asked_again(world: World) -> None:
    sensor = health_sensor(world)
    world.submit()
    for _ in range(4):
        tick(sensor, fails=True)
        world.clock.advance(50_000)
    assert SENT == []
    assert "1 alerts wait for their receiver" in tick(sensor, fails=True)
    world.clock.advance(600_000)
    tick(sensor)
    assert ["has no active reconciler" in alert.text for alert in SENT] == [True]


def test_health_says_what_is_broken_and_sends_nothing_without_a_receiver(world: World) -> None:
    sensor = health_sensor(world, alert_key=None, broken={"rides.job:job": "no module"})
    world.submit()
    world.clock.advance(600_000)
    result = sensor(dg.build_sensor_context(instance=INSTANCES[-1]))
    assert isinstance(result, dg.SensorResult)
    assert "fares is unwatched" in str(result.skip_reason)
    assert "the code of rides.job:job cannot be loaded: no module" in str(result.skip_reason)
    assert not world.store.list("_alerts")


def test_a_store_that_is_not_there_fails_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_TEST_UNSET", raising=False)
    with pytest.raises(DefinitionError, match="TIDEMARK_TEST_UNSET"):
        tick(build_reconcile_sensor(dg.EnvVar("TIDEMARK_TEST_UNSET")))
    with pytest.raises(DefinitionError, match="nowhere"):
        tick(build_reconcile_sensor("nowhere://x"))


def test_failed_checks_are_passed_on_and_taken_back(world: World, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    job = make_job(tmp_path, "fares", store=world.store.uri)
    specs = build_output_asset_specs(job)
    hourly = next(spec for spec in specs if spec.metadata["tidemark/output"] == "hourly")
    outcome = {"passed": False}

    @dg.asset_check(asset=hourly.key, name="plausible")
    def plausible() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=outcome["passed"], description="3 fares are below zero", severity=dg.AssetCheckSeverity.WARN)

    @dg.asset_check(asset="other")
    def elsewhere() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    sensor = build_check_sensor(world.store.uri, recheck=None)
    defs = dg.Definitions(assets=[*specs, dg.AssetSpec("other")], asset_checks=[plausible, elsewhere], sensors=[sensor])
    repository = defs.get_repository_def()
    checks = defs.resolve_implicit_global_asset_job_def()

    def look(cursor: str | None) -> tuple[str, str | None]:
        result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=repository))
        assert isinstance(result, dg.SensorResult)
        return str(result.skip_reason.skip_message if result.skip_reason is not None else ""), result.cursor

    def failing() -> list[tuple[str, str, str]]:
        found = failed_checks(world.store, verdict_files(world.store).get("fares", ()))
        return [(check.check, check.severity, check.text) for check in found]

    said, cursor = look(None)
    assert said == "1 checks, 0 new verdicts, 0 of them failures"
    others = build_check_sensor(world.store.uri, jobs=["rides"], recheck=None)
    of_others = others(dg.build_sensor_context(instance=instance, repository_def=repository))
    assert "0 checks" in str(of_others)
    checks.execute_in_process(instance=instance)
    said, cursor = look(cursor)
    assert said == "1 checks, 1 new verdicts, 1 of them failures"
    assert failing() == [("hourly.plausible", "warn", "3 fares are below zero")]
    assert look(cursor) == ("1 checks, 0 new verdicts, 0 of them failures", cursor)
    # It passes, fails and passes between two ticks: all of it is passed on.
    for passed in (True, False, True):
        outcome["passed"] = passed
        checks.execute_in_process(instance=instance)
    said, cursor = look(cursor)
    assert said == "1 checks, 3 new verdicts, 1 of them failures"
    assert verdict_files(world.store)["fares"][-1].passed
    # One that is reported from outside counts as well.
    instance.report_runless_asset_event(dg.AssetCheckEvaluation(asset_key=hourly.key, check_name="plausible", passed=False, metadata={}))
    assert look(cursor)[0] == "1 checks, 1 new verdicts, 1 of them failures"
    assert look("nonsense")[0] == "1 checks, 1 new verdicts, 1 of them failures"


def test_of_executions_that_overtake_each_other_none_is_missed(world: World, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    job = make_job(tmp_path, "overtaken", store=world.store.uri)
    specs = build_output_asset_specs(job)
    hourly = next(spec for spec in specs if spec.metadata["tidemark/output"] == "hourly")

    @dg.asset_check(asset=hourly.key, name="plausible")
    def plausible() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    sensor = build_check_sensor(world.store.uri, recheck=None)
    defs = dg.Definitions(assets=specs, asset_checks=[plausible], sensors=[sensor])
    repository, checks = defs.get_repository_def(), defs.resolve_implicit_global_asset_job_def()
    cursors: list[str | None] = [None]

    def look() -> list[tuple[bool, int]]:
        """Tick, and return what was passed on, all of it as files."""
        for file in verdict_files(world.store).get("overtaken", ()):
            world.store.delete([file.path])
        # A verdict that passes is kept only where one that failed waits to be taken up.
        report_check(world.store, CheckVerdict("overtaken", "hourly.plausible", passed=False, at=0))
        result = sensor(dg.build_sensor_context(instance=instance, cursor=cursors[-1], repository_def=repository))
        assert isinstance(result, dg.SensorResult)
        cursors.append(result.cursor)
        return [(file.passed, file.at) for file in verdict_files(world.store)["overtaken"] if file.at]

    def begun() -> str:
        return instance.create_run_for_job(checks).run_id

    def ended(run_id: str, at: int, *, passed: bool) -> None:
        said = dg.AssetCheckEvaluation(asset_key=hourly.key, check_name="plausible", passed=passed, metadata={})
        event = dg.DagsterEvent(dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, job_name=checks.name, event_specific_data=said)
        entry = dg.EventLogEntry(None, 10, "", run_id, at / 1000, None, None, event)  # type: ignore[no-untyped-call]  # Dagster's
        instance.store_event(entry)

    slow, quick, slower = begun(), begun(), begun()
    assert look() == []
    ended(quick, 2_000, passed=True)
    assert look() == [(True, 2_000)]
    assert look() == []
    ended(slow, 3_000, passed=False)
    assert look() == [(False, 3_000)], "though it began before one that was told"
    ended(begun(), 5_000, passed=True)
    assert look() == [(True, 5_000)]
    ended(slower, 6_000, passed=False)
    assert look() == [(False, 6_000)]
    assert look() == []
    assert isinstance(json.loads(cursors[-1] or "")["checks"].popitem()[1], int), "nothing is under way: as a release before wrote it"


def test_a_failed_check_is_alerted_and_resolved(world: World, tmp_path: Path) -> None:
    sensors = (reconcile_sensor(world), health_sensor(world))
    world.submit()
    run(world, 2, *sensors)
    root = JobStore.open(str(tmp_path / "store"))
    report_check(root, CheckVerdict("fares", "hourly.plausible", passed=False, at=world.clock.now_ms(), text="3 are below zero"))
    run(world, 2, *sensors)
    assert [alert.level for alert in SENT] == ["error"]
    assert "check 'hourly.plausible' failed" in SENT[0].text
    report_check(root, CheckVerdict("fares", "hourly.plausible", passed=True, at=world.clock.now_ms()))
    run(world, 4, *sensors, every=150)
    assert [alert.level for alert in SENT] == ["error", "resolved"]


def test_long_names_of_checks_stay_apart() -> None:
    one, other = verdict_name("hourly", "x" * 120), verdict_name("hourly", "x" * 121)
    assert one != other
    assert max(len(one), len(other)) <= 100
