"""The page of a job that ran: its graph and its counts are those of the engine; and of one that a driver runs, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.control.drivers import MINUTE, Landing
from tests.dagster.browser import open_browser, require_chromium
from tests.seeds import only_long
from tests.web.page_server import serving_store
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.state.store.store import JobStore
from tidemark.web.api.service import Service
from tidemark.web.page.document import STAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, t BIGINT, v BIGINT"


def require_counts(document: Any, results: int) -> None:
    """Check the counts of a job that has read 60 rows."""
    boxes = {(node["role"], node["name"]): node for node in document["graph"]["nodes"]}
    assert document["graph"]["note"] == ""
    assert boxes["source", "landing"]["rows_in"] == boxes["operator", "minutes"]["rows_in"] == 60
    assert boxes["step", "function-1"]["rows_out"] == 60, "what a function gives follows from what the window takes"
    assert boxes["operator", "minutes"]["rows_out"] == boxes["output", "minutes"]["rows_in"] == results
    assert {"absorb", "fire", "output", "publish"} <= set(document["stages"]) <= set(STAGES)


def test_the_counts_of_the_page_are_those_of_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    epochs = [[("ab"[number % 2], minute * MINUTE + number, number) for number in range(10)] for minute in range(6)]
    rows = tm.source("landing", tm.from_elements(epochs=epochs, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
    windows = rows.map(dict, returns=SCHEMA).key_by("k").window(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("minutes")
    job = tm.Job("landing", {"minutes": tm.delta(windows, str(tmp_path / "minutes"))}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, handle_signals=False)
    results = DeltaTable(str(tmp_path / "minutes")).to_pyarrow_table().num_rows
    assert results == 5 * 2, "of the minutes that have ended, for each key"
    require_counts(Service(JobStore.open(str(tmp_path / "store")), {}).pages.page("landing"), results)


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Landing]:
    found = Landing(tmp_path, LocalLauncher(tmp_path / "logs"))
    handle = found.start(found.want())
    try:
        yield found
    finally:
        found.launcher.kill(handle)
        found.wait_for_end(handle)


@only_long
@pytest.mark.slow
@pytest.mark.browser
def test_the_page_follows_a_driver_until_it_is_killed(landing: Landing, tmp_path: Path) -> None:
    landing.land(4)
    service = Service(landing.store, {"local": landing.launcher})
    with serving_store(service) as url, open_browser(require_chromium(), tmp_path / "profile") as page:
        page.open(f"{url}#landing")
        page.wait_for_text("40 read in all", "minutes", "delta", "Watermarks by split", seconds=240)
        landing.land(2)
        page.wait_for_text("60 read in all", seconds=60)
        document: Any = service.pages.page("landing")
        require_counts(document, len(landing.table()))
        assert document["pressure"]["busy_share"] is not None
        handle = service.require("landing")[1].process
        assert handle is not None
        assert handle.pid == document["driver"]["pid"]
        landing.launcher.kill(handle)
        page.wait_for_text("dead", "to do", seconds=60)
        assert page.evaluate("document.getElementById('state').dataset.tone") == "bad"
