"""Stores whose path has spaces, or an account, that earlier builds percent-encoded: no state is begun again, no log has another place."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidemark as tm
from tests.savepoints.stored_jobs import StoredJob
from tidemark.control.desired.spec_store import change_spec
from tidemark.control.launch.run_folder import run_folder
from tidemark.control.model.spec import JobSpec
from tidemark.errors import DefinitionError
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock


def test_a_driver_does_not_begin_a_job_again_whose_state_an_earlier_build_put_elsewhere(tmp_path: Path) -> None:
    """A driver gives its session to the run, which then checked nothing; the job was submitted, so its folder exists."""
    old, root = JobStore.open(str(tmp_path / "my%20jobs")), JobStore.open(str(tmp_path / "my jobs"))
    StoredJob(old, "rides").commit()
    change_spec(root, "rides", lambda _: JobSpec("rides", "rides:job"), by="ada", why="", clock=ManualClock())
    trips = tm.source("trips", tm.from_elements([], schema="id INT, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at"))
    job = tm.Job("rides", outputs={"out": tm.delta(trips, str(tmp_path / "out"))})
    session = object.__new__(SparkSession)  # nothing is done with it
    with pytest.raises(DefinitionError, match=r"the state of the job is in .*my%20jobs/rides") as raised:
        tm.run(job, store=root.uri, spark=session, handle_signals=False)
    there = f"{tmp_path}/my%20jobs/rides"
    assert f"`cp -a {there}/. '{tmp_path}/my jobs/rides' && rm -r {there}`" in raised.value.fix
    assert newest_epoch(root, "rides") is None


@pytest.mark.parametrize(("address", "hashed"), [
    ("file:///srv/my jobs", "file:///srv/my%20jobs"),
    ("file:///srv/jobs", "file:///srv/jobs"),
    ("s3://lake/jobs", "s3://lake/jobs"),
    ("abfss://lake@ours.dfs.core.windows.net/jobs", "az://lake/jobs"),
])  # fmt: skip
def test_the_folder_of_a_jobs_logs_has_the_name_that_it_always_had(tmp_path: Path, address: str, hashed: str) -> None:
    folder = run_folder(address, "rides", tmp_path)
    assert folder.logs == tmp_path / hashlib.sha256(hashed.encode()).hexdigest()[:8] / "rides"
    assert folder.scratch.parent.name == folder.logs.parent.name
