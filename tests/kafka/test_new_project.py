"""The project of ``tidemark new --template kafka`` over a real topic: every record that its generator makes is in a table.

Once run to the end of its input, and once as its README says: started from Dagster, with a driver of its own, and shown there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.command_line.test_new_project import make
from tests.control.drivers import until
from tests.dagster.instances import temporary_instance
from tests.kafka.broker import NEEDS_JARS, Broker, Topics, jars
from tidemark.control import launchers_here, observe
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 400


@pytest.fixture
def project(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose package can be imported, for the test's broker."""
    make(tmp_path, "rides", "--template", "kafka")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.address)
    monkeypatch.delenv("TIDEMARK_STORE", raising=False)
    monkeypatch.chdir(tmp_path / "rides")
    monkeypatch.syspath_prepend(str(tmp_path / "rides"))
    yield tmp_path / "rides"
    for name in [name for name in sys.modules if name.partition(".")[0] == "rides"]:
        del sys.modules[name]


@NEEDS_JARS
@pytest.mark.spark
@pytest.mark.slow
def test_every_record_of_the_generator_is_in_a_table(topics: Topics, project: Path, spark: SparkSession) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    generator, job = import_module("rides.generator"), import_module("rides.job")
    topics.create(job.TOPIC, 3)
    made = generator.Generator(seed=1)
    records = [made.record(datetime(2026, 3, 1, 9, tzinfo=UTC)) for _ in range(RECORDS)]
    for number, (zone, value) in enumerate(records):
        topics.send(job.TOPIC, number % 3, value, key=zone)
    topics.flush()
    result = tm.run(job.job, end_of_input=True)
    assert result.rows_in == RECORDS
    tables = {name: DeltaTable(str(project / "data" / "warehouse" / name)).to_pyarrow_table().to_pylist() for name in job.job.outputs}
    newest = {(row["zone"], row["window_start"]): row["rides"] for row in sorted(tables["by_minute"], key=lambda row: row["pane_index"])}
    parsed = [json.loads(value) for _, value in records if value.endswith("}")]
    assert len(tables["malformed"]) == RECORDS - len(parsed) > 0
    assert len(tables["incomplete"]) == sum("fare" not in trip for trip in parsed) > 0
    assert sum(newest.values()) + len(tables["late"]) == sum("fare" in trip for trip in parsed)


@pytest.fixture
def live(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project with a topic of its own, in an environment that has the connector; its driver ends with the test."""
    folder = jars()
    assert folder is not None
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "kafka").symlink_to(folder / "connector")
    monkeypatch.setenv("TIDEMARK_CONNECTORS", str(tmp_path / "connectors"))
    monkeypatch.setenv("TIDEMARK_LOGS", str(tmp_path / "logs"))
    monkeypatch.setenv("KAFKA_TOPIC", "rides-live")
    yield project
    handle = observe(JobStore.open(str(project / ".tidemark" / "jobs")), "rides", launchers_here()).handle
    if handle is not None:
        launchers_here()["local"].kill(handle)


@NEEDS_JARS
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.dagster
# Dagster's own code reads them of every resource.
@pytest.mark.filterwarnings("ignore:The `__fields__` attribute is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
def test_the_project_is_started_from_dagster_and_shown_there(topics: Topics, live: Path) -> None:
    generator, defs = import_module("rides.generator"), import_module("rides.definitions").defs
    topics.create("rides-live", 3)
    generator.Generator(seed=1).write(RECORDS)
    store = JobStore.open(str(live / ".tidemark" / "jobs"))
    with temporary_instance() as instance:

        def operate(**do: object) -> bool:
            config = {"ops": {"operate_rides": {"config": {"do": do}}}}
            return bool(defs.resolve_job_def("rides_operate").execute_in_process(run_config=config, instance=instance).success)

        def read() -> bool:
            status = read_status(store, "rides")
            return status is not None and status.totals["sources"].get("records", {}).get("read") == RECORDS

        def tick(sensor: str) -> list[object]:
            with dg.build_sensor_context(instance=instance, repository_def=defs.get_repository_def()) as context:
                result = defs.resolve_sensor_def(f"tidemark_{sensor}")(context)
            assert isinstance(result, dg.SensorResult)
            return list(result.asset_events or ())

        assert operate(start={})
        until(read, "all records")
        outputs = {"by_minute", "late", "incomplete", "malformed"}
        checks = [event for event in tick("reconcile") if isinstance(event, dg.AssetCheckEvaluation)]
        assert {(check.asset_key.path[-1], check.check_name, check.passed) for check in checks} == {
            (output, "job_runs", True) for output in outputs
        }
        observed = {event.asset_key.path[-1] for event in tick("progress") if isinstance(event, dg.AssetObservation)}
        assert observed == outputs
        assert operate(stop={"why": "enough"})
    again = generator.Generator(seed=1)
    values = [again.record(datetime(2026, 3, 1, 9, tzinfo=UTC))[1] for _ in range(RECORDS)]
    broken = sum(not value.endswith("}") for value in values)
    incomplete = sum("fare" not in value for value in values) - broken
    rows = {name: DeltaTable(str(live / "data" / "warehouse" / name)).to_pyarrow_table().num_rows for name in ("malformed", "incomplete")}
    assert rows == {"malformed": broken, "incomplete": incomplete}
    assert min(rows.values()) > 0
