"""What the autoscaler writes down: its form is for ever."""

from __future__ import annotations

from pathlib import Path

from obstore.store import MemoryStore

from tidemark.control.desired.spec_store import change_spec, read_spec
from tidemark.control.model.autoscaler_records import (
    AutoscalerRecord,
    LoadSample,
    ScalingDecision,
    ScalingEvaluation,
    create_record,
    read_newest_record,
)
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.model.paths import AUTOSCALER, SPECS, numbered
from tidemark.control.model.spec import JobSpec
from tidemark.locations import Location
from tidemark.state.status.driver_load import Load, Work
from tidemark.state.status.status import JobStatus, read_status, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_700_000_000_000
RECORD = AutoscalerRecord(
    "fares",
    NOW,
    (
        LoadSample(NOW - 60_000, "attempt-1@5", 6, 30_000, 60_000, 2, 1.0, 5_000),
        LoadSample(NOW, "attempt-1@5", 12, 60_000, 90_000, 2, 0.5, None),
    ),
    ScalingEvaluation(NOW, 2, 4, 0.5, 1.0, "a load", "quiet time 08:00-18:00 (UTC)", 1.25, 1_000.0, 800.0, 5_000),
    (
        ScalingDecision(NOW - 90_000, "scaled", 1, 2, 1.0, 0.5, "a load", 400.5, 100.0, 7, 0.75),
        ScalingDecision(NOW, "advised", 2, 4, 0.5, 1.0, "more"),
    ),
    {"advised": 1, "scaled": 1},
)
SPEC = JobSpec(
    "fares",
    "fares:job",
    parallelism=2,
    intake=0.5,
    autoscaler=AutoscalerSettings(mode="act", max_parallelism=8, quiet_times=("Mon-Fri 08:00-18:00",), zone="Asia/Tokyo"),
)
STATUS = JobStatus(
    "fares",
    "a1",
    "running",
    NOW,
    NOW,
    load=Load(10_000, 1, 10_000, 0.5, 5_000, 100, 10, work=Work(1, 5_000, 100, 2, cores=8, max_intake=16.0, backlog_rows=7)),
)


def memory() -> JobStore:
    return JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())


def write_all(root: JobStore) -> dict[str, str]:
    """Write each kind of record; returns the golden file of each path."""
    assert create_record(root, RECORD, 3)
    change_spec(root, "fares", lambda _: SPEC, by="ada", why="a test", clock=ManualClock(NOW))
    write_status(root, STATUS)
    return {
        f"fares/{numbered(AUTOSCALER, 3)}": "autoscaler-1.json",
        f"fares/{numbered(SPECS, 1)}": "spec-autoscaler-1.json",
        "fares/status.json": "status-work-1.json",
    }


def test_golden_records_are_written_as_ever() -> None:
    root = memory()
    for path, golden in write_all(root).items():
        assert root.get(path) == (GOLDEN / golden).read_bytes(), path


def test_golden_records_are_read_as_ever() -> None:
    root = memory()
    for path, golden in write_all(memory()).items():
        root.put(path, (GOLDEN / golden).read_bytes())
    assert read_newest_record(root, "fares") == RECORD
    spec = read_spec(root, "fares")
    assert spec is not None
    assert spec.spec == SPEC
    assert read_status(root, "fares") == STATUS


def test_one_process_creates_a_record_and_few_are_kept() -> None:
    root = memory()
    assert read_newest_record(root, "fares") is None
    for number in range(1, 9):
        assert create_record(root, AutoscalerRecord("fares", number), number)
        assert not create_record(root, AutoscalerRecord("fares", 99), number)
    found = read_newest_record(root, "fares")
    assert found is not None
    assert found.at == 8
    assert len(root.list(f"fares/{AUTOSCALER}")) == 3
