"""Sensors over many jobs: what a tick reads does not grow with what the jobs have done, and it starts no JVM."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from benchmarks.operation.code_location import measure_loading, measure_ticks, write_codes
from benchmarks.operation.sensors import measure
from tests.dagster.fake_engine import FakeEpoch, commit_status, make_job, window_rows
from tests.dagster.instances import temporary_instance
from tidemark.assets import build_output_asset_specs
from tidemark.sensors import build_progress_sensor
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.dagster

JOBS = 20
QUERIES = ("get_asset_records", "fetch_observations", "fetch_materializations")


def test_ticks_over_many_jobs_see_all_of_them(tmp_path: Path) -> None:
    found = {(tick.sensor, tick.situation): tick for tick in measure(JobStore.open(str(tmp_path)), JOBS, 3)}
    assert found["reconcile", "again"].said == f"{JOBS} jobs observed, 0 acted on"
    assert found["health", "again"].said == f"{JOBS} jobs, 0 unhealthy"
    first = [tick for (_, situation), tick in found.items() if situation.startswith("first") and tick.sensor == "progress"]
    # An observation of each job's output, and the hour before this one.
    assert sum(tick.events for tick in first) == 2 * JOBS
    assert found["progress", "nothing new"].events == 0
    assert found["progress", "all due"].events > 0


def test_an_hour_of_a_code_location_is_ticks_and_an_observation_every_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = write_codes(tmp_path, 2)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = measure_ticks(codes, JobStore.open(str(tmp_path / "store")), 6)
    assert found.ticks == {"tidemark_reconcile": 24, "tidemark_job_health": 12, "tidemark_checks": 12, "tidemark_progress": 6}
    # The first report of each job, an observation later; each job's health once.
    assert found.events == {"AssetObservation": 2 * 2, "AssetCheckEvaluation": 2}
    assert found.runs == 2, "the check of stored state is executed once for each job"
    own = measure_ticks(codes, JobStore.open(str(tmp_path / "own")), 6, own_sensors=True)
    assert own.ticks.total() == 2 * found.ticks.total(), "sensors of each job tick by themselves"
    assert (own.events, own.runs) == (found.events, found.runs)
    ways = {
        (loaded.way, loaded.sensors_of): (loaded.jobs, loaded.sensors, loaded.schedules)
        for loaded in measure_loading(codes, str(tmp_path / "store"))
    }
    assert ways == {
        ("a Dagster job for each operation", "each job"): (2 * 18, 8, 4),
        ("a Dagster job for each operation", "the store"): (2 * 18, 4, 4),
        ("one for all operations", "the store"): (2 * 3, 4, 4),
        ("one for the store", "the store"): (1, 4, 0),
    }


def test_a_job_without_news_costs_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path, store=str(tmp_path / "store"))
    commit_status(job, tmp_path / "store", [FakeEpoch(window_rows()) for _ in range(150)])
    hours = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
    sensor = build_progress_sensor(build_output_asset_specs(job, partitions=hours))
    reads: list[str] = []
    get = JobStore.get

    def counted(store: JobStore, path: str) -> bytes:
        reads.append(path)
        return get(store, path)

    monkeypatch.setattr(JobStore, "get", counted)
    monkeypatch.setattr(JobStore, "list", recorded(JobStore.list, "a listing", reads))
    with temporary_instance() as instance:
        cursor, seen = None, list[str]()
        for _ in range(4):
            result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
            assert isinstance(result, dg.SensorResult)
            cursor = result.cursor
            reads, seen = [], reads
    assert seen == ["status.json"]


def test_a_first_tick_reads_two_files_a_job_and_asks_dagster_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    jobs = [make_job(tmp_path, f"cabs-{number}", store=str(store)) for number in range(5)]
    for job in jobs:
        commit_status(job, store, [FakeEpoch(window_rows()) for _ in range(3)])
    hours = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
    sensor = build_progress_sensor([spec for job in jobs for spec in build_output_asset_specs(job, partitions=hours)])
    asked: list[str] = []
    with temporary_instance() as instance:
        for owner, name in ((JobStore, "get"), (JobStore, "list"), *((dg.DagsterInstance, query) for query in QUERIES)):
            monkeypatch.setattr(owner, name, recorded(getattr(owner, name), name, asked))
        result = sensor(dg.build_sensor_context(instance=instance))
        assert isinstance(result, dg.SensorResult)
        events = result.asset_events or ()
        assert {type(event) for event in events} == {dg.AssetObservation, dg.AssetMaterialization}
        # Histories and savepoints.
        assert Counter(asked) == {"get": 2 * len(jobs), "list": 2 * len(jobs), "get_asset_records": 1}
        # Where Dagster has events, but the cursor is lost, it is asked what they say: nothing is told twice.
        for event in events:
            instance.report_runless_asset_event(event)
        asked.clear()
        again = sensor(dg.build_sensor_context(instance=instance))
        assert isinstance(again, dg.SensorResult)
        assert not again.asset_events
        outputs = sum(len(job.outputs) for job in jobs)
        assert (Counter(asked)["get_asset_records"], Counter(asked)["fetch_observations"]) == (1, outputs)


def recorded(method: Callable[..., object], name: str, asked: list[str]) -> Callable[..., object]:
    def call(*given: object, **named: object) -> object:
        asked.append(name)
        return method(*given, **named)

    return call


def test_ticks_load_neither_pyspark_nor_deltalake(tmp_path: Path) -> None:
    job = make_job(tmp_path, store=str(tmp_path / "store"))
    commit_status(job, tmp_path / "store", [FakeEpoch(window_rows((1, 0, 0, 3)), behind_ms=26 * 60_000, late=5)])
    program = f"""
import sys
from pathlib import Path
import dagster as dg
from tests.dagster import running_on, sensor_job
from tests.dagster.instances import temporary_instance
for sensor in sensor_job.sensors(Path({str(tmp_path)!r})):
    result = sensor(dg.build_sensor_context(resources={{}}))
    assert "epoch 0" in str(result.skip_reason), result
with temporary_instance() as instance:
    for sensor in running_on.sensors({str(tmp_path)!r}):
        result = sensor(dg.build_sensor_context(instance=instance, resources={{}}))
        print(sensor.name, result.skip_reason)
loaded = {{"pyspark", "deltalake", "great_expectations", "dagster_pyspark", "pandas", "pyarrow"}} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cabs_progress SkipReason(skip_message='1 of 1 jobs observed" in done.stdout
    assert "tidemark_job_health SkipReason(skip_message='1 jobs" in done.stdout
