from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tidemark.semantics.watermarks.watermarks import SourceState, SplitState
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress, OperatorProgress, OutputProgress, SourceProgress, SplitProgress
from tidemark.state.log.records import (
    EpochRecord,
    OperatorState,
    OutputRecord,
    OwnerInfo,
    SourceLogFile,
    SourceLogRef,
    StagedFile,
    StateFile,
)
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.store.store import JobStore


@dataclass
class ManualClock:
    now: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


def state_file(number: int, *, epoch: int = 0, size: int = 4096) -> StateFile:
    return StateFile(f"state/hourly/{epoch:06d}-{number:06d}.parquet", 10, size, number * 1000, number * 1000 + 999, epoch)


def epoch_progress(epoch: int, *, job: str = "taxi", lineage: str = "a1") -> EpochProgress:
    return EpochProgress(
        job=job,
        lineage=lineage,
        epoch=epoch,
        processing_time=1_700_000_000_000 + epoch,
        duration_ms=250,
        rows_in=10,
        rows_out=3,
        sources={"trips": SourceProgress(10, 9, 1, 5_000, 1_000, "p0", {"p0": SplitProgress(9, 5_000, 6_000, idle=False)})},
        operators={"hourly": OperatorProgress(9, 8, 1, 5_000, 2, 1, 10, 4096, 1, "late", 0, (0, 3_600_000), (0,))},
        outputs={"tips": OutputProgress(3, 1, 2048, "delta", "/lake/tips")},
        stages={"plan": 5, "operators": 200},
        spark_jobs=3,
    )


def epoch_record(epoch: int, *, term: int = 1, files: tuple[StateFile, ...] = (), job: str = "taxi", lineage: str = "a1") -> EpochRecord:
    progress = epoch_progress(epoch, job=job, lineage=lineage)
    return EpochRecord(
        job=job,
        lineage=lineage,
        parent=None,
        term=term,
        epoch=epoch,
        processing_time=1_700_000_000_000 + epoch,
        offsets='v2\n{"batchWatermarkMs":0}\n{"trips":{"logOffset":3}}',
        progress=progress,
        source_logs={"trips": SourceLogRef((SourceLogFile("3", "sources/trips/1-3", 120, "ab" * 32),))},
        sources={"trips": SourceState({"p0": SplitState(5_000, 6_000, 1_700_000_000_000, rows=9)}, 5_000)},
        operators={"hourly": OperatorState({"keys": ["zone"], "size_ms": 3_600_000}, files, 5_000, {"accepted": 8})},
        outputs={
            "tips": OutputRecord("delta", "/lake/tips", '{"type":"struct"}', (StagedFile("a.parquet", 3, 2048, {"numRecords": 3}),), 3)
        },
        totals=add_epoch(empty_totals(), progress),
        code_version="c0ffee",
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def root(tmp_path: Path) -> JobStore:
    return JobStore.open(str(tmp_path / "store"))


@pytest.fixture
def log(root: JobStore, clock: ManualClock) -> JobLog:
    return JobLog(root.at("taxi"), "taxi", clock)


@pytest.fixture
def owner() -> OwnerInfo:
    return current_owner("run-1")


@pytest.fixture
def elsewhere(owner: OwnerInfo) -> OwnerInfo:
    """A process on another host, of which nothing can be known from here."""
    return replace(owner, host="another-host", pid=4711, run_id="run-2")


@pytest.fixture
def make_record() -> Callable[..., EpochRecord]:
    return epoch_record


@pytest.fixture
def make_file() -> Callable[..., StateFile]:
    return state_file


@pytest.fixture
def make_progress() -> Callable[..., EpochProgress]:
    return epoch_progress
