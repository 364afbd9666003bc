"""Places that fail under supervised jobs: a store that is away, a full disk, a permission that is lost, a clock that is set back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.control.worlds import START, FakeLauncher, WatchedStore, World
from tests.small_disk import fill, let_write, small_disk
from tidemark.control.model.view import UNHEALTHY
from tidemark.control.reconcile.reconciler import Reconciler
from tidemark.control.supervise.supervisor import Supervisor
from tidemark.control.upgrade.upgrade_worker import upgrading_reconciler
from tidemark.control.view.view_builder import view_of
from tidemark.errors import LaunchError, StoreError
from tidemark.locations import Location
from tidemark.state.log.joblog import JobLog
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

HOUR = 3_600_000

Place = tuple[World, Callable[[bool], None]]
"""A world, and what makes its store fail, or work again."""


class Cut:
    """A network that can be cut, for all who use it."""

    def __init__(self) -> None:
        self.down = False

    def __call__(self, _operation: str) -> None:
        if self.down:
            raise StoreError("cannot reach s3://bucket: no route to host", fix="wait")


def supervisor(world: World, reconciler: Reconciler) -> Supervisor:
    return Supervisor(reconciler, threading.Event(), clock=world.clock)


def looks(world: World, watching: Supervisor, seconds: int) -> None:
    for _ in range(0, seconds, 5):
        world.tick(5)
        watching.pass_once()


def epochs(world: World, job: str) -> int:
    status = read_status(world.store, job)
    assert status is not None
    return status.last.epoch + 1 if status.last is not None else 0


def once_each(world: World) -> None:
    assert len(world.launched) == len(set(world.launched)), "an attempt was launched twice"
    for job in {job for job, _ in world.launched}:
        assert sum(process.drives for process in world.of(job)) <= 1


def test_a_store_that_is_away_for_two_minutes_costs_no_driver_without_work() -> None:
    cut = Cut()
    world = World(store=WatchedStore(Location.parse("s3://bucket/jobs"), MemoryStore(), "", cut))
    watching = supervisor(world, world.reconciler(hook=cut))
    for job in ("idle", "busy", "new"):
        world.submit(job, **({"wanted": "suspended"} if job == "new" else {}))
    looks(world, watching, 30)
    idle, busy = world.driver("idle"), world.driver("busy")
    idle.idle = True
    before = epochs(world, "busy")
    world.want("new", wanted="running")
    cut.down = True
    looks(world, watching, 120)
    assert idle.alive, "it had nothing to write but its heartbeat, which is tried again"
    assert (busy.alive, busy.exit_code) == (False, 75)
    cut.down = False
    looks(world, watching, 30)
    assert world.driver("idle") is idle, "its heartbeat was two minutes old for a moment, and that kills nobody"
    assert {world.status(job).lifecycle for job in ("idle", "busy", "new")} == {"running"}
    assert [(failure.code, failure.transient) for failure in world.status("busy").failures] == [("TM503", True)]
    assert world.status("busy").failures[0].message.endswith("exit code 75, which means a transient error; see its log")
    assert world.status("idle").failures == ()
    assert epochs(world, "busy") > before, "it went on after the last epoch that it had committed"
    once_each(world)


@contextmanager
def hooked(cuts: Callable[[str], bool]) -> Iterator[Place]:
    """A store in memory that refuses some operations."""
    down = [False]

    def hook(operation: str) -> None:
        if down[0] and cuts(operation):
            raise StoreError("cannot write: permission denied", fix="give it back")

    world = World(store=WatchedStore(Location.parse("s3://bucket/jobs"), MemoryStore(), "", hook))
    yield world, lambda fails: down.__setitem__(0, fails)


@contextmanager
def full_disk(folder: Path) -> Iterator[Place]:
    with small_disk(folder, 1024):

        def fails(now: bool) -> None:  # noqa: FBT001 - a switch
            if now:
                fill(folder)
            else:
                (folder / "filler").unlink()

        yield World(store=JobStore.open(str(folder / "store"))), fails


@contextmanager
def read_only_disk(folder: Path) -> Iterator[Place]:
    with small_disk(folder, 1024):
        yield World(store=JobStore.open(str(folder / "store"))), lambda fails: let_write(folder, allowed=not fails)


PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "a full disk": full_disk,
    "a disk that is read-only": read_only_disk,
    "no permission to write": lambda _: hooked(lambda operation: operation.startswith(("put", "create", "delete"))),
    "no permission to create": lambda _: hooked(lambda operation: operation.startswith("create")),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_takes_nothing_stops_jobs_and_loses_nothing(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with PLACES[place](tmp_path / "disk") as (world, fails):
        for job in ("runs", "dies", "starts"):
            world.submit(job, **({"wanted": "suspended"} if job == "starts" else {}))
        watching = supervisor(world, upgrading_reconciler(world.store, {"local": FakeLauncher(world, "host-a")}, world.clock))
        looks(world, watching, 30)
        world.want("starts", wanted="running")
        before = {job: epochs(world, job) for job in ("runs", "dies")}
        world.driver("dies").end(-9)
        launched = len(world.launched)
        fails(True)
        caplog.clear()
        looks(world, watching, 120)
        assert len(world.launched) == launched, "nothing is started that could not be written down before"
        said = [record.getMessage() for record in caplog.records if "cannot be reconciled: [TM400]" in record.getMessage()]
        assert {text.split()[0] for text in said} >= {"dies", "starts"}
        view = view_of(world.observe("dies"), world.clock.now_ms())
        assert view.health in UNHEALTHY, "who asks is told"
        fails(False)
        looks(world, watching, 60)
        assert {world.status(job).lifecycle for job in ("runs", "dies", "starts")} == {"running"}
        assert all(epochs(world, job) > count for job, count in before.items())
        terms = {job: JobLog(world.store.at(job), job, world.clock).load().term for job in ("runs", "dies")}
        assert terms["dies"] == 2
        once_each(world)
        stray = [file.path for file in world.store.list() if not file.path.endswith(".json")]
        assert stray == [], "half a file is not left behind"


def test_a_driver_whose_log_has_no_room_is_launched_when_there_is() -> None:
    world = World()
    world.submit()
    world.refuses_to_launch = 3
    reconciler = world.reconciler()
    reconciler.reconcile_all()
    status = world.status()
    assert (status.lifecycle, status.failures[-1].code, status.failures[-1].transient) == ("failing", LaunchError.code, True)
    assert status.next_start_at is not None
    world.run(reconciler, 60)
    assert world.status().lifecycle == "running"
    assert [number for _, number in world.launched] == [4]


# --------------------------------------------------------------------------------------------------------- the clock's hour


def runs(world: World, reconciler: Reconciler) -> None:
    world.run(reconciler, 20)


def starts(_: World, reconciler: Reconciler) -> None:
    reconciler.reconcile_all()


def is_about_to_start_again(world: World, reconciler: Reconciler) -> None:
    world.run(reconciler, 20)
    for _ in range(2):  # the first failure is not waited for
        world.driver().end(-9)
        reconciler.reconcile_all()


def is_asked_to_end(world: World, reconciler: Reconciler) -> None:
    world.run(reconciler, 20)
    world.driver().frozen = True
    world.want(version="2")
    reconciler.reconcile_all()
    world.driver().frozen, world.driver().asked = False, False  # the signal was lost


def is_suspected(world: World, reconciler: Reconciler) -> None:
    world.run(reconciler, 20)
    world.driver().frozen = True
    world.tick(35)
    reconciler.reconcile_all()
    world.driver().frozen = False


def has_a_lease_of_who_died(world: World, reconciler: Reconciler) -> None:
    class Died(BaseException): ...

    def dies(operation: str) -> None:
        if operation.startswith("create control/attempts"):
            raise Died

    with pytest.raises(Died):
        world.reconciler(hook=dies).reconcile_all()
    assert reconciler.reconcile_all().results[0].lease_held_elsewhere


ANEW = (is_about_to_start_again, is_asked_to_end, has_a_lease_of_who_died)
JUMPS = [
    *((state, -HOUR) for state in (runs, starts, is_suspected, *ANEW)),
    *((state, HOUR) for state in (runs, starts, is_about_to_start_again, has_a_lease_of_who_died)),
]


@pytest.mark.parametrize(("state", "jump"), JUMPS)
def test_a_clock_that_jumps_kills_nobody_and_delays_nothing(state: Callable[[World, Reconciler], None], jump: int) -> None:
    world = World()
    assert world.clock.now_ms() == START
    world.submit()
    reconciler = world.reconciler()
    state(world, reconciler)
    attempt = world.status().attempt if state is not has_a_lease_of_who_died else 0
    world.clock.set(world.clock.now_ms() + jump)
    world.run(reconciler, 90)
    status = world.status()
    assert (status.lifecycle, status.suspicion) == ("running", None), status
    assert world.driver().attempt == attempt + (state in ANEW)
    assert all(process.exit_code != -9 for process in world.processes if state is not is_about_to_start_again), "nobody was killed"
    once_each(world)
