"""Alerts end to end, on a store on disk: what is told when, to whom, and how much at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.control.alert_cases import HOUR, MINUTE, SECOND, T0, Mailbox, failure, job_view, source, titles, watch
from tidemark.control.alerts.delivery.delivery_queue import RateLimit, Receiver
from tidemark.control.alerts.engine.alert_checks import CHECKS, CheckVerdict, report_check
from tidemark.control.alerts.engine.alert_silences import Silence, add_silence, delete_expired, end_silence, read_silences
from tidemark.control.alerts.engine.alert_store import ALERTS, read_alerts
from tidemark.control.alerts.model.alert import Alert
from tidemark.control.alerts.model.alert_settings import Route
from tidemark.control.model.records import ErrorInfo
from tidemark.control.model.spec import AlertThresholds
from tidemark.control.model.view import JobView
from tidemark.control.observed.leases import LEASE_MS
from tidemark.errors import DefinitionError, InvalidNameError
from tidemark.state.store.layout import PINS
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock


@pytest.fixture
def root(tmp_path: Path) -> JobStore:
    return JobStore.open(str(tmp_path))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


def test_what_is_wrong_is_told_and_then_that_it_is_over(root: JobStore, clock: ManualClock) -> None:
    mailbox = Mailbox()
    watching = watch(root, clock, {"ops": Receiver(mailbox)})
    assert watching.evaluate([job_view()]).firing == {}
    assert root.list("taxi") == (), "nothing is stored of a job that is well"
    report = watching.evaluate([job_view(lag_ms=HOUR)])
    assert [(item.rule, item.severity) for item in report.firing["taxi"]] == [("lag", "error")]
    assert watching.evaluate([job_view(lag_ms=HOUR)]).pending == {"ops": 0}
    watching.evaluate([job_view()])
    assert titles(mailbox) == ["taxi: watermark of trips is behind", "taxi: watermark of trips is behind: over"]
    assert [alert.level for alert in mailbox.taken] == ["error", "resolved"]
    assert mailbox.taken[0].text.startswith("[error] watermark of trips is behind: source 'trips' is 1h behind (watermark 2023-11-14T21:13")
    assert watching.counts["ops"].sent == 2


def test_a_receiver_that_fails_is_told_later_and_is_not_pestered(root: JobStore, clock: ManualClock) -> None:
    ops, log = Mailbox(broken=True), Mailbox()
    watching = watch(root, clock, {"ops": Receiver(ops), "log": Receiver(log)})
    for _ in range(300):
        assert watching.evaluate([job_view(lag_ms=HOUR)]).pending == {"ops": 1, "log": 0}
        clock.advance(SECOND)
    assert 6 <= ops.tried <= 9, "2, 4, 8, ... seconds between tries"
    assert len(log.taken) == 1
    ops.broken = False
    clock.advance(5 * MINUTE)
    assert watching.evaluate([job_view(lag_ms=HOUR)]).pending == {"ops": 0, "log": 0}
    assert titles(ops) == titles(log)
    assert len(log.taken) == 1


def test_what_waited_is_told_by_who_comes_next_and_as_one(root: JobStore, clock: ManualClock) -> None:
    first = watch(root, clock, {"ops": Receiver(Mailbox(broken=True))})
    for lag in (HOUR, 0, 10 * MINUTE):
        first.evaluate([job_view(lag_ms=lag)])
        clock.advance(SECOND)
    clock.advance(LEASE_MS)
    mailbox = Mailbox()
    watch(root, clock, {"ops": Receiver(mailbox)}, holder="two").evaluate([job_view(lag_ms=10 * MINUTE)])
    (alert,) = mailbox.taken
    assert alert.level == "warn"
    assert "10m behind" in alert.text


def test_a_receiver_that_is_gone_for_weeks_costs_no_space(root: JobStore, clock: ManualClock) -> None:
    watching = watch(root, clock, {"ops": Receiver(Mailbox(broken=True))})
    for number in range(100):
        watching.evaluate([job_view(lag_ms=HOUR if number % 2 == 0 else 0)])
        clock.advance(LEASE_MS // 2)
    (*_, newest) = root.at("taxi").list(ALERTS)
    assert len(root.at("taxi").list(ALERTS)) <= 4
    assert newest.size < 40_000


def test_many_jobs_at_once_are_one_message(root: JobStore, clock: ManualClock) -> None:
    mailbox = Mailbox()
    watching = watch(root, clock, {"ops": Receiver(mailbox)})
    watching.evaluate([job_view(f"job-{number:03d}", health="failed") for number in range(200)])
    (alert,) = mailbox.taken
    assert alert.title == "200 jobs: 200 errors"
    assert alert.level == "error"
    assert alert.text.count("\n") == 50
    assert alert.text.endswith("and 150 more")
    watching.evaluate([job_view(f"job-{number:03d}", health="ok" if number else "failing") for number in range(200)])
    assert titles(mailbox)[1:] == ["200 jobs: 1 warnings, 199 over"]
    assert mailbox.taken[1].text.startswith("job-000: [warn, was error] not healthy: job-000 failed and will be restarted")


def test_a_storm_that_does_not_end_is_told_at_a_pace(root: JobStore, clock: ManualClock) -> None:
    mailbox = Mailbox()
    watching = watch(
        root, clock, {"ops": Receiver(mailbox, rate_limit=RateLimit(max_single_messages=3, max_messages=5, per_ms=10 * MINUTE))}
    )
    views = [job_view(f"job-{number:03d}") for number in range(60)]
    for number in range(60):
        views[number] = replace(views[number], health="failed")
        watching.evaluate(views)
        clock.advance(10 * SECOND)
    assert len(mailbox.taken) == 5
    clock.advance(10 * MINUTE)
    report = watching.evaluate(views)
    assert report.pending == {"ops": 0}
    told = {job for alert in mailbox.taken for job in _jobs(alert.facts)}
    assert told == {view.job for view in views}
    assert len(mailbox.taken) == 6


def _jobs(facts: Mapping[str, object]) -> list[str]:
    jobs = facts.get("jobs", [facts.get("job")])
    assert isinstance(jobs, list)
    return jobs


def test_a_message_that_a_receiver_cannot_take_does_not_hold_up_the_others(root: JobStore, clock: ManualClock) -> None:
    class Choosy(Mailbox):
        def send(self, alert: Alert) -> None:
            self.broken = alert.job == "a"
            super().send(alert)

    choosy = Choosy()
    watching = watch(root, clock, {"ops": Receiver(choosy)})
    views = [job_view(name, health="failed") for name in ("a", "b", "c")]
    assert watching.evaluate(views).pending == {"ops": 1}
    assert titles(choosy) == ["b: not healthy", "c: not healthy"]


def test_a_message_is_never_too_long_and_never_broken_text(root: JobStore, clock: ManualClock) -> None:
    mailbox, split = Mailbox(), "\ud800" + "x" * 100_000
    view = job_view(lag_ms=HOUR)
    sources = {f"source-{number}": replace(source(HOUR), held_by=split) for number in range(40)}
    watching = watch(root, clock, {"ops": Receiver(mailbox)})
    watching.evaluate([replace(view, sources=sources, error=ErrorInfo("TM501", split, transient=False), health="failed")])
    for number in range(60):
        report_check(root, CheckVerdict("taxi", f"check-{number}", passed=False, at=T0, text=split))
    clock.advance(SECOND)
    watching.evaluate([replace(view, sources=sources, error=ErrorInfo("TM501", split, transient=False), health="failed")])
    assert len(mailbox.taken) == 2
    for alert in mailbox.taken:
        assert len(alert.text) < 21_000
        assert len(json.dumps(alert.as_json(), ensure_ascii=False).encode()) < 300_000
    assert mailbox.taken[1].text.endswith("more")


def test_receivers_get_what_is_theirs(root: JobStore, clock: ManualClock) -> None:
    pager, taxis, lags = Mailbox(), Mailbox(), Mailbox()
    receivers = {
        "pager": Receiver(pager, Route(min_severity="error")),
        "taxis": Receiver(taxis, Route(jobs=("taxi*",))),
        "lags": Receiver(lags, Route(rules=("lag",))),
    }
    watching = watch(root, clock, receivers)
    for health, lag in (("failing", 10 * MINUTE), ("failed", 10 * MINUTE), ("ok", 0)):
        watching.evaluate([job_view("taxi", health=health, lag_ms=lag), job_view("bikes", lag_ms=lag)])  # type: ignore[arg-type]
        clock.advance(SECOND)
    assert titles(pager) == ["taxi: not healthy, and it became worse", "taxi: not healthy: over"]
    assert titles(taxis) == ["taxi: 2 problems", "taxi: not healthy, and it became worse", "taxi: 2 over"]
    assert sorted(titles(lags)) == sorted(
        f"{job}: watermark of trips is behind{ending}" for job in ("taxi", "bikes") for ending in ("", ": over")
    )


def test_a_receiver_that_nobody_has_any_more_gets_nothing(root: JobStore, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    watch(root, clock, {"old": Receiver(Mailbox(broken=True))}).evaluate([job_view(lag_ms=HOUR)])
    clock.advance(LEASE_MS)
    new = Mailbox()
    with caplog.at_level(logging.WARNING):
        watching = watch(root, clock, {"new": Receiver(new)}, holder="two")
        for day in range(8):
            assert len(read_alerts(root, "taxi").alerts.outbox) == (day or 1), "it hears of all that came meanwhile"
            assert watching.evaluate([job_view(lag_ms=0 if day % 2 else HOUR)]).pending == {"new": 0}
            clock.advance(24 * HOUR)
    assert caplog.text.count("1 alerts wait for receiver 'old', which is not configured here") == 1
    assert caplog.text.count("alerts for receiver 'old' are dropped: no process sent them in 7d") == 1
    assert read_alerts(root, "taxi").alerts.outbox == ()
    assert len(new.taken) == 7
    watching.evaluate([job_view(lag_ms=HOUR)])
    assert read_alerts(root, "taxi").alerts.outbox == (), "and it is no longer counted in"
    assert len(new.taken) == 8


def test_a_failed_check_is_told_even_if_it_passed_before_anybody_looked(root: JobStore, clock: ManualClock) -> None:
    mailbox = Mailbox()
    watching = watch(root, clock, {"ops": Receiver(mailbox)})
    fails = CheckVerdict("taxi", "tips.not_null", passed=False, at=T0, severity="warn", text="3 nulls; password=hunter2")
    report_check(root, CheckVerdict("taxi", "tips.not_null", passed=True, at=T0 - 1))
    assert root.list(CHECKS) == (), "a check that passes leaves nothing behind"
    for at in range(T0, T0 + 50):
        report_check(root, replace(fails, at=at))
    assert len(root.list(CHECKS)) == 1
    report_check(root, replace(fails, passed=True, at=T0 + 60))
    watching.evaluate([job_view()])
    clock.advance(SECOND)
    assert root.list(CHECKS) == ()
    watching.evaluate([job_view()])
    report_check(root, replace(fails, at=T0 + 70))
    for _ in range(3):
        clock.advance(SECOND)
        watching.evaluate([job_view()])
    assert titles(mailbox) == [
        "taxi: check tips.not_null fails",
        "taxi: check tips.not_null fails: over",
        "taxi: check tips.not_null fails",
    ]
    assert "3 nulls" in mailbox.taken[0].text
    assert "hunter2" not in str(mailbox.taken)
    with pytest.raises(InvalidNameError):
        report_check(root, replace(fails, check="../../status"))


def test_a_savepoint_that_is_too_old(root: JobStore, clock: ManualClock) -> None:
    mailbox = Mailbox()
    watching = watch(root, clock, {"ops": Receiver(mailbox)})
    view = job_view(thresholds=AlertThresholds(savepoint_age_ms=6 * HOUR), started_at=T0)
    watching.evaluate([view])
    clock.advance(6 * HOUR)
    watching.evaluate([view])
    root.at("taxi").put(f"{PINS}/nightly.json", b"{}")
    clock.set(root.at("taxi").list(PINS)[0].last_modified_ms)
    watching.evaluate([view])
    assert titles(mailbox) == ["taxi: no recent savepoint", "taxi: no recent savepoint: over"]
    assert "taxi has no savepoint" in mailbox.taken[0].text


def test_silences_are_kept_until_they_end(root: JobStore, clock: ManualClock) -> None:
    mailbox = Mailbox()
    add_silence(root, Silence("move", until=T0 + HOUR, jobs="taxi", at=T0, by="ada", why="the landing zone moves"))
    watching = watch(root, clock, {"ops": Receiver(mailbox)})
    watching.evaluate([job_view(lag_ms=HOUR), job_view("bikes", lag_ms=HOUR)])
    assert titles(mailbox) == ["bikes: watermark of trips is behind"]
    with pytest.raises(DefinitionError, match="already"):
        add_silence(root, Silence("move", until=T0 + HOUR, at=T0))
    with pytest.raises(DefinitionError, match="ends before it begins"):
        add_silence(root, Silence("late", until=T0, at=T0))
    with pytest.raises(InvalidNameError):
        add_silence(root, Silence("../x", until=T0 + HOUR, at=T0))
    root.put("_alerts/silences/broken.json", b"")
    assert [silence.name for silence in read_silences(root, T0)] == ["move"]
    assert end_silence(root, "move")
    assert not end_silence(root, "move")
    watching.evaluate([job_view(lag_ms=HOUR), job_view("bikes", lag_ms=HOUR)])
    assert titles(mailbox)[1:] == ["taxi: watermark of trips is behind"]
    add_silence(root, Silence("short", until=T0 + 1, at=T0))
    delete_expired(root, T0 + 8 * 24 * HOUR)
    assert [file.path for file in root.list("_alerts/silences")] == ["_alerts/silences/broken.json"]


def test_a_store_full_of_jobs_that_are_well_is_looked_at_quickly(root: JobStore, clock: ManualClock) -> None:
    views: list[JobView] = [job_view(f"job-{number:04d}", failures=(failure(T0),)) for number in range(1000)]
    watching = watch(root, clock, {"ops": Receiver(Mailbox())})
    watching.evaluate(views)
    for _ in range(3):
        clock.advance(10 * SECOND)
        watching.evaluate(views)
    assert all(file.path.startswith("_alerts/leases/") for file in root.list()), "nothing is written of jobs that are well"
