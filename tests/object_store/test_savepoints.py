"""Savepoints of jobs on S3: what is needed stays and all else goes, and commands show, export, import and dispose of them."""

from __future__ import annotations

import json

from click.testing import CliRunner
from hypothesis import HealthCheck, settings

from tests.object_store.s3_server import server
from tests.savepoints.stored_jobs import LEASE, StoredJob, clock_ahead
from tests.savepoints.test_store_property import ManyJobs
from tidemark.cli.program.main import main
from tidemark.savepoints.model.restore import Restore
from tidemark.state.store.store import JobStore


class ManyJobsOnS3(ManyJobs):
    """The same, with its store on S3."""

    def new_root(self) -> JobStore:
        return server().new_store()


TestManyJobsOnS3 = ManyJobsOnS3.TestCase
TestManyJobsOnS3.settings = settings(max_examples=2, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck))


def said(root: JobStore, *arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--store", root.uri])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_savepoint_from_its_taking_to_its_disposal(root: JobStore) -> None:
    job = StoredJob(root)
    for _ in range(3):
        job.commit(2)
    job.driver.release()
    export = f"s3://{root.location.bucket}/exports/a"
    taken = json.loads(said(root, "savepoint", "trigger", "taxi", "--name", "a", "--note", "why", "--label", "k=v", "--json"))
    assert (taken["name"], taken["epoch"], taken["kind"], taken["labels"], taken["note"]) == ("a", 2, "manual", {"k": "v"}, "why")
    said(root, "savepoint", "trigger", "taxi", "--name", "b", "--epoch", "0")
    assert [line.split()[0] for line in said(root, "savepoint", "list", "taxi").splitlines()[1:]] == ["a", "b"]
    assert "operator hourly: 60 rows" in said(root, "savepoint", "show", "taxi", "a")
    assert "state rows 20 -> 60 (+40)" in said(root, "savepoint", "diff", "taxi", "b", "a")
    assert f"at {export}" in said(root, "savepoint", "export", "taxi", "a", export)
    assert "c: epoch 2" in said(root, "savepoint", "import", "other", export, "--name", "c")
    assert [file.path for file in root.at("other/state").list()] != []
    said(root, "savepoint", "dispose", "taxi", "a", "b")
    assert said(root, "savepoint", "list", "taxi") == "taxi has no savepoints\n"


def test_a_fork_reads_its_files_where_they_lie_until_it_has_its_own(root: JobStore) -> None:
    job = StoredJob(root)
    job.commit(3)
    job.savepoints.take("a", kind="periodic")
    fork = StoredJob(root, "fork", job.clock)
    fork.restore(Restore("a", job="taxi"))
    job.commit(1, dropped=3)
    assert job.savepoints.retire() == ()
    job.savepoints.dispose("a")
    job.sweep_thoroughly(retained=1)
    assert len(job.state_files()) == 4, "the fork reads three of them"
    fork.commit(1, dropped=3)
    fork.sweep_thoroughly(retained=1)
    job.sweep_thoroughly(retained=1)
    assert len(job.state_files()) == 1


def test_a_sweep_comes_to_an_end_though_marks_of_folders_stay(root: JobStore) -> None:
    job = StoredJob(root, clock=clock_ahead())
    job.commit()
    job.folder.put("state/hourly/orphan.parquet", b"x")
    for folder in ("", "state/", "state/hourly/", "state/hourly/000000000007-0123abcd/"):
        assert server().put(f"/{root.location.bucket}/jobs/taxi/{folder}") == 200
    job.clock.advance(LEASE + 1)
    assert job.keep_house().deleted == ()
    job.clock.advance(LEASE + 1)
    assert job.keep_house().deleted == ("state/hourly/orphan.parquet",)
    for _ in range(2):
        job.clock.advance(LEASE + 1)
        assert job.keep_house().deleted == ()
