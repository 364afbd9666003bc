"""A job that runs on under Dagster's eyes, for real: started, observed, its partitions complete, downstream run, stopped.

In CI a real driver is started, observed and stopped from Dagster in ``tests/kafka/test_new_project.py``; partitions are of a fake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.control.drivers import Landing, until
from tests.dagster.instances import instance_in_memory
from tests.seeds import only_long
from tidemark.assets import build_output_asset_specs
from tidemark.control.desired.job_import import load_job
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.model.launcher import Launcher
from tidemark.control.observed.observe import observe
from tidemark.operations import control_jobs
from tidemark.sensors import SensorOptions, build_partition_sensor, build_progress_sensor, build_reconcile_sensor
from tidemark.state.store.store import JobStore

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.slow]

MINUTES = dg.TimeWindowPartitionsDefinition(
    cron_schedule="* * * * *", start="1970-01-01-00:00", fmt="%Y-%m-%d-%H:%M", end="1970-01-01-01:00"
)
FILES = 6


class Ticking:
    """A sensor, ticked as Dagster's daemon does."""

    def __init__(self, sensor: dg.SensorDefinition, instance: dg.DagsterInstance) -> None:
        self._sensor, self._instance = sensor, instance
        self._cursor: str | None = None
        self.requests: list[dg.RunRequest] = []

    def __call__(self) -> dg.SensorResult:
        result = self._sensor(dg.build_sensor_context(instance=self._instance, cursor=self._cursor))
        assert isinstance(result, dg.SensorResult)
        for event in result.asset_events or ():
            self._instance.report_runless_asset_event(event)
        self.requests += result.run_requests or ()
        self._cursor = result.cursor
        return result


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


@pytest.fixture
def landing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Landing]:
    found = Landing(tmp_path, LocalLauncher(tmp_path / "logs"))
    monkeypatch.setenv("LANDING_ROOT", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield found
    sys.modules.pop("landing_job", None)
    seen = observe(found.store, "landing", {"local": found.launcher})
    if seen.handle is not None:
        found.launcher.kill(seen.handle)


@only_long
def test_a_life_under_dagsters_eyes(landing: Landing, instance: dg.DagsterInstance) -> None:
    landing.land(FILES)
    landing.want(wanted="suspended")
    job: tm.Job = load_job("landing_job:job")
    launchers: dict[str, Launcher] = {"local": landing.launcher}
    store = landing.store.uri
    specs = build_output_asset_specs(job, partitions=MINUTES)
    built: list[str] = []

    @dg.asset(deps=[specs[0]], partitions_def=MINUTES, name="downstream")
    def downstream(context) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - Dagster takes no annotation that is a text
        built.append(context.partition_key)

    progress = Ticking(build_progress_sensor(specs, options=SensorOptions(store=store), interval="1 second"), instance)
    options = SensorOptions(store=store, target=dg.AssetSelection.assets(downstream))
    partitions = Ticking(build_partition_sensor(job, output="minutes", partitions_def=MINUTES, options=options), instance)
    reconcile = Ticking(build_reconcile_sensor(store, launchers=lambda: launchers), instance)
    operations = control_jobs(job, store=store, launchers=lambda: launchers)
    output = specs[0].key

    started = launch(operations, "start", instance)
    assert started["lifecycle"] == "running"
    assert int(str(started["attempt"])) == 1
    until(read_all(landing), "the input's end")
    # The watermark is at the last minute's events, so all minutes before it are complete.
    complete = [f"1970-01-01-00:{minute:02}" for minute in range(FILES - 1)]

    def told() -> bool:
        progress()
        partitions()
        reconcile()
        return len(partitions.requests) >= len(complete)

    until(told, "the partitions")
    assert [request.partition_key for request in partitions.requests] == complete
    found = instance.fetch_materializations(output, limit=100, ascending=True).records
    assert [record.partition_key for record in found] == complete
    observed = [record.asset_observation for record in instance.fetch_observations(output, limit=100).records]
    assert sum(int(str(item.metadata["tidemark/rows_read"].value)) for item in observed if item is not None) == len(landing.landed)
    assert landing.table() == landing.expected(FILES - 1)
    for request in partitions.requests:
        assert dg.materialize([downstream], selection=[downstream], partition_key=request.partition_key, instance=instance).success
    assert built == complete

    stopped = launch(operations, "stop", instance, why="enough")
    assert (stopped["lifecycle"], stopped["wanted"]) == ("suspended", "suspended")
    seen = observe(JobStore.open(store), "landing", launchers)
    assert seen.process == "gone"
    assert "0 acted on" in str(reconcile().skip_reason)


def launch(operations: dg.Definitions, verb: str, instance: dg.DagsterInstance, **config: object) -> dict[str, object]:
    """Launch an operation, and return what its output says."""
    given = {"ops": {f"{verb}_landing": {"config": config}}} if config else None
    result = operations.resolve_job_def(f"landing_{verb}").execute_in_process(run_config=given, instance=instance)
    (output,) = (event.step_output_data for event in result.all_events if event.event_type_value == "STEP_OUTPUT")
    return {key.removeprefix("tidemark/"): value.value for key, value in output.metadata.items()}


def read_all(landing: Landing) -> Callable[[], bool]:
    def read() -> bool:
        status = landing.status
        return status is not None and status.totals["sources"].get("landing", {}).get("read", 0) >= len(landing.landed)

    return read
