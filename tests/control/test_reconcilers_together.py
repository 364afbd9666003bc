"""Several reconcilers, on one machine or on many: one goes on where another died, and none does what another does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.control.worlds import World, lifecycle
from tidemark.control.model.spec import RestartPolicy
from tidemark.state.store.store import JobStore


@pytest.fixture
def world() -> World:
    return World()


def test_another_machine_takes_over_when_the_driver_s_is_gone(world: World) -> None:
    world.submit()
    first, second = world.reconciler("host-a"), world.reconciler("host-b")
    world.run(first, 10)
    before = world.driver()
    assert before.host == "host-a"
    before.frozen = True  # the machine is cut off, and the process lives on there
    world.run(second, 60)
    lifecycle(world, "running")
    now = [process for process in world.alive() if process.host == "host-b"]
    assert len(now) == 1
    assert now[0].takeover
    before.frozen = False
    world.tick()
    assert before.exit_code == 70, "the old driver goes on, and finds itself fenced off"
    assert now[0].alive


def test_a_healthy_driver_of_another_machine_is_left_alone(world: World) -> None:
    world.submit()
    first, second = world.reconciler("host-a"), world.reconciler("host-b")
    world.run(first, 10)
    for _ in range(20):
        world.tick()
        assert second.reconcile_all().acted == ()
    world.want(wanted="suspended")
    world.run(second, 10)
    lifecycle(world, "suspended")


def test_a_driver_that_cannot_be_reached_is_replaced_through_a_takeover(world: World) -> None:
    world.submit(hang_after_ms=60_000)
    world.run(world.reconciler("host-a"), 10)
    world.want(version="2")
    second = world.reconciler("host-b")
    world.run(second, 50)
    lifecycle(world, "upgrading")
    world.run(second, 30)
    lifecycle(world, "running")
    assert [process.host for process in world.alive()] == ["host-b"]


def test_a_job_that_somebody_drives_by_hand_is_started_when_that_ends(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    driver = world.by_hand()
    for _ in range(3):
        world.clock.advance(5_000)
        driver.beat()
        reconciler.reconcile_all()
    assert world.launched == []
    assert world.status().reason.startswith("it is driven by process 7 on host 'host-c'")
    world.run(reconciler, 60)
    lifecycle(world, "running")


def test_who_dies_before_the_launch_is_gone_on_with(world: World) -> None:
    class Died(BaseException): ...

    def dies(operation: str) -> None:
        if operation == "launch":
            raise Died

    world.submit()
    with pytest.raises(Died):
        world.reconciler(hook=dies).reconcile_all()
    lifecycle(world, "starting")
    other = world.reconciler()
    world.run(other, 120)
    lifecycle(world, "running")
    assert world.launched == [("fares", 2)]
    assert world.status().failures[0].message == "it was never launched: the process that should launch it has ended"


def test_who_dies_before_it_asks_a_driver_to_stop_is_gone_on_with(world: World) -> None:
    class Died(BaseException): ...

    def dies(operation: str) -> None:
        if operation == "ask to stop":
            raise Died

    world.submit()
    world.run(world.reconciler(), 10)
    before = world.driver()
    world.want(version="2")
    with pytest.raises(Died):
        world.reconciler(hook=dies).reconcile_all()
    assert (world.status().asked, before.signals) == ("finish", 0)
    other = world.reconciler()
    # The lease of who died, then the driver's end and the next one's start; not the five minutes after which it would be killed.
    world.run(other, 55)
    lifecycle(world, "running")
    assert (before.signals, before.exit_code, world.driver().attempt) == (1, 0, 2)


def test_a_process_whose_launcher_died_is_known_by_its_claim(world: World) -> None:
    class Died(BaseException): ...

    def dies(operation: str) -> None:
        if operation == "was launched":
            raise Died

    world.submit()
    with pytest.raises(Died):
        world.reconciler(hook=dies).reconcile_all()
    world.run(world.reconciler(), 60)
    lifecycle(world, "running")
    assert world.launched == [("fares", 1)]


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_many_reconcilers_at_once_start_each_job_once(place: str, tmp_path: Path) -> None:
    launch_each_attempt_once(World(store=JobStore.open(str(tmp_path)) if place == "disk" else None))


def launch_each_attempt_once(world: World, *, jobs: int = 6, turns: int = 3) -> None:
    """Let many reconcilers look at once, again and again, while drivers are killed; each attempt is launched once."""
    names = [f"job-{number}" for number in range(jobs)]
    for job in names:
        world.submit(job, restart=RestartPolicy(kind="fixed", delay_ms=1_000))  # so that starts are due after a while
    for turn in range(turns):
        at_once([world.reconciler().reconcile_all for _ in range(4)])
        assert sorted(world.launched) == sorted({(job, number) for job in names for number in range(1, turn + 2)})
        for _ in range(2):
            world.tick()
            at_once([world.reconciler().reconcile_all for _ in range(4)])
        for process in [process for process in world.processes if process.alive]:
            process.end(-9)
        world.reconciler().reconcile_all()
        world.tick(35)  # leases of who was overtaken are over, and starts are due
    assert {world.status(job).attempt for job in names} == {turns}


def at_once(work: Sequence[Callable[[], object]]) -> None:
    """Do things at once, each in a thread of its own."""
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(item) for item in work]:
            done.result()
