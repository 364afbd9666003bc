"""A driver without Spark is killed at each of the state layer's crash points; the next one must leave what an undisturbed run leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import JobLog
from tidemark.state.status.history import read_history
from tidemark.state.store.store import JobStore

EPOCHS = 6

# Commits epochs of 150 staged files each, with retention, sweep and history after every one. The clock moves on by more than a
# lease per epoch and is far ahead of the disk's, so that files count as old.
DRIVER = """
import sys
from tidemark.state.status.history import HistoryWriter
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.gc.pins import Pins
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, StateFile
from tidemark.state.gc.retention import retire
from tidemark.state.store.store import JobStore
from tidemark.state.gc.sweep import sweep

class Clock:
    def __init__(self, start): self.now = start
    def now_ms(self): return self.now
    def monotonic(self): return 0.0
    def sleep(self, seconds): raise AssertionError

root, start, epochs = JobStore.open(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
clock = Clock(start)
log = JobLog(root.at("taxi"), "taxi", clock)
driver = log.acquire(current_owner())
history = HistoryWriter(root, "taxi")
history.backfill(log.epochs())
if driver.head.epoch is not None and driver.head.epoch.epoch == epochs - 1:
    for _ in range(2):
        clock.now += 40_000
        sweep(driver)
while driver.last is None or driver.last.epoch < epochs - 1:
    epoch = 0 if driver.last is None else driver.last.epoch + 1
    before = () if driver.last is None else driver.last.operators["u"].files
    added = []
    for number in range(150):
        path = f"state/u/{epoch}-{driver.term}-{number}"
        log.store.put(path, b"x")
        added.append(StateFile(f"state/u/{epoch}-{driver.term}-{number}", 1, 1, epoch, epoch, epoch))
    kept = tuple(file for file in before if file.epoch >= epoch - 1)
    progress = EpochProgress("taxi", "a1", epoch, 1, 1, 0, 0)
    driver.append(EpochRecord("taxi", "a1", None, driver.term, epoch, 1, str(epoch), progress,
                              operators={"u": OperatorState({}, kept + tuple(added))}))
    history.append(progress)
    if epoch == 1:
        Pins(log).put("kept", 1)
    retire(driver, retained_epochs=2)
    clock.now += 40_000
    sweep(driver)
driver.release()
"""


def drive(folder: Path, *, start: int, crash_at: str | None = None) -> int:
    environment = {key: value for key, value in os.environ.items() if key != "TIDEMARK_CRASH_AT"}
    if crash_at is not None:
        environment["TIDEMARK_CRASH_AT"] = crash_at
    command = [sys.executable, "-c", DRIVER, str(folder), str(start), str(EPOCHS)]
    return subprocess.run(command, env=environment, check=False).returncode


@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    [
        "term-taken",
        "segment-written:3",
        "history-written:3",
        "retention-begun:2",
        "floor-raised:2",
        "retention-done:2",
        "sweep-marked:3",
        "sweep-done:3",
    ],
)
def test_a_crash_leaves_what_an_undisturbed_run_leaves(point: str, tmp_path: Path) -> None:
    start = 4_000_000_000_000
    assert drive(tmp_path, start=start, crash_at=point) == -signal.SIGKILL
    # Nothing waits for the lease: the killed process is known to be gone.
    assert drive(tmp_path, start=start + 1_000_000) == 0
    assert drive(tmp_path, start=start + 2_000_000) == 0
    root = JobStore.open(str(tmp_path))
    log = JobLog(root.at("taxi"), "taxi")
    assert [record.epoch for record in log.epochs()] == [EPOCHS - 1, EPOCHS - 2]
    assert [line.epoch for line in read_history(root, "taxi")] == list(range(EPOCHS))
    records = [*log.epochs(), Pins(log).get("kept").record]
    assert [len(record.operators["u"].files) for record in records] == [300, 300, 300]
    needed = {file.path for record in records for file in record.operators["u"].files}
    assert {file.path for file in log.store.list("state")} == needed
