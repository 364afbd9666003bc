"""The page of a job that a driver runs, in a process of its own: its graph and its counts are those of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control.drivers import Landing
from tests.dagster.browser import open_browser, require_chromium
from tests.web.page_server import serving_store
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.web.api.service import Service
from tidemark.web.page.document import STAGES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.browser]


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Landing]:
    found = Landing(tmp_path, LocalLauncher(tmp_path / "logs"))
    handle = found.start(found.want())
    try:
        yield found
    finally:
        found.launcher.kill(handle)
        found.wait_for_end(handle)


def test_the_page_follows_a_driver_until_it_is_killed(landing: Landing, tmp_path: Path) -> None:
    landing.land(4)
    service = Service(landing.store, {"local": landing.launcher})
    with serving_store(service) as url, open_browser(require_chromium(), tmp_path / "profile") as page:
        page.open(f"{url}#landing")
        page.wait_for_text("40 read in all", "minutes", "delta", "Watermarks by split", seconds=240)
        landing.land(2)
        page.wait_for_text("60 read in all", seconds=60)
        document: Any = service.pages.page("landing")
        boxes = {(node["role"], node["name"]): node for node in document["graph"]["nodes"]}
        assert document["graph"]["note"] == ""
        assert boxes["source", "landing"]["rows_in"] == boxes["operator", "minutes"]["rows_in"] == 60
        assert boxes["step", "function-1"]["rows_out"] == 60, "what a function gives follows from what the window takes"
        assert boxes["operator", "minutes"]["rows_out"] == boxes["output", "minutes"]["rows_in"] == len(landing.table())
        assert {"absorb", "fire", "output", "publish"} <= set(document["stages"]) <= set(STAGES)
        assert document["pressure"]["busy_share"] is not None
        handle = service.require("landing")[1].process
        assert handle is not None
        assert handle.pid == document["driver"]["pid"]
        landing.launcher.kill(handle)
        page.wait_for_text("dead", "to do", seconds=60)
        assert page.evaluate("document.getElementById('state').dataset.tone") == "bad"
