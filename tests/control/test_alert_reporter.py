from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tests.control.alert_cases import HOUR, T0, Mailbox
from tidemark.control.alerts.delivery.alert_config import AlertConfig
from tidemark.control.alerts.delivery.delivery_queue import Receiver
from tidemark.control.alerts.model.alert import Alert
from tidemark.control.alerts.model.alert_settings import RULES, AlertSettings, Grouping, RuleSettings
from tidemark.control.alerts.model.hysteresis import HoldTimes
from tidemark.control.metrics.metric_registry import MetricRegistry
from tidemark.control.model.paths import ALERT_LEASES
from tidemark.control.model.records import ControlStatus, ErrorInfo
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.observed.leases import StandingLease
from tidemark.control.observed.observe import Observation
from tidemark.control.supervise.alert_reporter import AlertReporter
from tidemark.errors import CorruptStoreError, StoreError
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

AT_ONCE = AlertSettings({rule: RuleSettings(HoldTimes()) for rule in RULES}, Grouping(0, 0))


class Slow(Mailbox):
    """A receiver that takes its time, until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()

    def send(self, alert: Alert) -> None:
        self.asked.set()
        assert self.go_on.wait(30)
        super().send(alert)


def observation(job: str = "taxi", *, failed: bool = True) -> Observation:
    spec = SpecGeneration(1, T0 - HOUR, "ada", "", JobSpec(job, "m:j", wanted="running" if failed else "suspended"))
    error = ErrorInfo("TM501", "the function fails", transient=False) if failed else None
    control = ControlStatus(job, "failed" if failed else "suspended", T0, 1, error=error)
    return Observation(job, generation=spec, control=control)


def reporter(root: JobStore, receiver: Mailbox, board: MetricRegistry) -> AlertReporter:
    config = AlertConfig(AT_ONCE, {"ops": Receiver(receiver)})
    return AlertReporter(root, config, board, holder="one", clock=ManualClock(T0))


def test_a_receiver_that_does_not_answer_delays_no_pass(tmp_path: Path) -> None:
    root, slow, board = JobStore.open(str(tmp_path)), Slow(), MetricRegistry()
    with reporter(root, slow, board) as telling:
        telling.submit([observation()], {}, seconds=0.1)
        assert slow.asked.wait(30)
        for _ in range(100):
            telling.submit([observation()], {}, seconds=0.1)
        assert [view.health for view in board.read().views] == ["failed"]
        slow.go_on.set()
    assert [alert.title for alert in slow.taken] == ["taxi: not healthy"]
    assert "the function fails" in slow.taken[0].text
    assert StandingLease(root, ALERT_LEASES, "two", ManualClock(T0)).take(), "who ends lets others go on"


def test_a_job_that_cannot_be_read_is_told_and_the_others_are_as_ever(tmp_path: Path) -> None:
    root, mailbox = JobStore.open(str(tmp_path)), Mailbox()
    error = CorruptStoreError("specs/00000001.json is damaged", fix="restore it")
    with reporter(root, mailbox, MetricRegistry()) as telling:
        telling.submit([observation("bikes", failed=False)], {"taxi": error}, seconds=0.1)
        # One whose lease could not be written was read all the same.
        telling.submit([observation("bikes", failed=False)], {"taxi": error, "bikes": error}, seconds=0.1)
    (alert,) = mailbox.taken
    assert alert.title == "taxi: not healthy"
    assert "cannot be read: [TM401] specs/00000001.json is damaged" in alert.text
    with reporter(root, mailbox, MetricRegistry()) as telling:
        telling.submit([observation("taxi", failed=False)], {}, seconds=0.1)
    assert [alert.level for alert in mailbox.taken] == ["error", "resolved"]


def test_alerts_that_cannot_be_stored_wait_for_the_next_pass(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, mailbox, away = JobStore.open(str(tmp_path)), Mailbox(), threading.Event()
    looked = threading.Semaphore(0)

    class Away(JobStore):
        def list(self, prefix: str = "") -> tuple[object, ...]:  # type: ignore[override]
            looked.release()
            if away.is_set():
                raise StoreError("the store is away", fix="wait")
            return super().list(prefix)

    away.set()
    with caplog.at_level(logging.WARNING), reporter(Away(root.location, root.objects), mailbox, MetricRegistry()) as telling:
        telling.submit([observation()], {}, seconds=0.1)
        assert looked.acquire(timeout=30)
        away.clear()
        telling.submit([observation()], {}, seconds=0.1)
    assert "alerts wait for the next pass: [TM400] the store is away" in caplog.text
    assert len(mailbox.taken) == 1
