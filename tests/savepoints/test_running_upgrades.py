"""Upgrades of jobs whose drivers really run, while who carries them out is killed: supervisors bring them to an end, and no row is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.control.drivers import until
from tests.killed import kill_at
from tests.savepoints.running import MINUTE, RunningJobs, Tables, Undisturbed, require_widened
from tests.seeds import only_long
from tests.soak.keepers import Keeper
from tidemark.control.desired.attempts import newest_attempt
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.model.upgrade_records import UpgradeStep, newest_step
from tidemark.control.upgrade.upgrade_worker import upgrading_reconciler
from tidemark.crashpoints import KILLED
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.upgrade_lock import read_upgrade_lock
from tidemark.state.log.process_identity import process_info
from tidemark.state.status.log_folder import LOGS_VARIABLE
from tidemark.testing.crash import Ending

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash, only_long]

SAME: Final = "same"
"""Its new code keeps the state as it is; its command dies when the savepoint is taken, before it could write that down."""
WIDER: Final = "wider"
"""Its state has to be migrated; its command dies when the old code has ended, before the savepoint."""
BROKEN: Final = "broken"
"""Its new code fails after some epochs; the supervisor dies when one of its tables is put back, and the other is not."""
JOBS: Final = (SAME, WIDER, BROKEN)

GOOD_FILES: Final = 9
"""The new code of ``BROKEN`` fails at the rows of later ones."""
BETWEEN_TABLES: Final = "rewind-table-back"


@contextmanager
def supervised(jobs: RunningJobs, name: str, *, crash_at: str | None = None) -> Iterator[Keeper]:
    """Let a supervisor keep the jobs while the block runs; the drivers live on."""
    command = [str(Path(sys.executable).with_name("tidemark")), "supervise", "--store", jobs.store.uri, "--every", "1 second"]
    keeper = Keeper(name, command, jobs.root, {"TIDEMARK_CRASH_AT": crash_at} if crash_at is not None else {})
    try:
        yield keeper
    finally:
        keeper.kill(whole=True)


def step_of(jobs: RunningJobs, job: str) -> UpgradeStep:
    found = newest_step(jobs.store, job)
    assert found is not None
    return found


def test_upgrades_come_to_their_end_whoever_is_killed_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(LOGS_VARIABLE, str(tmp_path / "logs"))
    jobs = RunningJobs(tmp_path)
    jobs.land(4)
    for job in JOBS:
        jobs.submit(job, cores=1)
    try:
        upgrading_reconciler(jobs.store, {"local": jobs.launcher}).reconcile_all()
        for job in JOBS:
            jobs.wait_for_rows(job)
        # Nobody else is there yet who could be faster with a step than a command.
        jobs.land(3)
        with ThreadPoolExecutor(2) as both:
            commands = [
                both.submit(killed_command, jobs, SAME, "running_jobs:again", "upgrade-acted:2"),
                both.submit(killed_command, jobs, WIDER, "running_jobs:wider", "upgrade-recorded:2"),
            ]
        for each in commands:
            each.result()
        require_left_behind(jobs, SAME, "running_jobs:again", saved=1)
        require_left_behind(jobs, WIDER, "running_jobs:wider", saved=0)
        old, files = jobs.tables(WIDER), jobs.files_read(WIDER)
        jobs.wait_for_rows(BROKEN)
        good = jobs.tables(BROKEN)
        jobs.type_in("upgrade", BROKEN, "--code", "running_jobs:broken", "--env", f"BREAKS_AT={GOOD_FILES * MINUTE}", "--no-wait")
        with supervised(jobs, "first", crash_at=BETWEEN_TABLES) as first:
            kill_between_tables(jobs, first, good)
        with supervised(jobs, "second") as second:
            jobs.land(2)
            require_done(jobs, SAME, "running_jobs:again")
            require_done(jobs, WIDER, "running_jobs:wider")
            require_rolled_back(jobs)
            drain(jobs)
            assert second.end() == 0
    finally:
        jobs.end()
    expected = Undisturbed(jobs, request.getfixturevalue("spark")).tables(end_of_input=True)
    for job in JOBS:
        assert jobs.tables(job).counts == expected.counts
    require_widened(jobs.tables(WIDER), expected, old, minutes=files)


def killed_command(jobs: RunningJobs, job: str, code: str, point: str) -> Ending:
    """Give the command in a process of its own that is killed at a point."""
    words = ["upgrade", job, "--code", code, "--good-epochs", "2", "--store", jobs.store.uri]
    return kill_at("tests.savepoints.running:typed", point, words)


def require_left_behind(jobs: RunningJobs, job: str, code: str, *, saved: int) -> None:
    """Check what a command that was killed leaves behind: the job stands still, and says where it is heading for."""
    step = step_of(jobs, job)
    assert (step.step, step.heading) == ("saving", "done")
    assert len(SavepointStore(jobs.store, job).list()) == saved
    assert f"is saving, heading for {code}" in jobs.type_in("status", job)
    assert jobs.seen(job).process == "gone"


def kill_between_tables(jobs: RunningJobs, supervisor: Keeper, good: Tables) -> None:
    """Let the new code write to the tables and then fail; the supervisor is killed when it has put one of them back."""
    jobs.wait_for(BROKEN, lambda: step_of(jobs, BROKEN).step == "watching", "the new code")
    jobs.land(GOOD_FILES - jobs.landed)
    jobs.wait_for_rows(BROKEN)
    new = jobs.tables(BROKEN)
    assert len(new.minutes) > len(good.minutes)
    jobs.land(1)
    jobs.wait_for(BROKEN, lambda: (facts := process_info(supervisor.pid)) is None or facts.is_zombie, "the supervisor's death")
    assert f"{KILLED} {BETWEEN_TABLES}" in supervisor.log.read_text(encoding="utf-8")
    step, found = step_of(jobs, BROKEN), jobs.tables(BROKEN)
    assert (step.step, step.heading) == ("putting-back", "rolled-back")
    assert "is putting back, heading for running_jobs:plain" in jobs.type_in("status", BROKEN)
    assert found.counts in ((good.minutes, new.hours), (new.minutes, good.hours)), "one of them is back"


def require_done(jobs: RunningJobs, job: str, code: str) -> None:
    """Wait until an upgrade has ended, and check that the new code has the job, without a failure or a driver too many."""
    until(lambda: step_of(jobs, job).ended, f"the end of the upgrade of {job}", seconds=180)
    step, seen = step_of(jobs, job), jobs.seen(job)
    assert (step.step, step.upgrade.after.code) == ("done", code)
    assert step.reason.endswith("good epochs")
    assert require_spec(jobs.store, job).spec.code == code
    assert seen.control is not None
    assert (seen.control.failures, newest_attempt(jobs.store, job)) == ((), 2)
    (saved,) = SavepointStore(jobs.store, job).list()
    assert (saved.name, saved.info.kind, saved.record.epoch) == (step.upgrade.savepoint, "before-upgrade", step.epoch)
    assert read_upgrade_lock(jobs.store.at(job)) is None


def require_rolled_back(jobs: RunningJobs) -> None:
    """Wait until the upgrade that failed has ended, and check that the old code has the job and reads all anew."""
    until(lambda: step_of(jobs, BROKEN).ended, "the end of the upgrade that failed", seconds=180)
    step = step_of(jobs, BROKEN)
    assert step.step == "rolled-back"
    assert "attempt 2 failed" in step.reason
    assert "DIVIDE_BY_ZERO" in step.reason
    assert require_spec(jobs.store, BROKEN).spec.code == "running_jobs:plain"
    assert read_upgrade_lock(jobs.store.at(BROKEN)) is None
    jobs.wait_for_rows(BROKEN, after_failures=True)


def drain(jobs: RunningJobs) -> None:
    """Let all jobs read to the end and close all windows."""
    for job in JOBS:
        jobs.type_in("stop", job, "--drain", "--no-wait")
    for job in JOBS:
        jobs.wait_for_lifecycle(job, "finished")
        assert jobs.head(job).totals["sources"]["landing"] == {"read": jobs.rows, "passed": jobs.rows, "malformed": 0}
