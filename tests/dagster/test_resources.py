from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from tests.dagster.fake_engine import ENGINES, FakeEpoch, FakeTidemark, fake_resource, make_job, window_rows
from tests.dagster.instances import temporary_instance
from tests.dagster.web_server import CHECKOUT
from tidemark.assets import streaming_assets
from tidemark.errors import SetupError
from tidemark.operations import build_drain_schedule
from tidemark.resources import LogAlert, SparkResource
from tidemark.resources.epoch_reporter import EpochReporter
from tidemark.resources.run_events import StreamingEvent
from tidemark.resources.spark import preserved_interrupts, session_of
from tidemark.sensors import SensorOptions, build_watermark_lag_sensor

pytestmark = pytest.mark.dagster

HOURLY = dg.AssetKey(["cabs", "hourly"])


class StepClock:
    """A clock that goes on by so many seconds each time it is asked."""

    def __init__(self, step: float) -> None:
        self.step, self.at = step, 0.0

    def now_ms(self) -> int:
        return int(self.at * 1000)

    def monotonic(self) -> float:
        self.at += self.step
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.mark.parametrize(("step", "observed"), [(10.0, 3), (100.0, 33), (400.0, 99), (0.1, 0)])
def test_at_most_one_observation_in_five_minutes_rolls_up_all_epochs(tmp_path: Path, step: float, observed: int) -> None:
    lines: list[str] = []
    observations: list[dg.AssetObservation] = []
    report = EpochReporter(make_job(tmp_path), log=lines.append, observe=observations.append, asset_key=HOURLY, clock=StepClock(step))
    for number in range(99):
        report(FakeEpoch(window_rows((1, 0, 0, 3)), late=1).progress(number, "l1"))
    assert len(lines) == 99
    assert len(observations) == observed
    rolled_up = [observation.metadata["tidemark/epochs"].value for observation in observations]
    assert sum(int(str(count)) for count in rolled_up) <= 99
    assert len(set(rolled_up)) <= 1
    assert all(part in lines[7] for part in ("epoch 7", "11", "2024-03-04T07:54:59.999Z"))


def test_an_observation_during_a_run_is_in_the_runs_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.resources.runner.SYSTEM_CLOCK", StepClock(200.0))
    job, store = make_job(tmp_path), tmp_path / "store"

    @streaming_assets(job=job)
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    fake_resource(store)
    ENGINES[str(store)].queue += [FakeEpoch(window_rows((1, hour, 0, 3))) for hour in range(4)]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([cabs], resources={"tidemark": fake_resource(store)}, instance=instance)
        observed = instance.fetch_observations(HOURLY, limit=10).records
        logged = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert len(observed) == 2
    assert sum("watermark" in line for line in logged) == 4
    assert any("4 epochs, 40 rows in 2.0 s" in line for line in logged)


def test_the_spark_resource_starts_nothing_by_itself() -> None:
    program = """
import sys
import dagster as dg
from tidemark.resources import SparkResource, TidemarkResource

@dg.asset
def idle(tidemark: TidemarkResource) -> None:
    assert tidemark.spark is not None

resource = TidemarkResource(store="/nowhere", spark=SparkResource(spark_config={"spark.master": "local[1]"}))
assert dg.materialize([idle], resources={"tidemark": resource}).success
assert not {"pyspark", "dagster_pyspark"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_resource_without_a_session_is_refused() -> None:
    with pytest.raises(SetupError, match=r"LogAlert has no attribute spark_session.*SparkResource"):
        session_of(LogAlert())


def test_a_session_keeps_the_handler_of_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with preserved_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_any_resource_with_a_session_will_do() -> None:
    class Ours(dg.ConfigurableResource[object]):
        @property
        def spark_session(self) -> object:
            return "a session"

    assert str(session_of(Ours())) == "a session"
    assert str(session_of(FakeTidemark(spark=Ours()).spark)) == "a session"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that dagster-pyspark imports
        from dagster_pyspark import LazyPySparkResource
    lazy = FakeTidemark(spark=LazyPySparkResource(spark_config={"spark.master": "local[1]"})).spark
    assert isinstance(lazy, LazyPySparkResource)
    assert isinstance(FakeTidemark().spark, SparkResource)


def test_a_drain_is_skipped_while_another_waits(tmp_path: Path) -> None:
    job = make_job(tmp_path)

    @streaming_assets(job=job)
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    schedule = build_drain_schedule(cabs, "*/5 * * * *")
    assert (schedule.name, schedule.cron_schedule) == ("cabs_drain_schedule", "*/5 * * * *")
    definitions = dg.Definitions(assets=[cabs], schedules=[schedule], resources={"tidemark": fake_resource(tmp_path / "store")})
    drain = definitions.resolve_job_def("cabs_drain")
    assert {key.path[-1] for key in drain.asset_layer.selected_asset_keys} >= {"hourly", "late", "rejected", "malformed"}
    with temporary_instance() as instance:
        first = schedule.evaluate_tick(dg.build_schedule_context(instance))
        assert first.run_requests is not None
        assert len(first.run_requests) == 1
        waiting = instance.create_run_for_job(drain, status=dg.DagsterRunStatus.STARTED)
        skipped = str(schedule.evaluate_tick(dg.build_schedule_context(instance)).skip_message)
        assert "queued or in progress" in skipped
        assert waiting.run_id in skipped, "it may be one that was killed, which has to be terminated"
        # One that is ended finishes its epoch first.
        instance.report_run_canceling(instance.get_run_by_id(waiting.run_id))  # type: ignore[arg-type]
        assert "queued or in progress" in str(schedule.evaluate_tick(dg.build_schedule_context(instance)).skip_message)
        instance.report_run_failed(instance.get_run_by_id(waiting.run_id))  # type: ignore[arg-type]
        assert schedule.evaluate_tick(dg.build_schedule_context(instance)).run_requests


@pytest.mark.parametrize(
    ("told", "of", "skipped"),
    [
        (["--location-name", "here"], "elsewhere", False),
        (["--location-name=here"], "elsewhere", False),
        (["--location-name", "here"], "here", True),
        (["--location-name", "here"], None, True),
        ([], "elsewhere", True),
    ],
)
def test_a_drain_does_not_wait_for_a_job_of_that_name_in_another_code_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str], of: str | None, *, skipped: bool
) -> None:
    @streaming_assets(job=make_job(tmp_path))
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    schedule = build_drain_schedule(cabs, "*/5 * * * *")
    resources = {"tidemark": fake_resource(tmp_path / "store")}
    repository = dg.Definitions(assets=[cabs], schedules=[schedule], resources=resources).get_repository_def()
    run = SimpleNamespace(run_id="run-1", remote_job_origin=SimpleNamespace(location_name=of) if of is not None else None)
    monkeypatch.setattr(dg.DagsterInstance, "get_runs", lambda *_args, **_named: [run])
    monkeypatch.delenv("DAGSTER_LOCATION_NAME", raising=False)
    for arguments, variable in ((["dagster", *told], None), (["dagster"], told[-1].removeprefix("--location-name=") if told else None)):
        monkeypatch.setattr(sys, "argv", arguments)
        if variable is not None:
            monkeypatch.setenv("DAGSTER_LOCATION_NAME", variable)
        with temporary_instance() as instance:
            tick = schedule.evaluate_tick(dg.build_schedule_context(instance, repository_def=repository))
        assert ("run-1" in str(tick.skip_message)) == skipped
        assert bool(tick.run_requests) != skipped


def test_the_assets_are_in_a_pool_of_their_own(tmp_path: Path) -> None:
    @streaming_assets(job=make_job(tmp_path))
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    @streaming_assets(job=make_job(tmp_path), name="other", pool="spark", op_tags={"team": "a"})
    def ignored(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    assert cabs.op.pool == "tidemark_cabs"
    assert (ignored.op.name, ignored.op.pool, ignored.op.tags["team"]) == ("other", "spark", "a")


def test_the_examples_code_location_loads_little() -> None:
    program = """
import sys
import dagster as dg
before = set(sys.modules)
from examples.taxi import definitions
loaded = set(sys.modules) - before
(defs,) = [found for found in vars(definitions).values() if isinstance(found, dg.Definitions)]  # more of them Dagster refuses
dg.Definitions.validate_loadable(defs)
heavy = {"pyspark", "dagster_pyspark", "great_expectations", "deltalake", "pandas", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
foreign = {name for name in loaded if name.split(".")[0] not in {"tidemark", "examples"}}
assert len(foreign) < 120, sorted(foreign)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_examples_sensors_run_and_its_names_are_stable() -> None:
    from examples.taxi.definitions import defs

    repository = defs.get_repository_def()
    assert sorted(key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()) == [
        "dispatch/driver_tips",
        "dispatch/driver_tips_by_window",
        "dispatch/high_fares",
        "dispatch/long_rides",
        "dispatch/rides_with_fares",
        "dispatch/unmatched",
        "fares",
        "limits",
        "rides",
        "taxi/hourly_tips",
        "taxi/late_trips",
        "taxi/malformed_trips",
        "taxi/rejected_trips",
        "taxi_live/daily_tips",
        "taxi_live/hourly_tips",
        "taxi_live/late_trips",
        "taxi_live/malformed_trips",
        "taxi_live/rejected_trips",
        "trips",
    ]
    assert {sensor.name for sensor in repository.sensor_defs} == {
        "taxi_late_data",
        "taxi_watermark_lag",
        "taxi_live_late_data",
        "taxi_live_watermark_lag",
        "taxi_live_hourly_tips_partitions",
        "tidemark_checks",
        "tidemark_job_health",
        "tidemark_progress",
        "tidemark_reconcile",
    }
    assert all(sensor.default_status == dg.DefaultSensorStatus.RUNNING for sensor in repository.sensor_defs)
    periodic = ("taxi_live_savepoint_schedule", "taxi_live_maintenance_schedule")
    assert {schedule.name for schedule in repository.schedule_defs} == {"taxi_drain_schedule", "dispatch_drain_schedule", *periodic}
    operations = {f"taxi_live_{work}" for work in ("operate", "savepoint", "maintenance")}
    assert {job.name for job in repository.get_all_jobs() if job.name.startswith("taxi_live_")} == operations


def test_a_sensor_can_be_told_to_stand_still(tmp_path: Path) -> None:
    job = make_job(tmp_path, store=str(tmp_path))
    assert build_watermark_lag_sensor(job).default_status == dg.DefaultSensorStatus.STOPPED
    sensor = build_watermark_lag_sensor(job, options=SensorOptions(every="5 minutes"))
    assert sensor.minimum_interval_seconds == 300
