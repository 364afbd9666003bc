from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.errors import CorruptStoreError, FormatError, InvalidNameError
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import OwnerInfo
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.status.status import JobStatus, OutputStatus, SourceStatus, list_jobs, read_status, write_status
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden" / "status-1.json"
MakeProgress = Callable[..., EpochProgress]


def golden_status(make_progress: MakeProgress) -> JobStatus:
    last = make_progress(4)
    return JobStatus(
        job="taxi",
        lineage="a1",
        state="failed",
        heartbeat_at=1_700_000_000_500,
        started_at=1_700_000_000_000,
        code_version="c0ffee",
        last=last,
        totals=add_epoch(add_epoch(empty_totals(), make_progress(3)), last),
        outputs={"tips": OutputStatus("delta", "/lake/tips", '{"type":"struct"}')},
        error="[TM200] the folder is gone. Fix: bring it back",
        owner=OwnerInfo("host-a", 4711, "boot:123", "run-1"),
    )


def test_reads_what_was_written(root: JobStore, make_progress: MakeProgress) -> None:
    status = golden_status(make_progress)
    write_status(root, status)
    assert read_status(root, "taxi") == status
    assert status.totals["sources"] == {"trips": {"read": 20, "passed": 18, "malformed": 2}}
    assert status.totals["operators"] == {"hourly": {"in": 18, "accepted": 16, "late": 2}}
    assert status.totals["outputs"] == {"tips": 6}


def test_a_job_that_never_ran_has_no_status(root: JobStore) -> None:
    assert read_status(root, "taxi") is None


def test_golden_status_is_written_and_read_as_ever(root: JobStore, make_progress: MakeProgress) -> None:
    status = golden_status(make_progress)
    write_status(root, status)
    assert root.get("taxi/status.json") == GOLDEN.read_bytes()
    root.put("other/status.json", GOLDEN.read_bytes())
    assert read_status(root, "other") == status


def test_golden_sources_are_written_and_read_as_ever(root: JobStore) -> None:
    sources = {"trips": SourceStatus("files"), "zones": SourceStatus("delta", "s3://lake/zones")}
    status = JobStatus("taxi", "a1", "running", 1_700_000_000_500, 1_700_000_000_000, sources=sources)
    write_status(root, status)
    golden = GOLDEN.with_name("status-sources-1.json").read_bytes()
    assert root.get("taxi/status.json") == golden
    root.put("taxi/status.json", golden)
    assert read_status(root, "taxi") == status


def test_damage_and_newer_formats_are_refused(root: JobStore, make_progress: MakeProgress) -> None:
    write_status(root, golden_status(make_progress))
    good = root.get("taxi/status.json")
    for bad in (b"", good[:-1], good.replace(b'"failed"', b'"paused"')):
        root.put("taxi/status.json", bad)
        with pytest.raises(CorruptStoreError, match=r"taxi/status.json.*Fix: "):
            read_status(root, "taxi")
    root.put("taxi/status.json", b'{"format":2}')
    with pytest.raises(FormatError):
        read_status(root, "taxi")


def test_lists_jobs_with_a_status_or_a_log(root: JobStore, owner: OwnerInfo, make_progress: MakeProgress) -> None:
    assert list_jobs(root) == []
    write_status(root, golden_status(make_progress))
    JobLog(root.at("bikes"), "bikes").acquire(owner)
    root.put("not a job/status.json", b"")
    root.put("files/data.csv", b"")
    root.put("loose", b"")
    assert list_jobs(root) == ["bikes", "taxi"]


def test_names_cannot_lead_elsewhere(root: JobStore) -> None:
    with pytest.raises(InvalidNameError):
        read_status(root, "../taxi")


def test_readers_load_neither_spark_nor_dagster_nor_arrow() -> None:
    code = (
        "import sys, tidemark.state.status.status, tidemark.state.status.history, tidemark.state.log.joblog, tidemark.state.gc.sweep;"
        "print([name for name in ('pyspark', 'dagster', 'pyarrow', 'deltalake', 'pandas') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
