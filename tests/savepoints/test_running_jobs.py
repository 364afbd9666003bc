"""Savepoints of a job whose driver really runs: taken, forked, gone back to, with other code too, gone on from; and a rescale.

No row is lost or doubled: after each step the tables hold what plain counting says, and at the end what an undisturbed job's do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.killed import kill_at
from tests.savepoints.running import RunningJobs, Tables, Undisturbed, require_widened, seconds_for, tables_in
from tests.seeds import only_long
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.driver.driver import FINISHED
from tidemark.control.model.upgrade_records import newest_step
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.log.records import EpochRecord
from tidemark.state.status.log_folder import LOGS_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]

JOB: Final = "counts"
FORK: Final = "what-if"
RENAMES: Final = ("--map", "minutes=per-minute", "--column", "per-minute:total=amount")
"""Names that the mended code has for its state."""


@contextmanager
def undisturbed_process(jobs: RunningJobs) -> Iterator[None]:
    """Check that the block leaves the job's driver alone: the same process goes on, in the same term and lineage."""
    process, before = jobs.process(JOB), jobs.head(JOB)
    yield
    after = jobs.head(JOB)
    assert jobs.process(JOB) == process
    assert (after.term, after.lineage) == (before.term, before.lineage)
    assert after.epoch > before.epoch, "it went on"


def savepoint(jobs: RunningJobs, name: str) -> Savepoint:
    return SavepointStore(jobs.store, JOB).get(name)


@only_long
def test_a_running_job_is_saved_rescaled_forked_rewound_stopped_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.setenv(LOGS_VARIABLE, str(tmp_path / "logs"))
    jobs = RunningJobs(tmp_path)
    jobs.submit(JOB, cores=2)
    jobs.land(4)
    try:
        jobs.type_in("start", JOB)
        jobs.wait_for_rows(JOB)
        good = saved_while_it_runs(jobs)
        rescaled_without_a_restart(jobs)
        forked(jobs, good)
        upgraded(jobs, good)
        rewound(jobs, good)
        stopped_with_a_savepoint(jobs, good)
        drained(jobs, good, Undisturbed(jobs, spark))
    finally:
        jobs.end()


def saved_while_it_runs(jobs: RunningJobs) -> Tables:
    """Check that a savepoint is of the newest epoch, costs next to nothing and stops nobody; returns the tables that belong to it."""
    good, head = jobs.tables(JOB), jobs.head(JOB)
    with undisturbed_process(jobs):
        assert seconds_for(lambda: jobs.type_in("savepoint", "trigger", JOB, "--name", "good")) < 1
        record = savepoint(jobs, "good").record
        assert (record.lineage, record.epoch, record.offsets) == (head.lineage, head.epoch, head.offsets)
        jobs.land(1)
        jobs.wait_for_rows(JOB)
    return good


def rescaled_without_a_restart(jobs: RunningJobs) -> None:
    """Check that all epochs that begin once the driver knows of it have the new number of partitions, with the old process."""
    assert partitions(jobs.head(JOB)) == 2
    for parallelism in (7, 2):
        with undisturbed_process(jobs):
            jobs.type_in("rescale", JOB, str(parallelism))
            told = f"generation {require_spec(jobs.store, JOB).generation}: parallelism {parallelism} from the next epoch on"
            jobs.wait_for_word(JOB, told)
            before = jobs.head(JOB).epoch
            jobs.land(3)
            jobs.wait_for_rows(JOB)
            found = [jobs.joblog(JOB).read(epoch) for epoch in range(before + 1, jobs.head(JOB).epoch + 1)]
            assert [partitions(record) for record in found if record is not None] == [parallelism] * len(found)
    assert jobs.tables(JOB).counts == jobs.expected().counts


def partitions(record: EpochRecord) -> int:
    """Return how many partitions wrote an epoch's state: each has keys of the minute that is still open, and writes one file."""
    return sum(file.epoch == record.epoch for file in record.operators["minutes"].files)


def forked(jobs: RunningJobs, good: Tables) -> None:
    """Check that a fork with mended, wider code and other names reads on from the savepoint into tables of its own; the job goes on."""
    with undisturbed_process(jobs):
        words = ("fork", JOB, "--from", "good", "--as", FORK, "--code", "running_jobs:mended_wider")
        assert "the job has no operator of this uid" in jobs.type_in(*words, code=1)
        assert not (jobs.root / "store" / FORK).exists(), "what does not fit is not begun"
        jobs.type_in(*words, *RENAMES)
        jobs.land(2)
        jobs.wait_for_rows(FORK)
        jobs.wait_for_rows(JOB)
        begun = jobs.joblog(FORK).read(savepoint(jobs, "good").record.epoch)
        assert begun is not None
        assert begun.restored is not None
        assert (begun.restored.job, begun.restored.savepoint) == (JOB, "good")
        assert set(begun.operators) == {"per-minute", "hours"}
        jobs.type_in("stop", FORK)
    expected, found = jobs.expected(), tables_in(jobs.root / "store" / FORK / "outputs")
    mended = set(expected.mended_since(good).minutes) - set(good.minutes)
    assert found.minutes == sorted(mended), "what was out before the savepoint is not in it"
    assert found.hours == expected.hours
    require_widened(found, expected, good, minutes=4)
    assert jobs.tables(JOB).counts == expected.counts
    jobs.type_in("discard", FORK)
    assert not (jobs.root / "store" / FORK).exists()


def upgraded(jobs: RunningJobs, good: Tables) -> None:
    """Check that mended code with other names gets the job from the savepoint on, and that the tables are those of the code from there."""
    before, wrong = jobs.head(JOB), jobs.tables(JOB)
    words = ("upgrade", JOB, "--code", "running_jobs:mended", "--from", "good")
    assert "the job has no operator of this uid" in jobs.type_in(*words, code=1)
    assert jobs.head(JOB).lineage == before.lineage
    said = jobs.type_in(*words, *RENAMES)
    stored = savepoint(jobs, "good").record
    step = newest_step(jobs.store, JOB)
    assert step is not None
    assert (step.step, step.upgrade.back_to) == ("done", "good")
    assert f"{JOB} resumes after epoch {stored.epoch}" in said
    jobs.wait_for_rows(JOB)
    found, expected = jobs.tables(JOB), jobs.expected()
    assert found.counts == expected.mended_since(good).counts
    assert found.counts != wrong.counts == expected.counts
    back = savepoint(jobs, step.upgrade.savepoint)
    assert (back.record.lineage, back.info.kind) == (before.lineage, "before-upgrade"), "the way back is where the old code ended"
    assert require_spec(jobs.store, JOB).spec.code == "running_jobs:mended"


def rewound(jobs: RunningJobs, good: Tables) -> None:
    """Check that state and tables go back together, by a command that is killed between two tables, and given again.

    The code has other names for its state than the savepoint: it gets them again.
    """
    before, new = jobs.process(JOB), jobs.tables(JOB)
    words = ["rewind", JOB, "--to", "good", "--stop"]
    killed = kill_at("tests.savepoints.running:typed", "rewind-table-back", [*words, "--store", jobs.store.uri])
    assert "table of hours is back at version" in killed.output
    assert jobs.tables(JOB).counts == (new.minutes, good.hours) != good.counts
    # Without --stop it goes on all the same, and leaves the start to others.
    said = jobs.type_in(*words[:-1])
    assert "resuming the rewind to good" in said
    assert "table of minutes is back at version" in said
    head, stored = jobs.head(JOB), savepoint(jobs, "good").record
    assert jobs.tables(JOB) == good
    assert (head.epoch, head.operators["minutes"].files) == (stored.epoch, stored.operators["minutes"].files)
    assert head.lineage != stored.lineage
    assert jobs.seen(JOB).process == "gone"
    kinds = [item.info.kind for item in SavepointStore(jobs.store, JOB).list()]
    assert kinds == ["manual", "before-upgrade", "before-rewind"]
    jobs.land(1)
    assert f"{JOB}: running, epoch {stored.epoch}" in jobs.type_in(*words)
    jobs.wait_for_rows(JOB)
    assert jobs.process(JOB) != before
    assert jobs.tables(JOB).counts == jobs.expected().mended_since(good).counts
    assert set(jobs.head(JOB).operators) == {"per-minute", "hours"}


def stopped_with_a_savepoint(jobs: RunningJobs, good: Tables) -> None:
    """Check that a job that is stopped in the midst of its input ends well and with a savepoint, and goes on right after it."""
    jobs.land(8)
    said = jobs.type_in("stop", JOB, "--savepoint", "resting")
    assert "resting" in said
    seen, taken, head = jobs.seen(JOB), savepoint(jobs, "resting"), jobs.head(JOB)
    assert (seen.process, seen.exit_code, taken.info.kind) == ("gone", FINISHED, "stop")
    assert seen.control is not None
    assert (seen.control.lifecycle, seen.control.failures) == ("suspended", ())
    assert (taken.record.lineage, taken.record.epoch) == (head.lineage, head.epoch)
    assert head.totals["sources"]["landing"]["read"] < jobs.rows, "it did not read on to the end first"
    jobs.type_in("start", JOB)
    jobs.wait_for_rows(JOB)
    after = jobs.joblog(JOB).read(head.epoch + 1, lineage=head.lineage)
    assert after is not None
    assert after.term > head.term
    assert jobs.tables(JOB).counts == jobs.expected().mended_since(good).counts


def drained(jobs: RunningJobs, good: Tables, calm: Undisturbed) -> None:
    """Check the tables at the end of the input, and that every row was read once and none was late."""
    jobs.type_in("stop", JOB, "--drain")
    seen = jobs.seen(JOB)
    assert seen.control is not None
    assert (seen.control.lifecycle, seen.control.failures) == ("finished", ())
    assert jobs.tables(JOB).counts == calm.tables(end_of_input=True).mended_since(good).counts
    totals = jobs.head(JOB).totals
    assert totals["sources"]["landing"] == {"read": jobs.rows, "passed": jobs.rows, "malformed": 0}
    assert [totals["operators"][uid]["late"] for uid in ("per-minute", "hours")] == [0, 0]
