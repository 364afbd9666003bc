"""Jobs whose specs, statuses, leases and logs lie on S3 live as they do on disk: reconcilers, commands, sensors."""

# ruff: noqa: F401 - some tests are collected here, with this folder's fixtures

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import dagster as dg
import pytest
from hypothesis import HealthCheck, given, settings

from tests.control.test_commands import test_the_life_of_a_job, tidemark_
from tests.control.test_reconciler import (
    test_a_killed_driver_is_started_again_with_its_failure_remembered,
    test_a_suspended_job_ends_and_a_resumed_one_runs_again,
    test_nothing_is_written_in_the_steady_state,
    test_other_code_replaces_the_driver,
)
from tests.control.test_reconciler_properties import events, live
from tests.control.test_reconcilers_together import launch_each_attempt_once, test_another_machine_takes_over_when_the_driver_s_is_gone
from tests.control.worlds import START, World
from tests.dagster.control_world import launchers
from tests.dagster.instances import temporary_instance
from tests.dagster.test_progress_sensor import Rig, epoch
from tests.object_store.s3_server import server
from tests.seeds import PROFILE
from tidemark.control.model.spec import RestartPolicy
from tidemark.control.observed.leases import LEASE_MS, release_lease, take_lease
from tidemark.sensors import build_reconcile_sensor
from tidemark.state.store.store import JobStore

if PROFILE == "long":
    # They ask the store for nothing that the others do not ask for.
    from tests.control.test_reconciler import test_a_driver_that_is_resumed_while_it_ends_is_followed_by_another
    from tests.control.test_reconcilers_together import (
        test_a_driver_that_cannot_be_reached_is_replaced_through_a_takeover,
        test_who_dies_before_the_launch_is_gone_on_with,
    )


@pytest.fixture
def place(root: JobStore) -> JobStore:
    """The store that commands are typed for; somebody else's object is there, for without any there would be no such place."""
    root.put("README", b"jobs")
    return root


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with temporary_instance() as found:
        yield found


def test_of_many_who_take_a_lease_at_once_one_has_it(root: JobStore) -> None:
    for turn in range(3):
        now, together = START + turn * (LEASE_MS + 1), Barrier(6)

        def take(holder: int, now: int = now, together: Barrier = together) -> bool:
            together.wait()
            return take_lease(root, "fares", holder=f"host-{holder}", now=now) is not None

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(take, range(6))) == 1
    held = take_lease(root, "fares", holder="late", now=START + 4 * LEASE_MS)
    assert held is not None
    assert take_lease(root, "fares", holder="later", now=START + 4 * LEASE_MS) is None
    release_lease(root, "fares", held)
    assert take_lease(root, "fares", holder="later", now=START + 4 * LEASE_MS) is not None


def test_many_reconcilers_at_once_start_each_job_once(world: World) -> None:
    launch_each_attempt_once(world, jobs=3, turns=2)


@given(events())
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
def test_on_two_machines_only_one_driver_can_commit(happens: list[tuple[str, int, int]]) -> None:
    live(("host-a", "host-b"), happens, server().new_store())


@pytest.mark.dagster
def test_ticks_of_a_sensor_keep_a_job_running(world: World, instance: dg.DagsterInstance) -> None:
    sensor = build_reconcile_sensor(world.store.uri, launchers=lambda: launchers(world), clock=world.clock)

    def tick() -> str:
        result = sensor(dg.build_sensor_context(instance=instance))
        assert isinstance(result, dg.SensorResult)
        assert result.skip_reason is not None
        return str(result.skip_reason.skip_message)

    assert tick() == "0 jobs observed, 0 acted on"
    world.submit("fares")
    world.submit("rides", restart=RestartPolicy(kind="fixed", delay_ms=1_000))
    assert "fares: started attempt 1 (a test (ada)); rides: started attempt 1" in tick()
    world.tick()
    tick()
    world.driver("rides").end(-9)
    assert "rides: failing" in tick()
    world.tick()
    assert "rides: started attempt 2" in tick()
    assert world.launched == [("fares", 1), ("rides", 1), ("rides", 2)]


@pytest.mark.dagster
def test_epochs_are_reported_once(tmp_path: Path, root: JobStore, instance: dg.DagsterInstance) -> None:
    rig = Rig(tmp_path, instance, store=root.uri)
    assert "0 of 1 jobs observed" in str(rig.tick().skip_reason)
    rig.commit(epoch((1, 0, 0, 3), late=2), epoch((1, 1, 0, 3), malformed=4))
    rig.tick()
    rig.tick(minutes=6)
    rig.commit(epoch(late=1))
    rig.tick(minutes=6)
    assert (rig.numbers("epochs"), rig.numbers("epoch"), rig.numbers("late_rows")) == ([2, 1], [1, 2], [2, 1])
