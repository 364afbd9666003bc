"""The daemon: passes go on whatever happens, and what is said is said once."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.control.worlds import World
from tidemark.control.client.job_client import JobClient
from tidemark.control.reconcile.reconciler import ReconcileReport
from tidemark.control.supervise.supervisor import Supervisor
from tidemark.errors import DefinitionError, StoreError, UnknownJobError


class Cut:
    """A network that can be cut."""

    def __init__(self) -> None:
        self.down = False

    def __call__(self, _operation: str) -> None:
        if self.down:
            raise StoreError("cannot list s3://bucket: no route to host", fix="wait")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tidemark" and record.levelno >= logging.INFO]


def test_a_store_that_cannot_be_reached_is_told_now_and_then_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    world, cut = World(), Cut()
    world.submit()
    supervisor = Supervisor(world.reconciler(hook=cut), threading.Event(), clock=world.clock)
    for _ in range(4):
        supervisor.pass_once()
        world.tick()
    cut.down = True
    caplog.clear()
    for _ in range(27):
        assert supervisor.pass_once() is None
        world.tick()
    cut.down = False
    with caplog.at_level(logging.INFO, "tidemark"):
        report = supervisor.pass_once()
    assert report is not None
    assert report.errors == {}
    said = messages(caplog)
    assert said[0].startswith("the job store cannot be reached; drivers keep running, and it is retried: [TM400] cannot list s3://bucket")
    assert [text[:45] for text in said[1:3]] == [
        "the job store has been unreachable for 1m: [T",
        "the job store has been unreachable for 2m: [T",
    ]
    assert said[3].startswith("the job store is reachable again after 2m 15s")
    assert len(said) == 4
    assert world.driver().drives, "it ran on"


def test_the_trouble_of_a_job_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.submit()
    good = world.store.get("fares/control/specs/00000001.json")
    world.store.put("fares/control/specs/00000001.json", b"")
    supervisor = Supervisor(world.reconciler(), threading.Event(), clock=world.clock)
    for _ in range(3):
        supervisor.pass_once()
    assert len([text for text in messages(caplog) if "fares cannot be reconciled: [TM401]" in text]) == 1
    world.store.put("fares/control/specs/00000001.json", good)
    with caplog.at_level(logging.INFO, "tidemark"):
        supervisor.pass_once()
    assert "fares is reconciled again" in messages(caplog)


def test_odd_trouble_does_not_end_it() -> None:
    world = World()
    world.submit()

    def breaks(_operation: str) -> None:
        raise KeyError("a bug")

    stop = threading.Event()
    Supervisor(world.reconciler(hook=breaks), stop, interval_ms=1, clock=world.clock).run(passes=2)


def test_it_ends_when_it_is_told_to_and_tells_of_each_pass() -> None:
    world = World()
    world.submit()
    stop = threading.Event()
    seen: list[tuple[ReconcileReport, float]] = []

    def saw(report: ReconcileReport, seconds: float) -> None:
        seen.append((report, seconds))
        if len(seen) == 3:
            stop.set()

    Supervisor(world.reconciler(), stop, interval_ms=1, on_pass=saw, clock=world.clock).run()
    assert len(seen) == 3
    assert [len(report.observations) for report, _ in seen] == [1, 1, 1]
    assert [len(report.acted) for report, _ in seen] == [1, 0, 0]


# ----------------------------------------------------------------------------------------------------------------- client


def test_each_request_is_a_generation_with_who_and_why() -> None:
    world = World()
    client = JobClient(world.store, "bob", world.clock)
    spec = world.submit().spec
    assert (client.stop("fares").why, client.start("fares", "again").why, client.stop("fares", "now").why) == ("stop", "again", "cancel")
    assert client.stop("fares", "now").generation == 4, "what is wanted already makes no generation"
    assert (client.restart("fares").spec.wanted, client.restart("fares").spec.restarts) == ("running", 2)
    again = client.submit(spec)
    assert (again.by, again.why, again.spec.restarts) == ("bob", "submitted", 2)
    assert "@" in JobClient(world.store, clock=world.clock).stop("fares").by


def test_start_tries_a_failed_job_again_and_leaves_a_running_one_alone() -> None:
    world = World()
    client = JobClient(world.store, "bob", world.clock)
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    assert client.start("fares").generation == 1
    world.driver().doomed = DefinitionError("a bug", fix="mend it")
    world.run(reconciler, 10)
    assert world.status().lifecycle == "failed"
    assert client.start("fares").spec.restarts == 1
    world.run(reconciler, 10)
    assert world.status().lifecycle == "running"


def test_only_a_job_that_runs_can_drain() -> None:
    world = World()
    client = JobClient(world.store, "bob", world.clock)
    with pytest.raises(UnknownJobError):
        client.start("fares")
    world.submit()
    with pytest.raises(DefinitionError, match=r"does not run \(created\), so it cannot drain.*Fix: start it first: `tidemark start fares`"):
        client.stop("fares", "drain")
    world.run(world.reconciler(), 10)
    assert client.stop("fares", "drain").spec.stop == "drain"


def test_the_next_pass_does_not_wait_where_a_driver_ended() -> None:
    """At an interval of an hour."""
    world = World()
    world.submit()
    ends = iter([False, True, False, False, True])
    asked: list[bool] = []

    def ended() -> bool:
        asked.append(next(ends))
        return asked[-1]

    Supervisor(world.reconciler(), threading.Event(), interval_ms=3_600_000, driver_ended=ended, clock=world.clock).run(passes=3)
    assert asked == [False, True, False, False, True]


def test_it_ends_at_once_between_two_passes() -> None:
    world = World()
    stop = threading.Event()

    def ended() -> bool:
        stop.set()
        return False

    Supervisor(world.reconciler(), stop, interval_ms=3_600_000, driver_ended=ended, clock=world.clock).run()
    assert stop.is_set()
