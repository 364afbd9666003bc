"""A real job with a backlog: a supervisor scales it, and its driver takes parallelism and intake up without a restart.

The driver is a thread here; ``tests/control/test_commands.py`` has supervisors that start processes.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.control import landing_job
from tests.control.drivers import Landing, until
from tests.control.threads import ThreadLauncher
from tidemark.control.autoscaler.autoscaler import ACTOR, Autoscaler
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import read_generations
from tidemark.control.model.autoscaler_records import read_newest_record
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.reconcile.reconciler import Reconciler
from tidemark.control.supervise.supervisor import Supervisor
from tidemark.state.status.history import read_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETTINGS = AutoscalerSettings(
    mode="act",
    utilization_min=0.001,
    utilization_target=0.02,
    utilization_max=0.04,
    catch_up_ms=8_000,
    window_ms=5_000,
    stabilization_ms=2_000,
    scale_down_interval_ms=100_000,
)
"""A band so low that any machine is above it while there is a backlog."""


FILES = 6
"""Of a backlog, while the test needs one."""

ROWS = 10
"""Of a file."""


def test_a_job_with_a_backlog_is_scaled_up_while_its_driver_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = ThreadLauncher(spark)
    landing = Landing(tmp_path, launcher)
    monkeypatch.setenv("LANDING_ROOT", str(tmp_path))
    landing.land(FILES)
    # One file an epoch; the source itself allows two. The interval is so long that an epoch is short also on a busy machine.
    landing.want(code=f"{landing_job.__name__}:job", parallelism=1, intake=0.5, trigger_ms=2_500, autoscaler=SETTINGS)
    stop = threading.Event()
    store = landing.store
    supervisor = Supervisor(Reconciler(store, {"local": launcher}), stop, interval_ms=200, autoscaler=Autoscaler(store))
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        until(lambda: scaled_up(landing), "a decision to scale up", seconds=300)
        until(lambda: reads_more(landing), "an epoch that reads more", seconds=300)
        until(lambda: read(landing) >= len(landing.landed), "the end of the backlog", seconds=300)
        process = landing.status
        JobClient(store, "ada").stop("landing", "drain")
        until(lambda: (status := landing.status) is not None and status.state == "finished", "the drain", seconds=240)
    finally:
        stop.set()
        thread.join()
    record = read_newest_record(store, "landing")
    assert record is not None
    made = next(made for made in record.decisions if made.scales_up)
    assert (made.kind, made.parallelism_before, made.parallelism) == ("scaled", 1, 2), "as many as the driver has cores"
    assert {sample.parallelism for sample in record.samples} >= {2}
    assert max(sample.intake for sample in record.samples) > 0.5
    written = [generation for generation in read_generations(store, "landing", 20) if generation.by == ACTOR]
    assert written[-1].spec.parallelism == 2
    rows = [epoch.rows_in for epoch in read_history(store, "landing", 100)]
    assert rows[0] == ROWS, "one file"
    assert 2 * ROWS in rows, "two, once intake has grown"
    assert process is not None
    assert process.owner is not None
    assert process.owner.run_id == "attempt-1", "the process that the job began with"
    assert landing.table() == landing.expected(len(landing.landed) // ROWS)


def scaled_up(landing: Landing) -> bool:
    """Whether the autoscaler has scaled up."""
    keep_a_backlog(landing)
    record = read_newest_record(landing.store, "landing")
    return record is not None and any(made.scales_up for made in record.decisions)


def reads_more(landing: Landing) -> bool:
    """Whether an epoch has read two files, and the autoscaler has seen the driver at the new parallelism."""
    keep_a_backlog(landing)
    record = read_newest_record(landing.store, "landing")
    seen = record is not None and any(sample.parallelism == 2 for sample in record.samples)
    return seen and any(epoch.rows_in == 2 * ROWS for epoch in read_history(landing.store, "landing", 100))


def keep_a_backlog(landing: Landing) -> None:
    """Land more files where the backlog is nearly read."""
    if len(landing.landed) - read(landing) < FILES * ROWS // 2:
        landing.land(FILES // 2)


def read(landing: Landing) -> int:
    status = landing.status
    return 0 if status is None else status.totals["sources"].get("landing", {}).get("read", 0)
