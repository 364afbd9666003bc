"""The example as it is deployed: web server and daemon on the checkout's workspace.yaml, a run, its pages in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.taxi.generator import TripPlan, WaveCounts, write_wave
from tests.dagster.browser import open_browser, require_chromium
from tests.dagster.web_server import CHECKOUT, WebServer, wait_for, web_server
from tests.seeds import only_long
from tidemark.assets.report.watermark_chart import WIDTH
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.slow]

PLAN = TripPlan(trips_per_day=4_000)
WAVES = 1
LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
TERMINATE = "mutation ($id: String!) { terminateRun(runId: $id) { __typename ... on PythonError { message } } }"
STATUS = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
ASSET = """
query ($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      dependencyKeys { path }
      kinds
      owners { ... on TeamAssetOwner { team } }
      assetMaterializations(limit: 1) {
        runId
        metadataEntries {
          label
          ... on IntMetadataEntry { intValue }
          ... on FloatMetadataEntry { floatValue }
          ... on MarkdownMetadataEntry { mdStr }
        }
      }
      assetChecksOrError { ... on AssetChecks { checks {
        name
        executionForLatestMaterialization { runId status evaluation { success description } }
      } } }
    }
  }
}
"""
TICKS = """
query ($sensor: SensorSelector!) {
  sensorOrError(sensorSelector: $sensor) { ... on Sensor { sensorState { ticks(limit: 20) { status skipReason cursor } } } }
}
"""
CLICK = "[...document.querySelectorAll('*')].find(e => !e.children.length && e.textContent.trim() === '[Show Markdown]').click()"
IMAGE = "(() => { const i = document.querySelector('img[src^=\"data:image/svg+xml\"]'); return i && i.complete ? i.naturalWidth : null })()"


STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"
OURS = (
    r"ui: starting Dagster, which takes about 20 seconds; then open http://127\.0\.0\.1:\d+\. Ctrl-C ends it",
    r"starting Spark \(about 20 s\); its log is /.+\.log",
)
_RUN = r"__ASSET_JOB - [0-9a-f-]{36}"
DAGSTERS = (
    r"dagster - INFO - Launching Dagster services\.\.\.",
    r"dagster-webserver - INFO - Serving dagster-webserver on http://127\.0\.0\.1:\d+ in process \d+",
    r"dagster\.daemon - INFO - Instance is configured with the following daemons: \['\w+Daemon'(?:, '\w+Daemon')*\]",
    r"dagster\.daemon\.SensorDaemon - INFO - Checking for new runs for sensor: (?:tidemark|taxi)_\w+",
    r"dagster\.daemon\.SensorDaemon - INFO - Sensor (?:tidemark|taxi)_\w+ skipped: .+",
    r"dagster\.daemon\.SensorDaemon - INFO - (?:Creating new|Launching|Completed launch of) run(?: [0-9a-f-]{36})? for \w+",
    r"dagster\.daemon\.QueuedRunCoordinatorDaemon - INFO - Priority sorting and checking tag concurrency limits for queued runs\.",
    r"dagster\.daemon\.QueuedRunCoordinatorDaemon - INFO - (?:Retrieved \d+ queued runs, checking limits|Launched \d+ runs)\.",
    # Every two minutes while a run is under way.
    r"dagster\.daemon\.MonitoringDaemon - INFO - (?:Collected \d+ runs for monitoring|Checking run [0-9a-f-]{36})",
    # What the run of a job says of its epochs: the job's own lines, in Dagster's log.
    rf"dagster - INFO - {_RUN} - taxi - (?:taxi epoch \d+: in \d.*|job 'taxi': \d+ epochs, \d+ rows in .+)",
)
"""What Dagster reports of its services and of each look of a sensor: the server's only log, so it is wanted."""


@dataclass(frozen=True)
class Deployed:
    """The servers after one run of the example, and what was written for it to read."""

    server: WebServer
    home: Path
    run_id: str
    counts: WaveCounts


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    home = tmp_path_factory.mktemp("example")
    counts = WaveCounts()
    for wave in range(WAVES):
        counts += write_wave(home / "landing", wave, plan=PLAN)
    environment = {"TIDEMARK_EXAMPLE_HOME": str(home), "PYTHONWARNINGS": "default"}
    with web_server(home / "dagster", CHECKOUT / "workspace.yaml", environment, by_make=True) as server:
        run_id = launch(server)
        assert outcome(server, run_id) == "SUCCESS", server.log.read_text()[-6000:]
        yield Deployed(server, home, run_id, counts)


def launch(server: WebServer) -> str:
    """Launch a run of all assets and return its id."""
    selector = {
        "repositoryLocationName": "taxi",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": ["taxi", name]} for name in ("hourly_tips", "late_trips", "rejected_trips", "malformed_trips")],
    }
    launched = server.ask(LAUNCH, params={"selector": selector, "mode": "default", "runConfigData": {}})["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    return str(launched["run"]["runId"])


def outcome(server: WebServer, run_id: str) -> str:
    """Wait for the end of a run and return how it ended."""

    def ended() -> str | None:
        status = str(server.ask(STATUS, id=run_id)["runOrError"]["status"])
        return status if status in {"SUCCESS", "FAILURE", "CANCELED"} else None

    return wait_for("the run's end", ended, seconds=400, log=server.log)


def asset(deployed: Deployed, name: str) -> dict[str, Any]:
    found: dict[str, Any] = deployed.server.ask(ASSET, key={"path": ["taxi", name]})["assetNodeOrError"]
    return found


def metadata(found: dict[str, Any]) -> dict[str, Any]:
    (latest,) = found["assetMaterializations"]
    values = ("intValue", "floatValue", "mdStr")
    return {entry["label"]: next((entry[key] for key in values if key in entry), None) for entry in latest["metadataEntries"]}


def test_all_outputs_are_materialized_with_what_the_generator_wrote(deployed: Deployed) -> None:
    for name in ("hourly_tips", "late_trips", "rejected_trips", "malformed_trips"):
        found = asset(deployed, name)
        assert found["assetMaterializations"][0]["runId"] == deployed.run_id
        assert found["dependencyKeys"] == [{"path": ["trips"]}]
        assert sorted(found["kinds"]) == ["delta", "spark", "tidemark"]
    assert metadata(asset(deployed, "hourly_tips"))["tidemark/rows_read"] == deployed.counts.total
    assert metadata(asset(deployed, "rejected_trips"))["dagster/row_count"] == deployed.counts.rejected
    assert metadata(asset(deployed, "malformed_trips"))["dagster/row_count"] == deployed.counts.malformed
    assert min(deployed.counts.rejected, deployed.counts.malformed) > 0
    late = metadata(asset(deployed, "late_trips"))
    assert late["dagster/row_count"] == late["tidemark/late_rows"] > 0


def test_all_checks_were_made_in_the_run(deployed: Deployed) -> None:
    checks = {
        check["name"]: check["executionForLatestMaterialization"]
        for check in asset(deployed, "hourly_tips")["assetChecksOrError"]["checks"]
    }
    assert {"conservation", "unique_panes", "no_gaps", "late_ratio", "watermark_freshness", "zone_is_known"} <= set(checks)
    assert {execution["runId"] for execution in checks.values()} == {deployed.run_id}
    for name in ("conservation", "unique_panes", "watermark_freshness", "zone_is_known", "a_window_has_trips"):
        assert checks[name]["status"] == "SUCCEEDED", checks[name]


@pytest.mark.parametrize(("sensor", "words"), [("taxi_watermark_lag", "source 'trips' is"), ("taxi_late_data", "were late")])
def test_sensors_tick_and_see_the_run(deployed: Deployed, sensor: str, words: str) -> None:
    selector = {"repositoryLocationName": "taxi", "repositoryName": "__repository__", "sensorName": sensor}

    def told() -> str | None:
        ticks = deployed.server.ask(TICKS, sensor=selector)["sensorOrError"]["sensorState"]["ticks"]
        assert "FAILURE" not in {tick["status"] for tick in ticks}, ticks
        return next((str(tick["skipReason"]) for tick in ticks if words in str(tick["skipReason"])), None)

    assert "epoch" in wait_for(f"a tick of {sensor}", told, seconds=150, log=deployed.server.log)


@pytest.mark.browser
def test_the_pages_show_graph_numbers_and_picture(deployed: Deployed, tmp_path: Path) -> None:
    with open_browser(require_chromium(), tmp_path / "profile") as page:
        page.open(f"{deployed.server.url}/locations/taxi/asset-groups/taxi/lineage")
        page.wait_for_text("trips", "hourly_tips", "late_trips", "rejected_trips", "malformed_trips", "Materialized")
        page.open(f"{deployed.server.url}/assets/taxi/hourly_tips?view=overview")
        row_count = f"{metadata(asset(deployed, 'hourly_tips'))['dagster/row_count']:,}"
        page.wait_for_text("typical_fare", "tidemark/late_rows", "tidemark/watermark_lag_seconds", "[Show Markdown]", row_count)
        page.evaluate(CLICK)
        assert wait_for("the picture", lambda: page.evaluate(IMAGE), seconds=30) == WIDTH
        page.open(f"{deployed.server.url}/assets/taxi/hourly_tips?view=checks")
        page.wait_for_text("conservation", "unique_panes", "zone_is_known")


def test_every_line_that_make_ui_prints_is_its_own_or_a_wanted_one_of_dagsters(deployed: Deployed) -> None:
    """No warning of Dagster's, and nothing of the JVMs of the runs."""
    lines = re.sub(r"\x1b\[\d+m", "", deployed.server.log.read_text(encoding="utf-8")).splitlines()
    wanted = re.compile("|".join(f"(?:{shape})" for shape in (*OURS, *(f"{STAMP} - {shape}" for shape in DAGSTERS))))
    assert [line for line in lines if not wanted.fullmatch(line)] == []
    assert re.fullmatch(OURS[0], lines[0])
    assert sum(bool(re.fullmatch(OURS[1], line)) for line in lines) == 1


@only_long
def test_a_run_that_is_ended_leaves_the_job_to_the_next(deployed: Deployed) -> None:
    store = JobStore.open(str(deployed.home / "store"))
    before = read_status(store, "taxi")
    assert before is not None
    assert before.last is not None
    counts, reached = deployed.counts, before.last.epoch
    for wave in range(WAVES, WAVES + 3):
        counts += write_wave(deployed.home / "landing", wave, plan=PLAN)
    run_id = launch(deployed.server)

    def one_more() -> bool | None:
        status = read_status(store, "taxi")
        return True if status is not None and status.last is not None and status.last.epoch > reached else None

    wait_for("the first epoch of the run", one_more, seconds=300, log=deployed.server.log)
    ended = deployed.server.ask(TERMINATE, id=run_id)["terminateRun"]
    assert ended["__typename"] == "TerminateRunSuccess", ended
    assert outcome(deployed.server, run_id) == "CANCELED"
    status = read_status(store, "taxi")
    assert status is not None
    assert status.last is not None
    assert status.state == "stopped", status
    assert status.last.epoch < reached + 6, "it read all before it was ended; give it more to read"
    assert outcome(deployed.server, launch(deployed.server)) == "SUCCESS"
    after = read_status(store, "taxi")
    assert after is not None
    assert after.last is not None
    assert after.last.epoch == reached + 6
    assert after.totals["sources"]["trips"]["read"] == counts.total
    checks = {
        check["name"]: check["executionForLatestMaterialization"]
        for check in asset(deployed, "hourly_tips")["assetChecksOrError"]["checks"]
    }
    assert checks["conservation"]["status"] == "SUCCEEDED", checks["conservation"]
