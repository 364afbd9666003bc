"""The pictures of the docs, taken of Dagster's own pages: a dead job on the graph, the launchpad, the chart, what columns are.

``TIDEMARK_PICTURES=docs/pictures scripts/run pytest tests/dagster/test_pictures.py`` takes those of the docs again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import pytest
import yaml

from tests.control.worlds import World
from tests.dagster.browser import Page, open_browser, require_chromium
from tests.dagster.control_world import launchers
from tests.dagster.fake_engine import FakeEpoch, window_rows
from tests.dagster.pictured_jobs import FOLDER, NAMES, pictured_job
from tests.dagster.web_server import CHECKOUT, WebServer, wait_for, web_server
from tests.seeds import only_long
from tidemark.assets import build_health_checks, build_output_asset_specs
from tidemark.clock import SYSTEM_CLOCK
from tidemark.sensors import SensorOptions, build_job_health_sensor, build_progress_sensor
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import read_status, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.browser]

MOST_BYTES = 80_000
EPOCHS = 90
MARKDOWN = "[...document.querySelectorAll('*')].find(e => !e.children.length && e.textContent.trim() === '[Show Markdown]')"
CHART = "(() => { const i = document.querySelector('img[src^=\"data:image/svg+xml\"]'); return i && i.complete ? i.naturalWidth : null })()"
SHOWN = "(() => {{ const e = [...document.querySelectorAll('*')].filter(e => !e.children.length && e.textContent.includes({text!r})).pop();"
SCROLL = SHOWN + " if (e) e.scrollIntoView({{block: 'center'}}); return e ? true : null }})()"


@dataclass(frozen=True)
class Deployed:
    """The pages, and where the pictures go."""

    server: WebServer
    pictures: Path


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    home = tmp_path_factory.mktemp("pictured")
    workspace = home / "workspace.yaml"
    place = f"{{relative_path: {CHECKOUT}/tests/dagster/pictured.py, working_directory: {CHECKOUT}, location_name: city}}"
    workspace.write_text(f"load_from:\n  - python_file: {place}\n")
    world = World(store=JobStore.open(str(home / "store")))
    world.clock = ManualClock(SYSTEM_CLOCK.now_ms() - 60_000)
    for name in NAMES:
        world.submit(name, code=f"tests.dagster.pictured_jobs:{name}")
    world.run(world.reconciler(), 20)
    for name in NAMES:
        commit(world, name)
    world.driver("rides").end(-9)
    with web_server(home / "dagster", workspace, {FOLDER: str(home)}, daemon=False) as server:
        with dg.DagsterInstance.from_config(str(home / "dagster")) as instance:
            report(instance, world, home)
        yield Deployed(server, Path(os.environ.get("TIDEMARK_PICTURES", str(home))))


def commit(world: World, job: str) -> None:
    """Add epochs to the job's history, some of them with a lag and late rows; the last one is its status."""
    known = read_status(world.store, job)
    assert known is not None
    assert known.last is not None
    writer, last = HistoryWriter(world.store, job), known.last
    for number in range(EPOCHS):
        busy = 40 + 25 * (number % 12) + (200 if 50 <= number < 60 else 0)
        late = (number % 7) * 3 if 48 <= number < 66 else number % 2
        behind = 300_001 + (60_000 * (number - 48) if 48 <= number < 60 else 0)
        epoch = FakeEpoch(window_rows((1, number, 0, busy), (2, number, 0, busy // 2)), accepted=busy, late=late, behind_ms=behind)
        last = replace(epoch.progress(known.last.epoch + 1 + number, known.lineage), job=job)
        writer.append(last)
    write_status(world.store, replace(known, last=last))


def report(instance: dg.DagsterInstance, world: World, folder: Path) -> None:
    """Let the sensors tick, and report what they find."""
    jobs = [pictured_job(folder, name) for name in NAMES]
    specs = [spec for job in jobs for spec in build_output_asset_specs(job)]
    checks = [check for job in jobs for check in build_health_checks(job, launchers=lambda: launchers(world))]
    repository = dg.Definitions(assets=specs, asset_checks=checks).get_repository_def()
    for sensor in (
        build_progress_sensor(specs, options=SensorOptions(store=world.store.uri), clock=world.clock),
        build_job_health_sensor(world.store.uri, alert_key=None, launchers=lambda: launchers(world), clock=world.clock),
    ):
        result = sensor(dg.build_sensor_context(instance=instance, repository_def=repository))
        assert isinstance(result, dg.SensorResult)
        for event in result.asset_events or ():
            instance.report_runless_asset_event(event)


def keep(page: Page, deployed: Deployed, name: str) -> None:
    """Keep a picture of the page."""
    # Pages move what they show into its place.
    SYSTEM_CLOCK.sleep(3)
    path = deployed.pictures / f"{name}.png"
    page.screenshot(path)
    assert 5_000 < path.stat().st_size < MOST_BYTES, path.stat().st_size


@only_long
def test_pictures(deployed: Deployed, tmp_path: Path) -> None:
    url = deployed.server.url
    with open_browser(require_chromium(), tmp_path / "profile") as page:
        page.command("Emulation.setDeviceMetricsOverride", width=1200, height=1060, deviceScaleFactor=1, mobile=False)
        page.open(f"{url}/locations/city/asset-groups/rides/lineage")
        page.wait_for_text("hourly", "late", "rejected", "malformed", "trips", "0 / 2 Passed", seconds=240)
        keep(page, deployed, "dead-job")
        page.command("Emulation.setDeviceMetricsOverride", width=1200, height=680, deviceScaleFactor=1, mobile=False)
        stop = {"stop": {"how": "drain", "savepoint": "", "why": "the lake is moved"}}
        config = quote(yaml.safe_dump({"ops": {"operate_fares": {"config": {"job": "fares", "do": stop}}}}, sort_keys=False))
        page.open(f"{url}/locations/city/jobs/fares_operate/playground/setup?config={config}")
        page.wait_for_text("Launch Run", "operate_fares", "the lake is moved", seconds=240)
        keep(page, deployed, "operate")
        page.open(f"{url}/assets/fares/hourly?view=overview")
        page.wait_for_text("Fares by zone and hour", "Sum of the fares, in dollars", "[Show Markdown]", seconds=240)
        assert page.evaluate(SCROLL.format(text="Sum of the fares, in dollars"))
        keep(page, deployed, "columns")
        page.command("Emulation.setDeviceMetricsOverride", width=1400, height=760, deviceScaleFactor=1, mobile=False)
        page.evaluate(f"{MARKDOWN}.click()")
        wait_for("the chart", lambda: page.evaluate(CHART), seconds=60)
        keep(page, deployed, "chart")
