"""Who stops a job during its upgrade is heard in every step: the old code has the job again, and does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.test_upgrades import BREAKS, TEN_MINUTES, check_end
from tests.upgrade.upgrade_worlds import JOB, OLD, UpgradeWorld
from tidemark.control.client.job_client import JobClient
from tidemark.control.upgrade.upgrade_plan import Wait
from tidemark.errors import DefinitionError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.upgrade_lock import read_upgrade_lock


def test_somebody_who_stops_the_job_meanwhile_is_heard(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading = world.watched()
    JobClient(world.store, "bob", world.clock).stop(JOB)
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    assert "by bob changed the spec" in end.reason
    assert (world.spec.code, world.spec.wanted) == (OLD, "suspended")
    assert world.rows() == [(epoch, OLD) for epoch in range(4)]


@pytest.mark.parametrize("during", ["stopping", "saving", "going-back", "starting", "reverting", "putting-back", "starting-old"])
def test_a_stop_is_heard_in_each_step_in_which_the_upgrade_itself_has_suspended_the_job(tmp_path: Path, during: str) -> None:
    world = UpgradeWorld(tmp_path).started()
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    world.begin(good_epochs=10_000, back_to="base" if during == "going-back" else "")
    upgrading = world.upgrading()
    while (step := upgrading.require_step(JOB)).step != during:
        if step.step == "watching":
            upgrading.abort(JOB, "a mistake")
        elif isinstance(upgrading.advance(step), Wait):
            world.tick(1)
    bob = JobClient(world.store, "bob", world.clock)
    bob.stop(JOB, why="the lake is moved")
    bob.stop(JOB, "now")
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.stopped) == ("rolled-back", True)
    assert end.reason == ("aborted by ada: a mistake" if step.heading == "rolled-back" else "stopped by bob: the lake is moved")
    world.run(world.reconciler(), 30)
    assert (world.spec.code, world.spec.wanted, world.alive(JOB)) == (OLD, "suspended", [])
    assert world.rows() == [(epoch, OLD) for epoch in range(len(world.rows()))]
    assert world.said[-1] == f"{JOB} stays suspended, since it was stopped during the upgrade; to start it: `tidemark start {JOB}`"


def test_a_stop_is_heard_while_the_tables_are_put_back(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    world.begin()
    bob, heard = JobClient(world.store, "bob", world.clock), list[str]()

    def stop(what: str) -> None:
        if what.startswith(("put ", "create ")) and what.endswith("rewind.json") and not heard:
            heard.append(what)
            bob.stop(JOB, why="the lake is moved")

    end = world.upgrading(stop).resume(JOB, timeout_ms=TEN_MINUTES)
    assert heard, "it stops the job in the middle of the rewind"
    assert (end.step, end.stopped, "divides by nought" in end.reason) == ("rolled-back", True, True)
    assert (world.spec.code, world.spec.wanted, world.rows()) == (OLD, "suspended", [(epoch, OLD) for epoch in range(4)])
    assert read_upgrade_lock(world.store.at(JOB)) is None


def test_a_drain_that_is_refused_leaves_the_upgrade_alone(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    upgrading = world.upgrading()
    while (step := upgrading.require_step(JOB)).step != "saving":
        if isinstance(upgrading.advance(step), Wait):
            world.tick(1)
    with pytest.raises(DefinitionError, match="cannot drain"):
        JobClient(world.store, "bob", world.clock).stop(JOB, "drain")
    with pytest.raises(DefinitionError, match="secret"):
        JobClient(world.store, "bob", world.clock).stop(JOB, why="password=hunter2")
    assert upgrading.require_step(JOB) == step
    check_end(world, upgrading.resume(JOB, timeout_ms=TEN_MINUTES))
