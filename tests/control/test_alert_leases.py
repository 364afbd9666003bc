"""Several watches, of the same jobs and of others: of each job one sends its alerts, and what others watch is left to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.control.alert_cases import HOUR, SECOND, T0, Mailbox, job_view, titles, watch
from tidemark.control.alerts.delivery.delivery_queue import Receiver
from tidemark.control.alerts.engine import alert_evaluator
from tidemark.control.alerts.engine.alert_checks import CheckVerdict, report_check
from tidemark.control.alerts.engine.alert_evaluator import AlertWatch
from tidemark.control.alerts.engine.alert_store import AlertRecord, read_alerts
from tidemark.control.alerts.engine.watch_leases import WatchRecord
from tidemark.control.model.paths import ALERT_LEASES
from tidemark.control.observed.leases import KIND, LEASE_MS
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

BEHIND = "taxi: watermark of trips is behind"


@pytest.fixture
def root(tmp_path: Path) -> JobStore:
    return JobStore.open(str(tmp_path))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


def test_of_watches_that_overlap_one_sends_the_alerts_of_each_job(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    """A sensor of some jobs, then a supervisor of all: the sensor keeps its jobs, and the supervisor does not wait for it."""
    sensor = watch(root, clock, {"dagster": Receiver(mailbox)}, holder="sensor", jobs=("taxi", "bikes"))
    supervisor = watch(root, clock, {"dagster": Receiver(mailbox)}, holder="supervisor")
    for number in range(8):
        views = [job_view(job, lag_ms=HOUR if number % 2 else 0) for job in ("taxi", "bikes", "buses")]
        own, all_ = sensor.evaluate(views[:2]), supervisor.evaluate(views)
        assert (own.is_leader, own.left_to_others) == (True, ())
        assert (all_.is_leader, all_.left_to_others) == (True, ("bikes", "taxi"))
        clock.advance(LEASE_MS // 3)
    for job in ("taxi", "bikes", "buses"):
        began, ended = (f"{job}: watermark of trips is behind{ending}" for ending in ("", ": over"))
        assert [title for title in titles(mailbox) if title.startswith(job)] == [began, ended] * 3 + [began]


def test_watches_of_separate_jobs_do_not_wait_for_each_other(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    watches = {job: watch(root, clock, {"ops": Receiver(mailbox)}, holder=job, jobs=(job,)) for job in ("taxi", "bikes", "buses")}
    for _ in range(6):
        for job, watching in watches.items():
            assert watching.evaluate([job_view(job, health="failed")]).is_leader
            clock.advance(LEASE_MS // 4)
    assert sorted(titles(mailbox)) == ["bikes: not healthy", "buses: not healthy", "taxi: not healthy"]


def dies(_watching: AlertWatch, _root: JobStore, clock: ManualClock) -> None:
    """Its machine is gone: nothing is known of it until its lease ends."""
    clock.advance(LEASE_MS)


def ends(watching: AlertWatch, _root: JobStore, _clock: ManualClock) -> None:
    watching.close()


def is_killed_here(_watching: AlertWatch, root: JobStore, _clock: ManualClock) -> None:
    """The process of this machine that its lease names has ended: nothing is waited for."""
    path = root.list(ALERT_LEASES)[0].path
    record = read_document(root, path, kind=KIND, form=WatchRecord)
    assert record is not None
    assert record.owner is not None
    write_document(root, path, kind=KIND, value=replace(record, owner=replace(record.owner, started="another process of this number")))


@pytest.mark.parametrize("vanishes", [dies, ends, is_killed_here])
def test_an_alert_of_a_rule_that_the_next_watch_lacks_is_left_alone(
    root: JobStore, clock: ManualClock, mailbox: Mailbox, vanishes: Callable[[AlertWatch, JobStore, ManualClock], None]
) -> None:
    """A supervisor with all rules and a sensor without ``lag``: it takes over, and says nothing of a lag that it cannot see."""
    supervisor = watch(root, clock, {"ops": Receiver(mailbox)}, holder="supervisor")
    sensor = watch(root, clock, {"ops": Receiver(mailbox)}, holder="sensor", jobs=("taxi",), without=("lag",))
    supervisor.evaluate([job_view(lag_ms=HOUR)])
    assert not sensor.evaluate([job_view(lag_ms=HOUR)]).is_leader
    vanishes(supervisor, root, clock)
    for health in ("ok", "failed", "ok"):
        report = sensor.evaluate([job_view(lag_ms=HOUR, health=health)])
        assert report.is_leader
        assert [item.rule for item in report.firing.get("taxi", ())] == (["health"] if health == "failed" else [])
        clock.advance(SECOND)
    assert titles(mailbox) == [BEHIND, "taxi: not healthy", "taxi: not healthy: over"]
    assert all("still" not in alert.text for alert in mailbox.taken), "nor that it still holds"
    assert [(item.rule, item.told) for item in read_alerts(root, "taxi").alerts.conditions] == [("lag", "error")]
    sensor.close()
    again = watch(root, clock, {"ops": Receiver(mailbox)}, holder="supervisor again")
    again.evaluate([job_view(lag_ms=HOUR)])
    assert len(mailbox.taken) == 3, "nor is it announced twice"
    again.evaluate([job_view()])
    assert titles(mailbox)[3:] == [f"{BEHIND}: over"], "who evaluates the rule says that it is over"


def test_a_job_that_comes_later_is_of_the_first_that_watches_it(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    all_ = watch(root, clock, {"ops": Receiver(mailbox)}, holder="all")
    assert all_.evaluate([]).is_leader
    named = watch(root, clock, {"ops": Receiver(mailbox)}, holder="named", jobs=("bikes",))
    assert named.evaluate([]).is_leader is False
    assert named.evaluate([job_view("bikes", health="failed")]).left_to_others == ("bikes",)
    assert all_.evaluate([job_view("bikes", health="failed")]).left_to_others == ()
    all_.close()
    assert named.evaluate([job_view("bikes", health="failed")]).is_leader
    assert titles(mailbox) == ["bikes: not healthy"]


def test_one_that_comes_back_takes_nothing_from_who_took_over(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    first, second = (watch(root, clock, {"ops": Receiver(mailbox)}, holder=holder) for holder in ("first", "second"))
    assert first.evaluate([job_view()]).is_leader
    assert not second.evaluate([job_view()]).is_leader
    clock.advance(2 * LEASE_MS)
    assert second.evaluate([job_view()]).is_leader
    for _ in range(9):
        assert not first.evaluate([job_view(lag_ms=HOUR)]).is_leader
        assert second.evaluate([job_view(lag_ms=HOUR)]).is_leader
        clock.advance(LEASE_MS // 3)
    assert titles(mailbox) == [BEHIND]
    assert len(root.list(ALERT_LEASES)) == 2, "leases of those that ended are deleted"


def test_a_message_for_a_receiver_that_two_watches_have_is_sent_once(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    """Sensors of two code locations have a receiver of the same name each; one ticks so rarely that its lease ends in between."""
    broken = Mailbox(broken=True)
    rare = watch(root, clock, {"dagster": Receiver(broken)}, holder="rare")
    often = watch(root, clock, {"dagster": Receiver(mailbox)}, holder="often", jobs=("taxi",))
    assert rare.evaluate([job_view(lag_ms=HOUR)]).pending == {"dagster": 1}
    clock.advance(10 * LEASE_MS)
    assert often.evaluate([job_view(lag_ms=HOUR)]).pending == {"dagster": 0}
    assert not rare.evaluate([job_view(lag_ms=HOUR)]).is_leader
    often.close()
    clock.advance(10 * LEASE_MS)
    broken.broken = False
    assert rare.evaluate([job_view(lag_ms=HOUR)]).is_leader
    assert (titles(mailbox), titles(broken)) == ([BEHIND], [])


def test_what_was_sent_by_another_while_a_lease_had_ended_is_not_sent_again(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    """The other came and went between two ticks, so that this one never saw it."""
    broken = Mailbox(broken=True)
    rare = watch(root, clock, {"dagster": Receiver(broken)}, holder="rare")
    assert rare.evaluate([job_view(lag_ms=HOUR)]).pending == {"dagster": 1}
    clock.advance(10 * LEASE_MS)
    other = watch(root, clock, {"dagster": Receiver(mailbox)}, holder="other")
    assert other.evaluate([job_view(lag_ms=HOUR)]).pending == {"dagster": 0}
    other.close()
    broken.broken = False
    assert rare.evaluate([job_view(lag_ms=HOUR)]).is_leader
    assert (titles(mailbox), titles(broken)) == ([BEHIND], [])


def test_one_that_passes_less_often_than_a_lease_lasts_reads_what_it_knows_once(
    root: JobStore, clock: ManualClock, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Dagster's sensor, of a thousand jobs."""
    read: list[str] = []

    def counted(root: JobStore, job: str) -> AlertRecord:
        read.append(job)
        return read_alerts(root, job)

    monkeypatch.setattr(alert_evaluator, "read_alerts", counted)
    rare, other = (watch(root, clock, {"ops": Receiver(mailbox)}, holder=holder) for holder in ("rare", "other"))
    for _ in range(3):
        assert rare.evaluate([job_view(lag_ms=HOUR)]).is_leader
        clock.advance(LEASE_MS + SECOND)
    assert read == ["taxi"]
    other.evaluate([job_view(lag_ms=HOUR)])
    other.close()
    assert rare.evaluate([job_view(lag_ms=HOUR)]).is_leader
    assert read == ["taxi"] * 3, "again when another was there"
    assert titles(mailbox) == [BEHIND]


def test_verdicts_of_checks_wait_for_a_watch_with_their_rule(root: JobStore, clock: ManualClock, mailbox: Mailbox) -> None:
    fails = CheckVerdict("taxi", "tips.not_null", passed=False, at=T0, text="3 nulls")
    report_check(root, fails)
    for number in range(1, 20):
        report_check(root, replace(fails, passed=True, at=T0 + number))
    without = watch(root, clock, {"ops": Receiver(mailbox)}, holder="without", without=("check",))
    without.evaluate([job_view()])
    without.close()
    assert len(root.list("_alerts/checks")) == 2, "and take no space meanwhile"
    assert titles(mailbox) == []
    evaluating = watch(root, clock, {"ops": Receiver(mailbox)}, holder="with")
    for _ in range(2):
        evaluating.evaluate([job_view()])
        clock.advance(SECOND)
    assert titles(mailbox) == ["taxi: check tips.not_null fails", "taxi: check tips.not_null fails: over"]
