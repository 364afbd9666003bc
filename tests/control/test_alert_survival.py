"""Alerts survive: supervisors that die, sleep or are several; stores that are away, full or damaged. Nothing is lost."""

from __future__ import annotations

import random
from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from tests.control.alert_cases import HOUR, MINUTE, SECOND, T0, Mailbox, job_view, titles, watch
from tidemark.control.alerts.delivery.delivery_queue import Receiver
from tidemark.control.alerts.engine.alert_store import ALERTS, AlertRecord, read_alerts, write_alerts
from tidemark.control.alerts.model.alert import Alert
from tidemark.control.alerts.model.alert_state import JobAlerts
from tidemark.control.model.paths import ALERT_LEASES
from tidemark.control.model.view import Health
from tidemark.control.observed.leases import LEASE_MS, StandingLease
from tidemark.errors import StoreError
from tidemark.locations import Location
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock


@pytest.fixture
def root() -> JobStore:
    return in_memory()


def in_memory() -> JobStore:
    return JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


def test_of_several_supervisors_one_tells(root: JobStore, clock: ManualClock) -> None:
    mailbox = Mailbox()
    watches = [watch(root, clock, {"ops": Receiver(mailbox)}, holder=f"number {number}") for number in range(3)]
    for minute in range(20):
        view = job_view(lag_ms=HOUR if minute % 2 else 0)
        assert sum(watching.evaluate([view]).is_leader for watching in watches) == 1
        clock.advance(LEASE_MS // 3)
    assert len(mailbox.taken) == 19
    watches[0].close()
    assert watches[1].evaluate([job_view()]).is_leader, "who goes lets others go on at once"
    clock.advance(LEASE_MS)
    assert watches[2].evaluate([job_view()]).is_leader, "and who vanishes after a lease"


@pytest.mark.parametrize("over", [False, True])
def test_what_waits_for_receivers_of_another_is_left_to_it(root: JobStore, clock: ManualClock, *, over: bool) -> None:
    """A supervisor whose receiver is away dies, and Dagster's sensor, with another one, watches for a while."""
    slack, dagster = Mailbox(broken=True), Mailbox()
    supervisor = watch(root, clock, {"slack": Receiver(slack)}, holder="supervisor")
    for _ in range(10):
        assert supervisor.evaluate([job_view(health="failed")]).pending == {"slack": 1}
        clock.advance(5 * SECOND)
    clock.advance(LEASE_MS)
    sensor = watch(root, clock, {"dagster": Receiver(dagster)}, holder="sensor")
    health: Health = "ok" if over else "failed"
    for _ in range(3):
        assert sensor.evaluate([job_view(health=health)]).pending == {"dagster": 0}
        clock.advance(5 * SECOND)
    assert titles(dagster) == (["taxi: not healthy: over"] if over else []), "what is new is told to who is there"
    sensor.close()
    slack.broken = False
    again = watch(root, clock, {"slack": Receiver(slack)}, holder="supervisor again")
    assert again.evaluate([job_view(health=health)]).pending == {"slack": 0}
    assert titles(slack) == ["taxi: not healthy: came and went" if over else "taxi: not healthy"]
    assert slack.taken[0].level == ("resolved" if over else "error")


def test_one_that_slept_past_its_lease_sends_nothing_more(root: JobStore, clock: ManualClock) -> None:
    class Sleepy(Mailbox):
        def send(self, alert: Alert) -> None:
            clock.advance(2 * LEASE_MS)
            super().send(alert)

    sleepy, mailbox = Sleepy(), Mailbox()
    views = [job_view(name, health="failed") for name in ("a", "b", "c")]
    watch(root, clock, {"ops": Receiver(sleepy)}).evaluate(views)
    assert titles(sleepy) == ["a: not healthy"]
    watch(root, clock, {"ops": Receiver(mailbox)}, holder="two").evaluate(views)
    assert titles(mailbox) == ["b: not healthy", "c: not healthy"]


class KilledError(Exception):
    """A kill at a call of the store."""


@given(
    st.lists(st.tuples(st.sampled_from([0, 10 * MINUTE, HOUR]), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
)
def test_nothing_is_lost_whenever_a_supervisor_dies(looks: list[tuple[int, bool]], seed: int) -> None:
    """Supervisors die at random writes, before and after; receivers fail at random. In the end the receiver believes what is so."""
    root, clock, chance = in_memory(), ManualClock(T0), random.Random(seed)
    mailbox, number = Mailbox(), 0
    watching = watch(Flaky.around(root, chance), clock, {"ops": Receiver(mailbox)}, holder="0")
    for lag_ms, broken in [*looks, (0, True), (HOUR, False)]:
        mailbox.broken = broken
        for _ in range(3):
            try:
                watching.evaluate([job_view(lag_ms=lag_ms)])
            except (KilledError, StoreError):
                number += 1
                clock.advance(LEASE_MS)
                watching = watch(Flaky.around(root, chance), clock, {"ops": Receiver(mailbox)}, holder=str(number))
            clock.advance(5 * SECOND)
    clock.advance(HOUR)
    mailbox.broken = False
    watch(root, clock, {"ops": Receiver(mailbox)}, holder="last").evaluate([job_view(lag_ms=HOUR)])
    stored = read_alerts(root, "taxi").alerts
    assert stored.outbox == ()
    assert [item.told for item in stored.conditions] == ["error"]
    assert mailbox.taken[-1].level == "error", "the last thing that was heard is what is so"
    # Messages come in order, though one may come twice; what began and ended while nobody took messages may be left out.
    numbers = [int(str(alert.facts["notification"])) for alert in mailbox.taken]
    assert numbers == sorted(numbers)
    assert numbers[-1] <= stored.notified


class Flaky(JobStore):
    """A store that a process dies at, at a write, before or after it was done; sometimes it only cannot be reached."""

    @classmethod
    def around(cls, root: JobStore, chance: random.Random) -> Flaky:
        made = cls(root.location, root.objects, root.prefix)
        object.__setattr__(made, "chance", chance)
        return made

    def at(self, prefix: str) -> JobStore:
        return Flaky.around(super().at(prefix), self.chance)

    chance: random.Random

    def create(self, path: str, data: bytes) -> None:
        self._perhaps()
        super().create(path, data)
        self._perhaps()

    def _perhaps(self) -> None:
        roll = self.chance.random()
        if roll < 0.1:
            raise KilledError
        if roll < 0.2:
            raise StoreError("the store is away", fix="wait")


def test_a_store_that_takes_no_writes_makes_nobody_hear_the_same_again(root: JobStore, clock: ManualClock) -> None:
    class Full(JobStore):
        full = False

        def at(self, prefix: str) -> JobStore:
            return Full(*vars(super().at(prefix)).values())

        def create(self, path: str, data: bytes) -> None:
            if Full.full and path.startswith(ALERTS):
                raise StoreError("the disk is full", fix="make room")
            super().create(path, data)

    class Filling(Mailbox):
        def send(self, alert: Alert) -> None:
            super().send(alert)
            Full.full = True

    mailbox = Filling()
    watching = watch(Full(root.location, root.objects), clock, {"ops": Receiver(mailbox)})
    for _ in range(5):
        with pytest.raises(StoreError):
            watching.evaluate([job_view(lag_ms=HOUR)])
        clock.advance(5 * SECOND)
    assert len(mailbox.taken) == 1
    Full.full = False
    watching.evaluate([job_view(lag_ms=HOUR)])
    assert len(mailbox.taken) == 1
    assert read_alerts(root, "taxi").alerts.outbox == ()


def test_of_two_that_write_at_once_one_wins(root: JobStore) -> None:
    barrier, won = Barrier(8), []

    def race(number: int) -> None:
        page = read_alerts(root, "taxi")
        barrier.wait()
        if write_alerts(root, page, JobAlerts("taxi", notified=number)) is not None:
            won.append(number)

    for _ in range(5):
        won.clear()
        threads = [Thread(target=race, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert read_alerts(root, "taxi").alerts.notified == won[0]


def test_one_that_slept_while_its_record_was_deleted_writes_nothing(root: JobStore) -> None:
    old = AlertRecord(0, JobAlerts("taxi"))
    page = old
    for number in range(1, 9):
        page = write_alerts(root, page, JobAlerts("taxi", notified=number)) or page
    assert page.number == 8
    assert write_alerts(root, old, JobAlerts("taxi", notified=99)) is None
    assert read_alerts(root, "taxi") == page


def test_damaged_records_are_found_out_anew(root: JobStore, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    mailbox = Mailbox()
    watch(root, clock, {"ops": Receiver(mailbox)}).evaluate([job_view(lag_ms=HOUR)])
    (*_, newest) = root.at("taxi").list(ALERTS)
    root.at("taxi").put(newest.path, b"{")
    clock.advance(LEASE_MS)
    watch(root, clock, {"ops": Receiver(mailbox)}, holder="two").evaluate([job_view(lag_ms=HOUR)])
    assert len(mailbox.taken) == 2
    assert "evaluated again" in caplog.text


def test_a_lease_of_a_clock_that_was_put_back_is_no_lease(root: JobStore, clock: ManualClock) -> None:
    assert StandingLease(root, ALERT_LEASES, "one", clock).take()
    two = StandingLease(root, ALERT_LEASES, "two", clock)
    assert not two.take()
    clock.set(T0 - HOUR)
    assert two.take()
