"""Whoever puts a job back starts it again, where no supervisor does: at the end of an upgrade, and of a rewind."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.upgrade.test_promotions import Unloadable, suspended
from tests.upgrade.test_upgrades import BREAKS, TEN_MINUTES
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
from tidemark.control.rewind.rewind_job import Rewinder
from tidemark.control.upgrade.upgrade_coordinator import Upgrading
from tidemark.control.upgrade.upgrade_plan import Wait
from tidemark.savepoints.core.savepoint_store import SavepointStore


def rolled_back(world: UpgradeWorld) -> Upgrading:
    """Begin an upgrade, and abort it at once."""
    world.begin()
    upgrading = world.upgrading()
    upgrading.abort(JOB, "a mistake")
    return upgrading


def code_of_driver(world: UpgradeWorld) -> str:
    return world.spec_of(world.driver()).code


def test_a_rolled_back_upgrade_starts_the_old_code(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    world.begin()
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    assert (world.status().lifecycle, code_of_driver(world)) == ("running", OLD)
    assert world.said[-2:] == ["fares: starting, epoch 3", "fares: running, epoch 3"]
    assert ["divides by nought" in line for line in world.said].count(True) == 1, "a reason is told once"
    assert world.said[-3] == f"upgrade {end.upgrade.identity} is rolled back: fares has fares:job"
    world.tick(1)
    assert world.rows() == [(epoch, OLD) for epoch in range(5)]


def test_the_same_command_starts_the_driver_that_a_dead_process_did_not(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading = rolled_back(world)
    while not (step := upgrading.require_step(JOB)).ended:
        if isinstance(upgrading.advance(step), Wait):
            world.tick(1)
    assert world.alive() == []
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES) == step
    assert code_of_driver(world) == OLD
    launched = len(world.launched)
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES) == step
    assert (len(world.launched), world.said) == (launched, [str(step)]), "one that runs is left alone"


def test_a_job_that_was_stopped_before_the_upgrade_stays_stopped_and_that_is_reported(tmp_path: Path) -> None:
    world = suspended(UpgradeWorld(tmp_path).started())
    assert rolled_back(world).resume(JOB, timeout_ms=TEN_MINUTES).step == "rolled-back"
    assert (world.spec.wanted, world.alive()) == ("suspended", [])
    assert world.said[-1] == "fares stays suspended, as it was before the upgrade; to start it: `tidemark start fares`"


def test_a_job_that_was_stopped_during_the_upgrade_stays_stopped_and_that_is_reported(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading = world.watched()
    JobClient(world.store, "bob", world.clock).stop(JOB)
    assert upgrading.resume(JOB, timeout_ms=TEN_MINUTES).step == "rolled-back"
    assert world.alive() == []
    assert world.said[-1] == "fares stays suspended, since it was stopped during the upgrade; to start it: `tidemark start fares`"


def test_old_code_that_does_not_start_is_reported_and_the_upgrade_has_ended(tmp_path: Path) -> None:
    world = Unloadable(tmp_path)
    world.started()
    upgrading = rolled_back(world)
    world.refuses_to_launch = 1_000
    assert upgrading.resume(JOB, timeout_ms=5_000).step == "rolled-back"
    assert world.said[-1].startswith("[TM416] job 'fares' is failing after 4s, and not yet running")
    assert "Fix: watch it with `tidemark top`" in world.said[-1]
    world.refuses_to_launch, world.unloadable = 0, (OLD,)
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "rolled-back"
    assert world.said[-1] == "fares does not run: [TM100] there is no module fares_v2 (job 'fares'). Fix: give --code-path"


def test_new_code_that_was_accepted_is_started_too(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading = world.watched()
    JobClient(world.store, "bob", world.clock).stop(JOB)
    while upgrading.require_step(JOB).step != "putting-back":
        upgrading.advance(upgrading.require_step(JOB))
        world.tick(1)
    upgrading.accept(JOB)
    assert upgrading.resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    assert (world.status().lifecycle, code_of_driver(world)) == ("running", NEW)


def test_as_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = UpgradeWorld(tmp_path, on_disk=True).started()
    SavepointStore(world.store, JOB, world.clock).take("good", epoch=1)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.launchers_here", lambda: world.launchers)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.Rewinder", partial(Rewinder, clock=world.clock))
    monkeypatch.setattr("tidemark.cli.jobs.upgrading.launchers_here", lambda: world.launchers)
    monkeypatch.setattr("tidemark.cli.jobs.upgrading.Upgrading", partial(Upgrading, clock=world.clock))
    rolled_back(world)
    result = CliRunner().invoke(main, ["upgrade", JOB, "--store", world.store.uri])
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (3, "fares: running, epoch 3")
    result = CliRunner().invoke(
        main, ["rewind", JOB, "--to", "good", "--stop", "--why", "a bug", "--by", "ada", "--store", world.store.uri]
    )
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-3].startswith("fares resumes after epoch 1, as lineage")
    assert lines[-2:] == ["fares: starting, epoch 1 (a bug (ada))", "fares: running, epoch 1"]
    suspended(world)
    result = CliRunner().invoke(main, ["rewind", JOB, "--to", "good", "--stop", "--store", world.store.uri])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "fares stays suspended as before; to start it: `tidemark start fares`"


def test_a_job_that_does_not_start_after_a_rewind_ends_the_command_with_another_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Unloadable(tmp_path, on_disk=True)
    world.started()
    SavepointStore(world.store, JOB, world.clock).take("good", epoch=1)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.launchers_here", lambda: world.launchers)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.Rewinder", partial(Rewinder, clock=world.clock))
    world.unloadable = (OLD,)
    result = CliRunner().invoke(main, ["rewind", JOB, "--to", "good", "--stop", "--store", world.store.uri])
    assert (result.exit_code, "[TM100] there is no module" in result.stderr) == (3, True)
    assert [epoch for epoch, _ in world.rows()] == [0, 1]
