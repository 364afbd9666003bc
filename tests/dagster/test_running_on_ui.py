"""The example's job that runs on, operated from Dagster's pages: started, watched by ticking sensors, stopped from the launchpad."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from examples.taxi.generator import TripPlan, write_wave
from tests.dagster.browser import open_browser, require_chromium
from tests.dagster.web_server import CHECKOUT, WebServer, wait_for, web_server
from tests.seeds import only_long
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.observed.observe import observe
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.slow, pytest.mark.browser]

JOB = "taxi_live"
LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}
"""
RUNS = """
query ($job: String!) {
  runsOrError(filter: {pipelineName: $job}, limit: 10) { ... on Runs { results { runId status tags { key value } } } }
}
"""
EVENTS = """
query ($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode { assetObservations(limit: 5) { metadataEntries { label } } assetMaterializations(limit: 100) { partition } }
  }
}
"""
HEALTH = """
query ($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode { assetChecksOrError { ... on AssetChecks { checks {
      name executionForLatestMaterialization { status evaluation { severity description } }
    } } } }
  }
}
"""
TICKS = """
query ($sensor: SensorSelector!) {
  sensorOrError(sensorSelector: $sensor) { ... on Sensor { sensorState { ticks(limit: 20) { status skipReason } } } }
}
"""
SENSORS = ("tidemark_progress", "tidemark_reconcile", "tidemark_job_health", "tidemark_checks", f"{JOB}_hourly_tips_partitions")
BUTTON = "[...document.querySelectorAll('button')].find(b => b.textContent.trim().startsWith('Launch Run'))"
READY = f"(() => {{ const b = {BUTTON}; return b && !b.disabled ? true : null }})()"


@dataclass(frozen=True)
class Deployed:
    """The servers, with trips to read."""

    server: WebServer
    store: JobStore


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    home = tmp_path_factory.mktemp("live")
    write_wave(home / "landing", 0, plan=TripPlan(trips_per_day=2000))
    store = JobStore.open(str(home / "store"))
    environment = {"TIDEMARK_EXAMPLE_HOME": str(home), "TIDEMARK_LOGS": str(home / "logs")}
    try:
        with web_server(home / "dagster", CHECKOUT / "workspace.yaml", environment) as server:
            yield Deployed(server, store)
    finally:
        launchers = launchers_here()
        seen = observe(store, JOB, launchers)
        if seen.handle is not None:
            launchers[seen.handle.launcher].kill(seen.handle)


def all_outputs(deployed: Deployed, status: str) -> bool | None:
    """Say whether the check ``job_runs`` of all outputs is shown so."""
    names = ("hourly_tips", "late_trips", "rejected_trips", "malformed_trips")
    return True if {health(deployed, name)[0] for name in names} == {status} else None


def ended(deployed: Deployed, job: str, *, runs: int = 1) -> str:
    """Wait for the end of the newest of so many runs of a Dagster job, and return how it ended."""

    def ask() -> str | None:
        found = deployed.server.ask(RUNS, job=job)["runsOrError"]["results"]
        status = str(found[0]["status"]) if len(found) >= runs else ""
        return status if status in {"SUCCESS", "FAILURE", "CANCELED"} else None

    return wait_for(f"the end of {job}", ask, seconds=300, log=deployed.server.log)


def health(deployed: Deployed, output: str) -> tuple[str, str]:
    """Return status and description of an output's check ``job_runs`` as the pages show it."""
    found = deployed.server.ask(HEALTH, key={"path": [JOB, output]})["assetNodeOrError"]["assetChecksOrError"]["checks"]
    shown = next(check for check in found if check["name"] == "job_runs")["executionForLatestMaterialization"]
    return (str(shown["status"]), str((shown["evaluation"] or {}).get("description"))) if shown is not None else ("none", "")


def operation(do: dict[str, object]) -> dict[str, object]:
    """Return the config of a run of the job's operations."""
    return {"ops": {f"operate_{JOB}": {"config": {"do": do}}}}


def launch(server: WebServer, do: dict[str, object]) -> None:
    selector = {"repositoryLocationName": "taxi", "repositoryName": "__repository__", "pipelineName": f"{JOB}_operate"}
    params = {"selector": selector, "mode": "default", "runConfigData": operation(do)}
    launched = server.ask(LAUNCH, params=params)["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched


@only_long
def test_a_job_is_started_watched_and_stopped_from_the_pages(deployed: Deployed, tmp_path: Path) -> None:
    server, store = deployed.server, deployed.store
    launch(server, {"start": {}})
    assert ended(deployed, f"{JOB}_operate") == "SUCCESS", server.log.read_text()[-6000:]

    def read() -> bool | None:
        status = read_status(store, JOB)
        return True if status is not None and status.last is not None and status.last.epoch >= 1 else None

    wait_for("two epochs", read, seconds=120, log=server.log)

    def reported() -> list[str] | None:
        node = server.ask(EVENTS, key={"path": [JOB, "hourly_tips"]})["assetNodeOrError"]
        partitions = sorted(str(item["partition"]) for item in node["assetMaterializations"])
        return partitions if partitions and node["assetObservations"] else None

    partitions = wait_for("an observation and complete partitions", reported, seconds=150, log=server.log)
    assert partitions[0] == "2024-03-04-00:00"
    assert wait_for("all outputs to be well", lambda: all_outputs(deployed, "SUCCEEDED"), seconds=90, log=server.log)
    launchers = launchers_here()
    driver = observe(store, JOB, launchers).handle
    assert driver is not None
    assert driver.pid is not None
    with open_browser(require_chromium(), tmp_path / "killed") as page:
        os.kill(driver.pid, signal.SIGKILL)
        # Within a tick of either sensor, half a minute apart, though both only have their defaults.
        assert wait_for("all outputs to be red", lambda: all_outputs(deployed, "FAILED"), seconds=60, log=server.log)
        page.open(f"{server.url}/assets/{JOB}/late_trips?view=checks")
        page.wait_for_text("job_runs", "Failed", f"process {driver.pid} on host", "Fix:")
    assert wait_for("all outputs to be well again", lambda: all_outputs(deployed, "SUCCEEDED"), seconds=240, log=server.log)
    with open_browser(require_chromium(), tmp_path / "profile") as page:
        page.open(f"{server.url}/locations/taxi/sensors/tidemark_reconcile")
        # What a tick said is shown when one points at it; it is asked for below.
        page.wait_for_text("tidemark_reconcile", "Running", "0 runs requested")
        page.open(f"{server.url}/locations/taxi/jobs/{JOB}_operate/playground")
        # The form is filled in with the default, which changes nothing.
        page.wait_for_text("Launch Run", f"operate_{JOB}", "status", "check")
        chosen = quote(json.dumps(operation({"stop": {"why": "by hand"}})))
        page.open(f"{server.url}/locations/taxi/jobs/{JOB}_operate/playground/setup?config={chosen}")
        page.wait_for_text("Launch Run", "stop", "by hand")
        wait_for("the button", lambda: page.evaluate(READY), seconds=60)
        page.evaluate(f"{BUTTON}.click()")
        assert ended(deployed, f"{JOB}_operate", runs=2) == "SUCCESS", server.log.read_text()[-6000:]
    for sensor in SENSORS:
        named = {"repositoryLocationName": "taxi", "repositoryName": "__repository__", "sensorName": sensor}
        ticks = server.ask(TICKS, sensor=named)["sensorOrError"]["sensorState"]["ticks"]
        assert {tick["status"] for tick in ticks} <= {"SKIPPED", "SUCCESS", "STARTED"}, (sensor, ticks)
        assert any(tick["skipReason"] for tick in ticks), (sensor, ticks)
    seen = observe(store, JOB, launchers_here())
    assert seen.control is not None
    assert (seen.control.lifecycle, seen.process) == ("suspended", "gone")
