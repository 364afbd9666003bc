"""Sensors over many jobs: what a tick reads does not grow with what the jobs have done, and it starts no JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from benchmarks.sensors import measure
from tests.dagster.fake_engine import FakeEpoch, commit_status, make_job, window_rows
from tests.dagster.instances import temporary_instance
from tidemark.assets import build_output_asset_specs
from tidemark.sensors import build_progress_sensor
from tidemark.state.store import JobStore

pytestmark = pytest.mark.dagster

JOBS = 20


def test_ticks_over_many_jobs_see_all_of_them(tmp_path: Path) -> None:
    found = {(tick.sensor, tick.situation): tick for tick in measure(JobStore.open(str(tmp_path)), JOBS, 3)}
    assert found["reconcile", "again"].said == f"{JOBS} jobs looked at, 0 acted on"
    assert found["health", "again"].said == f"{JOBS} jobs, 0 not well"
    first = [tick for (_, situation), tick in found.items() if situation.startswith("first") and tick.sensor == "progress"]
    # An observation of each job's output, and the hour before this one.
    assert sum(tick.events for tick in first) == 2 * JOBS
    assert found["progress", "nothing new"].events == 0
    assert found["progress", "all due"].events > 0


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
    with temporary_instance() as instance:
        cursor, seen = None, list[str]()
        for _ in range(4):
            result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
            assert isinstance(result, dg.SensorResult)
            cursor = result.cursor
            reads, seen = [], reads
    assert seen == ["status.json"]


def test_ticks_load_neither_pyspark_nor_deltalake(tmp_path: Path) -> None:
    job = make_job(tmp_path, store=str(tmp_path / "store"))
    commit_status(job, tmp_path / "store", [FakeEpoch(window_rows())])
    program = f"""
import sys
import dagster as dg
from tests.dagster.running_on import sensors
from tests.dagster.instances import temporary_instance
with temporary_instance() as instance:
    for sensor in sensors({str(tmp_path)!r}):
        result = sensor(dg.build_sensor_context(instance=instance, resources={{}}))
        print(sensor.name, result.skip_reason)
loaded = {{"pyspark", "deltalake", "great_expectations", "dagster_pyspark", "pandas", "pyarrow"}} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cabs_progress SkipReason(skip_message='1 of 1 jobs observed" in done.stdout
    assert "tidemark_job_health SkipReason(skip_message='1 jobs" in done.stdout
