"""Alerts of jobs that are discarded, or whose folder is deleted: they are announced as over, once, whoever watches then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.control.alert_cases import HOUR, MINUTE, SECOND, T0, Mailbox, job_view, titles, watch
from tests.control.test_forks import forked
from tests.savepoints.delta_jobs import job_with_tables, run_epoch
from tests.savepoints.stored_jobs import StoredJob
from tidemark.control.alerts.delivery.delivery_queue import KEPT_MS, Receiver
from tidemark.control.alerts.engine.alert_checks import CheckVerdict, report_check
from tidemark.control.alerts.engine.alert_evaluator import AlertWatch
from tidemark.control.alerts.engine.alert_silences import Silence, add_silence
from tidemark.control.alerts.engine.gone_jobs import GONE, REASON
from tidemark.control.forks import discarding
from tidemark.control.forks.discarding import discard
from tidemark.control.observed.leases import LEASE_MS
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

FORK = "what-if"
BEHIND = f"{FORK}: watermark of trips is behind"


class Killed(BaseException):
    """The process was killed."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    made = job_with_tables(tmp_path)
    run_epoch(made)
    made.savepoints.take("a")
    made.driver.release()
    return made


@pytest.fixture
def root(job: StoredJob) -> JobStore:
    """A store with a fork that can be discarded."""
    forked(job, FORK).driver.release()
    return job.root


def told(root: JobStore, clock: ManualClock, mailbox: Mailbox, *, holder: str = "one") -> AlertWatch:
    """Return a watch that has sent an alert of the fork."""
    watching = watch(root, clock, {"ops": Receiver(mailbox)}, holder=holder)
    watching.evaluate([job_view(), job_view(FORK, lag_ms=HOUR)])
    assert titles(mailbox) == [BEHIND]
    return watching


@pytest.mark.parametrize("restarted", [False, True])
def test_alerts_of_a_discarded_fork_are_over(root: JobStore, clock: ManualClock, mailbox: Mailbox, *, restarted: bool) -> None:
    watching = told(root, clock, mailbox)
    discard(root, FORK)
    if restarted:
        watching.close()
        watching = watch(root, clock, {"ops": Receiver(mailbox)}, holder="two")
    for _ in range(3):
        assert watching.evaluate([job_view()]).pending == {"ops": 0}
        clock.advance(SECOND)
    assert titles(mailbox) == [BEHIND, f"{BEHIND}: over"]
    assert mailbox.taken[1].level == "resolved"
    assert REASON in mailbox.taken[1].text
    assert root.list(GONE) == ()
    assert FORK not in root.folders(), "the watch makes no folder for it again"


def test_alerts_of_a_job_whose_folder_is_deleted_are_over(tmp_path: Path, clock: ManualClock, mailbox: Mailbox) -> None:
    root = JobStore.open(str(tmp_path))
    watching = told(root, clock, mailbox)
    assert watching.evaluate([job_view()]).firing == {}
    assert titles(mailbox) == [BEHIND], "a job that is only not seen is not gone"
    watching.evaluate([job_view(), job_view(FORK, lag_ms=HOUR)])
    shutil.rmtree(tmp_path / FORK)
    for _ in range(3):
        watching.evaluate([job_view()])
    assert titles(mailbox) == [BEHIND, f"{BEHIND}: over"]
    assert not (tmp_path / FORK).exists()


@pytest.mark.parametrize("point", ["discard-tables-gone", "discard-specs-gone", "discard-nearly-done"])
def test_a_discard_that_is_killed_announces_them_once(
    job: StoredJob, root: JobStore, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, *, point: str
) -> None:
    def dies(name: str) -> None:
        if name == point:
            raise Killed

    watching = told(root, ManualClock(T0), mailbox)
    with monkeypatch.context() as patched:
        patched.setattr(discarding, "crash_point", dies)
        with pytest.raises(Killed):
            discard(root, FORK, clock=job.clock)
    watching.evaluate([job_view()])
    discard(root, FORK, clock=job.clock)
    for _ in range(3):
        watching.evaluate([job_view()])
    assert titles(mailbox) == [BEHIND, f"{BEHIND}: over"]


def test_their_end_waits_for_its_receivers_and_for_silences(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    log = Mailbox()
    watching = watch(root, clock, {"ops": Receiver(mailbox), "log": Receiver(log)})
    watching.evaluate([job_view(FORK, lag_ms=HOUR)])
    add_silence(root, Silence("move", until=clock.now_ms() + MINUTE, jobs="what*", at=clock.now_ms()))
    discard(root, FORK)
    mailbox.broken = True
    watching.evaluate([job_view()])
    assert titles(log) == [BEHIND]
    clock.advance(MINUTE)
    assert watching.evaluate([job_view()]).pending == {"ops": 1, "log": 0}
    assert watching.evaluate([job_view()]).pending == {"ops": 1, "log": 0}
    mailbox.broken = False
    clock.advance(LEASE_MS)
    again = watch(root, clock, {"ops": Receiver(mailbox), "log": Receiver(log)}, holder="two")
    assert again.evaluate([job_view()]).pending == {"ops": 0, "log": 0}
    assert titles(mailbox) == titles(log) == [BEHIND, f"{BEHIND}: over"]


def test_a_fork_of_the_same_name_begins_without_them(root: JobStore, clock: ManualClock, mailbox: Mailbox, job: StoredJob) -> None:
    report_check(root, CheckVerdict(FORK, "tips.not_null", passed=False, at=T0, text="3 nulls"))
    watching = watch(root, clock, {"ops": Receiver(mailbox)})
    watching.evaluate([job_view(FORK)])
    discard(root, FORK)
    forked(job, FORK).driver.release()
    for _ in range(2):
        watching.evaluate([job_view(FORK)])
        clock.advance(SECOND)
    check = f"{FORK}: check tips.not_null fails"
    assert titles(mailbox) == [check, f"{check}: over"]


def test_what_nobody_sends_is_deleted_after_a_week(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    told(root, clock, mailbox).close()
    discard(root, FORK)
    clock.set(root.list(GONE)[0].last_modified_ms + KEPT_MS)
    watch(root, clock, {"ops": Receiver(mailbox)}, holder="two", jobs=("taxi",)).evaluate([job_view()])
    assert titles(mailbox) == [BEHIND]
    assert root.list(GONE) == ()
