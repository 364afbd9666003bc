"""Many jobs in one code location: those that load are there, whatever becomes of the others."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.dagster.instances import instance_in_memory
from tidemark.assets import Conservation, StreamData, TidemarkTranslator, UniquePanes
from tidemark.control.model.spec import JobSpec
from tidemark.errors import DefinitionError
from tidemark.operations import build_continuous_definitions, build_job_definitions
from tidemark.resources import LogAlert

pytestmark = pytest.mark.dagster

JOB = """
    import tidemark as tm

    files = tm.files({place!r}, format="json", schema="zone INT, at TIMESTAMP")
    events = tm.source({source!r}, files, watermarks=tm.ascending(timestamp="at"))
    hourly = events.key_by("zone").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("hourly")
    job = tm.Job({name!r}, outputs={{"hourly": tm.delta(hourly, "lake/{name}")}})
"""
BROKEN = {
    "lacks_a_module": "import no_such_module_anywhere",
    "fails": "raise RuntimeError('password=hunter2 is wrong')",
    "leaves": "import sys; sys.exit(3)",
    "has_no_job": "job = 3",
    "is_wrong": "import tidemark as tm; job = tm.Job('x/y', outputs={})",
    "does_not_parse": "def job(:",
}


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules can be imported, and are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write_job(folder: Path, module: str, *, name: str = "", source: str = "events", place: str = "landing") -> str:
    (folder / f"{module}.py").write_text(textwrap.dedent(JOB.format(name=name or module, source=source, place=place)))
    return f"{module}:job"


def keys_of(defs: dg.Definitions) -> set[str]:
    return {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}


def loadable(defs: dg.Definitions) -> dg.Definitions:
    whole = dg.Definitions.merge(defs, dg.Definitions(resources={"alerts": LogAlert()}))
    dg.Definitions.validate_loadable(whole)
    return whole


def test_jobs_whose_code_fails_are_shown_beside_those_that_load(modules: Path, instance: dg.DagsterInstance) -> None:
    codes = [write_job(modules, "many_rides"), write_job(modules, "many_fares")]
    for module, code in BROKEN.items():
        (modules / f"many_{module}.py").write_text(code)
    wrong = [f"many_{module}:job" for module in BROKEN]
    defs = loadable(build_continuous_definitions(codes[0], *wrong, "nonsense", codes[1], store=str(modules / "store")))
    broken = {f"broken/many_{module}_job" for module in BROKEN} | {"broken/nonsense"}
    assert keys_of(defs) == {"events", "many_rides/hourly", "many_fares/hourly"} | broken
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    text = specs["broken/many_lacks_a_module_job"].description
    assert text is not None
    assert "no_such_module_anywhere" in text
    assert "Fix:" in text
    assert "hunter2" not in str(specs["broken/many_fails_job"])
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    evaluations = result.get_asset_check_evaluations()
    found = {check.asset_key.to_user_string(): check for check in evaluations}
    loading = {"many_rides/hourly", "many_fares/hourly"}
    assert set(found) == broken | loading
    assert {(check.check_name, check.passed) for key, check in found.items() if key in broken} == {("code_loads", False)}
    of_jobs = {(check.check_name, check.passed) for check in evaluations if check.asset_key.to_user_string() in loading}
    assert of_jobs == {("state_fits", True), ("job_runs", True)}
    assert "RuntimeError" in str(found["broken/many_fails_job"].description)


def test_the_health_sensor_names_what_is_broken(modules: Path, instance: dg.DagsterInstance) -> None:
    (modules / "many_gone.py").write_text(BROKEN["lacks_a_module"])
    defs = build_continuous_definitions("many_gone:job", store=str(modules / "store"), alert_key=None)
    sensor = defs.resolve_sensor_def("tidemark_job_health")
    result = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(result, dg.SensorResult)
    assert "the code of many_gone:job cannot be loaded" in str(result.skip_reason)
    (event,) = list(result.asset_events or ())
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert (event.asset_key.to_user_string(), event.check_name, event.passed) == ("broken/many_gone_job", "code_loads", False)
    instance.report_runless_asset_event(event)
    again = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(again, dg.SensorResult)
    assert not again.asset_events, "once it was said"


def test_a_check_passes_when_the_code_was_mended(modules: Path, instance: dg.DagsterInstance) -> None:
    (modules / "many_mended.py").write_text("import no_such_module_anywhere")
    defs = loadable(build_continuous_definitions("many_mended:job", store=str(modules / "store")))
    write_job(modules, "many_mended")
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    (check,) = result.get_asset_check_evaluations()
    assert check.passed
    assert "reload the code location" in str(check.description)


def test_jobs_that_do_not_go_together_are_told_apart(modules: Path) -> None:
    codes = [
        write_job(modules, "many_one", name="fares"),
        write_job(modules, "many_two", name="fares"),
        write_job(modules, "many_three", name="rides", place="elsewhere"),
        write_job(modules, "many_four", name="trips", source="other", place="elsewhere"),
    ]
    defs = loadable(build_continuous_definitions(*codes, codes[0], store=str(modules / "store")))
    assert keys_of(defs) == {"events", "other", "fares/hourly", "trips/hourly", "broken/many_two_job", "broken/many_three_job"}


def test_partitions_checks_specs_and_operations(modules: Path) -> None:
    codes = [write_job(modules, "many_a"), write_job(modules, "many_b")]
    hours = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
    defs = loadable(
        build_continuous_definitions(
            *codes,
            store=str(modules / "store"),
            partitions=lambda job: hours if job.name == "many_a" else None,
            checks=lambda _job: [Conservation()],
            spec=lambda code, job: JobSpec(job.name, code, trigger_ms=1_000),
        )
    )
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert (specs["many_a/hourly"].partitions_def, specs["many_b/hourly"].partitions_def) == (hours, None)
    jobs = {job.name for job in defs.resolve_all_job_defs()}
    assert jobs - {"__ASSET_JOB"} == {f"many_{job}_{work}" for job in "ab" for work in ("operate", "savepoint", "maintenance")}
    assert {schedule.name for schedule in defs.schedules or ()} == {
        f"many_{job}_{work}_schedule" for job in "ab" for work in ("savepoint", "maintenance")
    }
    store_wide = loadable(build_continuous_definitions(*codes, store=str(modules / "store"), operations="store"))
    names = {job.name for job in store_wide.resolve_all_job_defs()}
    assert names - {"__ASSET_JOB"} == {"tidemark_operate"}
    assert not store_wide.schedules
    store_wide = loadable(build_continuous_definitions(*codes, store=str(modules / "store"), operations="store", single_jobs=True))
    names = {job.name for job in store_wide.resolve_all_job_defs()}
    assert {"tidemark_operate", "tidemark_start", "tidemark_savepoint", "tidemark_rewind"} <= names
    assert names.isdisjoint({"many_a_start", "many_a_savepoint"})
    assert not store_wide.schedules
    single = loadable(build_continuous_definitions(*codes, store=str(modules / "store"), single_jobs=True))
    assert {"many_a_start", "many_b_stop", "many_a_savepoint", "many_b_upgrade", "many_b_maintenance"} <= {
        job.name for job in single.resolve_all_job_defs()
    }
    without = loadable(build_continuous_definitions(*codes, store=str(modules / "store"), savepoints=False))
    assert {job.name for job in without.resolve_all_job_defs()} - {"__ASSET_JOB"} == {"many_a_operate", "many_b_operate"}
    assert not without.schedules
    assert {sensor.default_status for sensor in defs.sensors or ()} == {dg.DefaultSensorStatus.RUNNING}
    assert {schedule.default_status for schedule in defs.schedules or () if isinstance(schedule, dg.ScheduleDefinition)} == {
        dg.DefaultScheduleStatus.STOPPED
    }
    still = build_continuous_definitions(*codes, store=str(modules / "store"), default_status=dg.DefaultSensorStatus.STOPPED)
    assert {sensor.default_status for sensor in still.sensors or ()} == {dg.DefaultSensorStatus.STOPPED}
    running = dg.DefaultSensorStatus.RUNNING
    deployed = build_continuous_definitions(*codes, store=str(modules / "store"), default_status=running)
    schedules = [found for found in deployed.schedules or () if isinstance(found, dg.ScheduleDefinition)]
    assert {found.default_status for found in schedules} == {dg.DefaultScheduleStatus.RUNNING}


def test_a_job_that_dagster_does_not_take_is_shown_beside_the_others(modules: Path) -> None:
    class Odd(TidemarkTranslator):
        def get_asset_spec(self, data: StreamData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(owners=["nobody"]) if data.job.name == "many_odd" else spec

    codes = [write_job(modules, "many_good"), write_job(modules, "many_odd")]
    defs = loadable(build_continuous_definitions(*codes, store=str(modules / "store"), translator=Odd()))
    assert keys_of(defs) == {"events", "many_good/hourly", "broken/many_odd_job"}


def test_jobs_whose_operations_would_have_one_name_are_told(modules: Path) -> None:
    codes = [write_job(modules, "many_x"), write_job(modules, "many_x_export")]
    defs = loadable(build_continuous_definitions(*codes, store=str(modules / "store"), single_jobs=True))
    assert keys_of(defs) == {"events", "many_x/hourly", "broken/many_x_export_job"}
    defs = loadable(build_continuous_definitions(*codes, store=str(modules / "store")))
    assert keys_of(defs) == {"events", "many_x/hourly", "many_x_export/hourly"}


def test_ten_jobs_have_three_dagster_jobs_each_and_four_sensors_together(modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = [write_job(modules, f"ten_{number}") for number in range(10)]
    counts = {}
    for way in ("one for all operations", "one for each operation"):
        single = way.startswith("one for each")
        defs = loadable(build_job_definitions(*codes, continuous=True, store=str(modules / "store"), single_jobs=single))
        jobs = [job.name for job in defs.resolve_all_job_defs() if not job.name.startswith("__")]
        counts[way] = len(jobs), len(list(defs.sensors or ())), len(list(defs.schedules or ()))
    with capsys.disabled():
        for way, (jobs_, sensors, schedules) in counts.items():
            print(f"\nten jobs, Dagster jobs: {way}: {jobs_} jobs, {sensors} sensors, {schedules} schedules")
    assert counts == {"one for all operations": (30, 4, 20), "one for each operation": (190, 4, 20)}


def test_jobs_that_are_not_continuous_are_drained_by_runs(modules: Path) -> None:
    (modules / "dry_broken.py").write_text("import no_such_module_anywhere")
    codes = [write_job(modules, "dry_a"), write_job(modules, "dry_b"), "dry_broken:job"]
    drained = build_job_definitions(*codes, continuous=False, store=str(modules / "store"), checks=lambda _: [UniquePanes("hourly")])
    defs = loadable(drained)
    assert keys_of(defs) == {"events", "dry_a/hourly", "dry_b/hourly", "broken/dry_broken_job"}
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.materializable_asset_keys} == {"dry_a/hourly", "dry_b/hourly"}
    assert {key.name for key in graph.asset_check_keys} == {"conservation", "unique_panes", "code_loads"}
    assert {schedule.name for schedule in defs.schedules or ()} == {"dry_a_drain_schedule", "dry_b_drain_schedule"}
    assert {sensor.name for sensor in defs.sensors or ()} == {
        f"dry_{job}_{what}" for job in "ab" for what in ("watermark_lag", "late_data")
    }
    # A continuous job of another call goes with it.
    other = build_job_definitions(write_job(modules, "wet_a", source="rides"), store=str(modules / "store"))
    assert "wet_a/hourly" in keys_of(loadable(dg.Definitions.merge(drained, other)))


def test_sensors_of_a_drained_job_look_where_its_runs_keep_its_state(modules: Path, instance: dg.DagsterInstance) -> None:
    code = write_job(modules, "own_store")
    path = modules / "own_store.py"
    path.write_text(path.read_text().replace('"lake/own_store")}', f'"lake/own_store")}}, store={str(modules / "own")!r}'))
    # A sensor that read the variable would fail: it is not set.
    defs = loadable(build_job_definitions(code, continuous=False, store=dg.EnvVar("NO_SUCH_STORE")))
    sensors = list(defs.sensors or ())
    assert len(sensors) == 2
    for sensor in sensors:
        assert isinstance(sensor, dg.SensorDefinition)
        ticked = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, definitions=defs, sensor_name=sensor.name))
        assert "has committed no epoch yet" in str(ticked.skip_message)
    assert (modules / "own").is_dir()


def test_checks_that_are_no_list_are_refused(modules: Path) -> None:
    code, one = write_job(modules, "no_list"), UniquePanes("hourly")
    for continuous in (True, False):
        with pytest.raises(DefinitionError, match=r"UniquePanes\(.*is no list of checks.*no_list.*Fix: write \["):
            build_job_definitions(code, continuous=continuous, store=str(modules), checks=lambda _: one)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("continuous", "given", "words"),
    [
        (False, {"spec": lambda code, job: JobSpec(job.name, code)}, "`spec` belongs to continuous jobs"),
        (False, {"single_jobs": True, "savepoints": False}, "`single_jobs` and `savepoints` belong to continuous jobs"),
        (False, {"operations": "store"}, "`operations` belongs to continuous jobs"),
        (True, {"cron": "0 * * * *"}, r"`cron` belongs to jobs that a run drains.*continuous=False"),
        (True, {"spark_config": {"spark.ui.enabled": "false"}}, r"Spark settings of a continuous job are `conf` of its `spec`"),
    ],
)
def test_an_argument_that_would_have_no_effect_is_refused(continuous: bool, given: dict[str, Any], words: str) -> None:  # noqa: FBT001
    with pytest.raises(DefinitionError, match=words):
        build_job_definitions("no_such:job", continuous=continuous, store="jobs", **given)


def test_a_job_that_reads_another_one_s_table_is_downstream_of_it(modules: Path) -> None:
    class Chained(TidemarkTranslator):
        def get_asset_spec(self, data: StreamData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(key=["many_a", "hourly"]) if data.name == "chained" else spec

    codes = [write_job(modules, "many_a"), write_job(modules, "many_b", source="chained", place="lake/many_a")]
    defs = loadable(build_continuous_definitions(*codes, store=str(modules / "store"), translator=Chained()))
    assert keys_of(defs) == {"events", "many_a/hourly", "many_b/hourly"}
