"""A job whose driver is dead is red in Dagster: its outputs' check ``job_runs`` fails at the next tick, and passes when it runs again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from tests.control.worlds import World
from tests.dagster.control_world import launchers, make_world
from tests.dagster.fake_engine import make_job
from tests.dagster.instances import temporary_instance
from tidemark.assets import Conservation, build_asset_checks, build_output_asset_specs
from tidemark.assets.definitions.job_health import health_verdict
from tidemark.assets.definitions.reconcile_sensors import find_reconcile_sensor
from tidemark.assets.definitions.start_operations import start_operation
from tidemark.control import JobSpec, JobView
from tidemark.control.model.spec import AlertThresholds
from tidemark.errors import SourceError
from tidemark.operations import build_operations, control_jobs
from tidemark.sensors import build_check_sensor, build_job_health_sensor, build_reconcile_sensor
from tidemark.state.log.progress import SourceProgress
from tidemark.state.status.status import read_status, write_status

pytestmark = pytest.mark.dagster

OUTPUTS = ("hourly", "late", "rejected", "malformed")


@pytest.fixture(scope="module")
def shared_instance() -> Iterator[dg.DagsterInstance]:
    with temporary_instance() as found:
        yield found


@dataclass
class Rig:
    """A code location with the job of a world, whose sensors tick as Dagster's daemon ticks them."""

    world: World
    instance: dg.DagsterInstance
    defs: dg.Definitions
    sensors: dict[str, dg.SensorDefinition]
    events: list[dg.AssetCheckEvaluation] = field(default_factory=list)

    def tick(self, *names: str) -> list[dg.AssetCheckEvaluation]:
        """Let sensors tick, and return what they reported."""
        reported = []
        for name in names:
            context = dg.build_sensor_context(instance=self.instance, repository_def=self.defs.get_repository_def())
            result = self.sensors[name](context)
            assert isinstance(result, dg.SensorResult)
            for event in result.asset_events or ():
                assert isinstance(event, dg.AssetCheckEvaluation)
                self.instance.report_runless_asset_event(event)
                reported.append(event)
        self.events += reported
        return reported

    def key(self, output: str = "hourly") -> dg.AssetCheckKey:
        return dg.AssetCheckKey(dg.AssetKey(["fares", output]), "job_runs")

    def shown(self, output: str = "hourly") -> dg.AssetCheckEvaluation | None:
        """Return what Dagster's pages show."""
        found = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([self.key(output)])
        return found[self.key(output)].evaluation if found else None

    def passes(self) -> bool:
        shown = [self.shown(output) for output in OUTPUTS]
        verdicts = {evaluation.passed for evaluation in shown if evaluation is not None}
        assert len(verdicts) == 1, "the same is said of each output"
        assert None not in shown
        return verdicts.pop()


@pytest.fixture
def rig(tmp_path: Path, shared_instance: dg.DagsterInstance) -> Rig:
    shared_instance.wipe_assets(list(shared_instance.get_asset_keys()))
    shared_instance.event_log_storage.wipe()
    world = make_world(tmp_path)
    job = make_job(tmp_path, "fares", store=world.store.uri)
    given = {"launchers": lambda: launchers(world), "clock": world.clock}
    sensors = {
        "reconcile": build_reconcile_sensor(world.store.uri, **given),  # type: ignore[arg-type]
        "health": build_job_health_sensor(world.store.uri, alert_key=None, **given),  # type: ignore[arg-type]
    }
    defs = dg.Definitions.merge(
        dg.Definitions(assets=build_output_asset_specs(job), sensors=list(sensors.values())),
        control_jobs(job, **given),  # type: ignore[arg-type]
    )
    return Rig(world, shared_instance, defs, sensors)


def running(rig: Rig) -> None:
    """Submit the job and let it run."""
    rig.world.submit()
    for _ in range(3):
        rig.tick("reconcile")
        rig.world.tick()


def test_a_first_tick_evaluates_the_check_of_a_job_that_was_never_started(rig: Rig) -> None:
    assert {event.asset_key.path[-1] for event in rig.tick("health")} == set(OUTPUTS)
    assert rig.passes()
    assert rig.tick("health", "reconcile", "health") == [], "nothing is said twice"


@pytest.mark.parametrize("watcher", ["health", "reconcile"])
def test_a_killed_driver_turns_the_outputs_red_within_a_tick_and_green_when_it_runs(rig: Rig, watcher: str) -> None:
    running(rig)
    rig.tick(watcher)
    assert rig.passes()
    pid = rig.world.driver().pid
    rig.world.driver().end(-9)
    rig.tick(watcher)
    assert not rig.passes()
    shown = rig.shown()
    assert shown is not None
    assert shown.severity == dg.AssetCheckSeverity.ERROR
    assert f"process {pid} on host host-a is dead" in str(shown.description)
    assert "Fix: " in str(shown.description)
    assert f"tidemark supervise --store {rig.world.store.uri}" in str(shown.metadata["tidemark/way_out"].value)
    # It is started again, and is not well before it runs.
    rig.tick("reconcile", watcher)
    assert not rig.passes()
    for _ in range(3):
        rig.world.tick()
        rig.tick("reconcile", watcher)
    assert rig.passes()
    assert rig.tick(watcher) == []


def test_a_driver_that_nobody_restarts_stays_red_and_says_what_to_do(rig: Rig) -> None:
    running(rig)
    rig.world.driver().end(-9)
    rig.tick("health")
    rig.world.tick(600)
    assert len(rig.tick("health")) == len(OUTPUTS), "it is another trouble by now: nobody acts on it"
    shown = rig.shown()
    assert shown is not None
    assert not shown.passed
    assert shown.metadata["tidemark/health"].value == "unwatched"
    assert "build_reconcile_sensor" in str(shown.description)
    assert "fares_start" in str(shown.description)
    assert rig.tick("health") == []


def switched(location: str, status: str) -> SimpleNamespace:
    """Return what Dagster has stored of a sensor that was turned on or off."""
    where, value = SimpleNamespace(location_name=location), SimpleNamespace(value=status)
    return SimpleNamespace(instigator_name="tidemark_reconcile", status=value, repository_selector=where)


def way_out(rig: Rig) -> str:
    shown = rig.shown()
    assert shown is not None
    return str(shown.metadata["tidemark/way_out"].value)


@pytest.mark.parametrize("watcher", ["health", "reconcile"])
def test_a_fix_does_not_ask_to_turn_on_a_sensor_that_is_on(rig: Rig, watcher: str) -> None:
    running(rig)
    rig.world.driver().end(-9)
    rig.tick(watcher)
    assert way_out(rig).startswith("a reconciler restarts it: `tidemark_reconcile`, the sensor of build_reconcile_sensor, is on;")
    assert "turn on" not in way_out(rig)


@pytest.mark.parametrize(
    ("default", "switches", "expected"),
    [
        ("STOPPED", {}, "turn on `tidemark_reconcile`, the sensor of build_reconcile_sensor, or"),
        ("STOPPED", {"here": "RUNNING"}, "is on;"),
        ("RUNNING", {"here": "STOPPED"}, "turn on `tidemark_reconcile`"),
        ("RUNNING", {"here": "DECLARED_IN_CODE"}, "is on;"),
        ("STOPPED", {"here": "DECLARED_IN_CODE"}, "turn on `tidemark_reconcile`"),
        ("STOPPED", {"elsewhere": "RUNNING"}, "turn on `tidemark_reconcile`"),
        ("RUNNING", {"elsewhere": "STOPPED"}, "is on;"),
    ],
)
def test_a_fix_follows_the_switch_of_the_sensor(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, default: str, switches: Mapping[str, str], expected: str
) -> None:
    states = [switched(where, status) for where, status in switches.items()]
    monkeypatch.setattr(dg.DagsterInstance, "all_instigator_state", lambda _: states)
    store, status = rig.world.store.uri, dg.DefaultSensorStatus(default)
    repository = dg.Definitions(sensors=[build_reconcile_sensor(store, jobs=["fares"], default_status=status)]).get_repository_def()
    found = find_reconcile_sensor(rig.instance, repository, store, "fares", location="here")
    assert (
        expected
        in health_verdict(JobView("fares", 0, "running", "silent", spec=JobSpec("fares", "fares:job")), store, lambda: found).description
    )
    assert find_reconcile_sensor(rig.instance, repository, store, "rides", location="here") is None, "a sensor of other jobs"
    assert find_reconcile_sensor(rig.instance, repository, "other", "fares", location="here") is None, "a sensor of another store"


def test_a_sensor_is_found_however_its_store_is_written(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my jobs"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("JOBS_HERE", f"{folder}/")
    monkeypatch.delenv("JOBS_UNSET", raising=False)
    same: list[str | dg.EnvVar] = [str(folder), f"{folder}/", f"file://{folder}", str(tmp_path / "link"), dg.EnvVar("JOBS_HERE")]
    others: list[str | dg.EnvVar] = [str(tmp_path), f"s3:/{folder}", "nowhere://x", dg.EnvVar("JOBS_UNSET")]
    for written in same:
        repository = dg.Definitions(sensors=[build_reconcile_sensor(written)]).get_repository_def()
        found = [find_reconcile_sensor(rig.instance, repository, store, "fares", location="here") for store in (*same, *others)]
        assert [each is not None for each in found] == [True] * len(same) + [False] * len(others), written
    azure = ["az://lake/jobs", "abfss://lake@ours.dfs.core.windows.net/jobs/", "abfss://lake@theirs.dfs.core.windows.net/jobs"]
    repository = dg.Definitions(sensors=[build_reconcile_sensor(azure[1])]).get_repository_def()
    found = [find_reconcile_sensor(rig.instance, repository, store, "fares", location="here") for store in azure]
    assert [each is not None for each in found] == [True, True, False]


def lag(rig: Rig, seconds: int) -> None:
    """Let the job's newest epoch say how far its watermark is behind."""
    known = read_status(rig.world.store, "fares")
    assert known is not None
    assert known.last is not None
    now = rig.world.clock.now_ms()
    trips = SourceProgress(10, 10, 0, now - seconds * 1000, seconds * 1000, "p0")
    write_status(rig.world.store, replace(known, heartbeat_at=now, last=replace(known.last, sources={"trips": trips})))


@pytest.mark.parametrize("watcher", ["health", "reconcile"])
def test_a_job_behind_its_limit_is_red_until_it_is_well_below_it(rig: Rig, watcher: str) -> None:
    running(rig)
    rig.world.want(alerts=AlertThresholds(lag_error_ms=600_000))
    lag(rig, 300)
    rig.tick(watcher)
    for seconds, reports, passed in ((599, 0, True), (600, 4, False), (599, 0, False), (479, 4, True), (599, 0, True)):
        lag(rig, seconds)
        assert len(rig.tick(watcher)) == reports, seconds
        assert rig.passes() is passed, seconds
    red = rig.events[-5]
    assert (red.passed, red.severity, red.metadata["tidemark/health"].value) == (False, dg.AssetCheckSeverity.ERROR, "lagging")
    assert "source 'trips' lags: its watermark is" in str(red.description)
    assert "`tidemark status fares" in str(red.description)


@pytest.mark.parametrize("watcher", ["health", "reconcile"])
def test_a_job_that_was_dead_and_runs_near_its_limit_is_green(rig: Rig, watcher: str) -> None:
    running(rig)
    rig.world.want(alerts=AlertThresholds(lag_error_ms=600_000))
    rig.world.driver().end(-9)
    rig.tick(watcher)
    assert not rig.passes()
    # Another reconciler starts it, so that the sensor sees it again only now.
    rig.world.run(rig.world.reconciler(), 20)
    lag(rig, 599)
    rig.tick(watcher)
    assert rig.passes(), "it was red for its dead driver, and not for a lag"


def test_a_driver_that_hangs_while_it_is_stopped_is_not_green_for_ever() -> None:
    view = JobView("fares", 1_000_000, "draining", "silent", spec=JobSpec("fares", "fares:job"), driver_lifecycle="draining")
    soon, late = (health_verdict(replace(view, heartbeat_at=at), "jobs", lambda: None) for at in (900_000, 800_000))
    assert (soon.health, soon.passed, soon.settled) == ("stopping", True, False)
    assert (late.health, late.passed, late.settled) == ("silent", False, True)
    assert "it was asked to end, and its driver sends no heartbeat" in late.description


def test_a_driver_whose_status_is_damaged_is_red_and_is_not_to_be_started(rig: Rig) -> None:
    running(rig)
    rig.tick("health")
    rig.world.store.put("fares/status.json", b"{oops")
    rig.tick("health")
    shown = rig.shown()
    assert shown is not None
    assert (shown.passed, shown.metadata["tidemark/health"].value) == (False, "damaged")
    assert "status.json" in str(shown.description)
    assert "tidemark start" not in way_out(rig)
    assert f"`tidemark restart fares --store {rig.world.store.uri}`" in way_out(rig)


def test_a_fix_names_the_operation_that_the_code_location_has(rig: Rig) -> None:
    job, store = make_job(Path(rig.world.store.location.path), "fares", store=rig.world.store.uri), rig.world.store.uri

    def named(defs: dg.Definitions, job: str) -> str:
        return start_operation(defs.get_repository_def(), job)

    assert named(rig.defs, "fares") == "launch `fares_start`"
    assert named(build_operations(job), "fares") == "launch `fares_operate` with `do: {start: {}}`"
    # Those of a whole store ask which job.
    assert named(build_operations(store=store), "rides") == "launch `tidemark_operate` with `job: rides` and `do: {start: {}}`"
    assert named(control_jobs(store=store), "rides") == "launch `tidemark_start` with `job: rides`"
    assert start_operation(dg.Definitions(assets=build_output_asset_specs(job)).get_repository_def(), "fares") == ""
    assert start_operation(None, "fares") == ""


def test_a_description_says_that_the_job_is_continuous(rig: Rig) -> None:
    texts = [spec.description for spec in rig.defs.resolve_all_asset_specs() if len(spec.key.path) == 2]
    assert len(texts) == len(OUTPUTS)
    assert all("runs until it is stopped. Whether it runs now is in the check `job_runs`." in str(text) for text in texts)


def test_a_job_that_failed_for_good_is_red_with_its_error(rig: Rig) -> None:
    running(rig)
    rig.world.driver().doomed = SourceError("the folder is gone", fix="bring it back")
    for _ in range(3):
        rig.world.tick()
        rig.tick("reconcile", "health")
    shown = rig.shown()
    assert shown is not None
    assert not shown.passed
    assert shown.metadata["tidemark/health"].value == "failed"
    assert shown.metadata["tidemark/error_code"].value == SourceError.code
    assert "the folder is gone" in str(shown.description)
    assert "`tidemark start fares" in str(shown.metadata["tidemark/way_out"].value)


@pytest.mark.parametrize("watcher", ["health", "reconcile"])
def test_a_damaged_spec_is_red(rig: Rig, watcher: str) -> None:
    running(rig)
    rig.world.store.put("fares/control/specs/00000002.json", b"{oops")
    rig.tick(watcher)
    shown = rig.shown()
    assert shown is not None
    assert not shown.passed
    assert "00000002.json" in str(shown.description)


def test_a_job_that_was_stopped_as_asked_is_green(rig: Rig) -> None:
    running(rig)
    rig.world.want(wanted="suspended")
    for _ in range(4):
        rig.tick("reconcile", "health")
        rig.world.tick()
    assert rig.passes()
    assert all(event.passed for event in rig.events)


def test_what_a_materialization_made_out_of_date_is_said_again(rig: Rig) -> None:
    running(rig)
    rig.world.driver().end(-9)
    rig.tick("health")
    rig.instance.report_runless_asset_event(dg.AssetMaterialization(rig.key().asset_key))
    (event,) = rig.tick("health")
    assert (event.asset_key, event.passed) == (rig.key().asset_key, False)


def test_executed_by_hand_it_looks_by_itself(rig: Rig) -> None:
    running(rig)
    job = rig.defs.resolve_implicit_global_asset_job_def()
    assert {found.passed for found in job.execute_in_process(instance=rig.instance).get_asset_check_evaluations()} == {True}
    rig.world.driver().end(-9)
    found = job.execute_in_process(instance=rig.instance).get_asset_check_evaluations()
    assert {(each.check_name, each.passed) for each in found} == {("job_runs", False)}
    assert rig.tick("health") == [], "what was executed by hand is not reported again"


def test_it_is_alerted_by_its_own_rule_and_not_as_a_failed_check_too(rig: Rig) -> None:
    running(rig)
    rig.world.driver().end(-9)
    rig.tick("health")
    sensor = build_check_sensor(rig.world.store.uri)
    result = sensor(dg.build_sensor_context(instance=rig.instance, repository_def=rig.defs.get_repository_def()))
    assert isinstance(result, dg.SensorResult)
    assert str(result.skip_reason.skip_message if result.skip_reason else "").startswith("0 checks, 0 new verdicts")


def test_operations_alone_load_and_the_check_can_be_left_out(tmp_path: Path) -> None:
    job = make_job(tmp_path, "fares", store=str(tmp_path))
    dg.Definitions.validate_loadable(control_jobs(job))
    assert not control_jobs(job, health_check=False).asset_checks


def test_sensors_that_watch_run_as_soon_as_they_are_deployed(tmp_path: Path) -> None:
    running_, stopped = dg.DefaultSensorStatus.RUNNING, dg.DefaultSensorStatus.STOPPED
    for build in (build_reconcile_sensor, build_job_health_sensor, build_check_sensor):
        assert build(str(tmp_path)).default_status == running_, build
        assert build(str(tmp_path), default_status=stopped).default_status == stopped, build


def test_checks_on_their_own_are_a_list(tmp_path: Path) -> None:
    job = make_job(tmp_path, "fares", store=str(tmp_path))
    defs = dg.Definitions(assets=build_output_asset_specs(job), asset_checks=build_asset_checks(job, [Conservation()]))
    dg.Definitions.validate_loadable(defs)
    assert build_asset_checks(job, []) == []
