"""Upgrades whose process is gone are gone on with by supervisors, and nobody is in anybody's way."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.control.worlds import Process
from tests.upgrade.test_upgrades import BREAKS, TEN_MINUTES, check_end
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.cli.show.view_text import view_text
from tidemark.clock import format_ms
from tidemark.control.model.paths import UPGRADE_BLOCKER
from tidemark.control.model.upgrade_records import UpgradeStep, newest_step
from tidemark.control.observed.leases import LEASE_MS
from tidemark.control.reconcile.reconciler import Reconciler, ReconcileReport
from tidemark.control.upgrade import upgrade_worker
from tidemark.control.view.view_builder import view_of
from tidemark.errors import EngineError, RewindError, TidemarkError
from tidemark.savepoints.model.upgrade_lock import UpgradeLock, read_upgrade_lock, write_upgrade_lock

WRITES = ("create control/upgrades", "create control/specs", "create refs", "create log", "put refs", "delete ('refs")
"""What an upgrade does to the store, but for leases. Tables are put back between two of them."""


class Killed(BaseException):
    """A process was killed."""


@dataclass
class Axe:
    """Kills who uses a store right before one of its writes; the dead do nothing more."""

    at: int
    writes: int = 0
    dead: bool = field(default=False)

    def __call__(self, operation: str) -> None:
        if threading.current_thread().name == "tidemark-lease":
            return
        if not self.dead and operation.startswith(WRITES):
            self.writes += 1
            self.dead = self.writes == self.at
        if self.dead:
            raise Killed


class Breaking(UpgradeWorld):
    """The new code fails at its second epoch, whenever that is."""

    def commit(self, process: Process, *, end_of_input: bool = False) -> None:
        last = process.term.last if process.term is not None else None
        if last is not None and last.outputs["hourly"].options.get("code") == NEW:
            raise EngineError("the new code divides by nought", fix="mend it", job=JOB)
        super().commit(process, end_of_input=end_of_input)


def step_of(world: UpgradeWorld) -> UpgradeStep:
    found = newest_step(world.store, JOB)
    assert found is not None
    return found


def supervise(world: UpgradeWorld, reconciler: Reconciler, *, seconds: int = 200) -> UpgradeStep:
    """Let time pass under a supervisor until the upgrade has ended."""
    for _ in range(0, seconds, 2):
        assert dict(reconciler.reconcile_all().errors) == {}
        if step_of(world).ended:
            return step_of(world)
        world.tick(2)
    raise AssertionError(f"it did not end: {step_of(world)}")


def killed(world: UpgradeWorld, axe: Axe, *, by_command: bool) -> bool:
    """Let somebody go on with an upgrade until the axe falls; False where it fell no more."""
    try:
        if by_command:
            world.upgrading(axe).resume(JOB, timeout_ms=TEN_MINUTES)
        else:
            supervise(world, world.reconciler(hook=axe))
    except Killed:
        return True
    return False


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_was_only_begun_comes_to_its_end(tmp_path: Path, *, fails: bool) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS if fails else None).started()
    world.begin()
    end = supervise(world, world.reconciler())
    assert end.step == ("rolled-back" if fails else "done")
    check_end(world, end)
    assert ("attempt 2 failed" in end.reason) == fails


@pytest.mark.parametrize("by_command", [True, False], ids=["command", "supervisor"])
@pytest.mark.parametrize("fails", [False, True], ids=["well", "fails"])
def test_killed_before_any_write_it_comes_to_its_end_under_a_supervisor(tmp_path: Path, *, fails: bool, by_command: bool) -> None:
    """The drivers live on, so that the end is the one that it was heading for."""
    # The one dies before each odd write, the other before each even one; until the new code is watched both ways are the same.
    at = (1 if by_command else 2) + (8 if fails else 0)
    while True:
        world = (Breaking if fails else UpgradeWorld)(tmp_path / str(at)).started()
        world.begin()
        if not killed(world, Axe(at), by_command=by_command):
            break
        end = supervise(world, world.reconciler())
        assert end.step == ("rolled-back" if fails else "done"), at
        check_end(world, end)
        at += 2
    assert at > (18 if fails else 8)


@pytest.mark.parametrize("moment", ["put refs/upgrade", "create refs/pins/before", "create control/specs/00000003", "create log/"])
def test_nobody_goes_on_with_it_while_somebody_else_does(tmp_path: Path, moment: str) -> None:
    """The command sleeps in the middle of a step: first within its lease, then longer."""
    world = Breaking(tmp_path).started()
    world.begin()
    ends: list[UpgradeStep] = []

    def sleep(operation: str) -> None:
        if ends or not operation.startswith(moment) or (moment == "create log/" and step_of(world).step != "putting-back"):
            return
        before = step_of(world)
        ends.append(before)
        others = world.reconciler(), world.reconciler("host-a")
        for other in others:
            assert [done.steps for done in other.reconcile_all().results] == [()]
        assert step_of(world) == before
        world.clock.advance(LEASE_MS + 1)
        ends[0] = supervise(world, others[0])

    end = world.upgrading(sleep).resume(JOB, timeout_ms=TEN_MINUTES)
    assert [end] == ends
    assert end.step == "rolled-back"
    check_end(world, end)


def test_two_supervisors_and_a_command_share_the_steps(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    first, second = world.reconciler(), world.reconciler()
    reports: list[ReconcileReport] = []
    while not step_of(world).ended:
        reports += [first.reconcile_all(), second.reconcile_all()]
        world.tick(1)
    told = [step for report in reports for done in report.results for step in done.steps if step.startswith("upgrade ")]
    assert len(told) == len(set(told)), "each step was taken once"
    assert world.upgrading().resume(JOB, timeout_ms=0) == step_of(world)
    check_end(world, step_of(world))


def test_the_job_is_upgrading_as_long_as_it_is_under_way(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    assert view_of(world.observe(), world.clock.now_ms()).upgrade is None
    world.begin(good_epochs=10)
    reconciler = world.reconciler()
    seen = []
    while not step_of(world).ended:
        view = view_of(world.observe(), world.clock.now_ms())
        assert (view.lifecycle, view.driver_lifecycle) == ("upgrading", world.status().lifecycle)
        assert view.upgrade is not None
        assert view.reason.startswith(f"{view.upgrade.text}")
        assert view.health != "stopped"
        seen.append((view.upgrade.step, view.upgrade.heading, view.upgrade.code.partition(" ")[0]))
        if view.upgrade.step == "watching" and view.epoch == 6:
            world.upgrading().abort(JOB)
        else:
            reconciler.reconcile_all()
        world.tick(1)
    assert set(seen) == {("stopping", "done", NEW), ("watching", "done", NEW), ("reverting", "rolled-back", OLD)}
    view = view_of(world.observe(), world.clock.now_ms())
    assert view.upgrade is not None
    assert (view.lifecycle, view.upgrade.step, view.upgrade.ended) == (world.status().lifecycle, "rolled-back", True)


def test_one_that_nobody_goes_on_with_is_seen(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    killed(world, Axe(6), by_command=True)
    assert step_of(world).step == "saving"
    assert view_of(world.observe(), world.clock.now_ms() + 1_000).health == "starting"
    assert view_of(world.observe(), world.clock.now_ms() + 61_000).health == "unwatched"


def test_a_note_that_was_left_behind_goes_with_the_next_command(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    end = supervise(world, world.reconciler())
    folder = world.store.at(JOB)
    write_upgrade_lock(folder, UpgradeLock(end.upgrade.identity, (end.upgrade.savepoint,), end.at))
    assert world.upgrading().resume(JOB, timeout_ms=0) == end
    assert read_upgrade_lock(folder) is None


def test_what_stands_against_it_is_said_and_tried_again_after_a_while(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    world.begin()
    upgrading = world.upgrading()
    while step_of(world).step != "reverting":
        upgrading.advance(step_of(world))
        world.tick(1)
    write_deltalake(str(world.table), pa.table({"epoch": [99], "code": ["foreign"]}), mode="append")
    reconciler = world.reconciler()
    errors: list[TidemarkError] = []
    for _ in range(50):
        errors += reconciler.reconcile_all().errors.values()
        world.tick(2)
    assert {type(error) for error in errors} == {RewindError}
    assert 3 <= len(errors) <= 5, "each time it waits longer"
    assert step_of(world).step == "putting-back"
    view = view_of(world.observe(), world.clock.now_ms() + 360_000)
    assert view.health == "unwatched"
    assert view.upgrade is not None
    assert view.upgrade.trouble == str(errors[-1])
    assert view.upgrade.trouble_since is not None
    assert view.upgrade.trouble_since < world.clock.now_ms() - 60_000, "since the first of them"
    assert f"blocked since {format_ms(view.upgrade.trouble_since)}: [TM422]" in view_text(view)
    upgrading.accept(JOB, "their rows are needed")
    world.breaks_at = None
    after = view_of(world.observe(), world.clock.now_ms()).upgrade
    assert after is not None
    assert (after.step, after.trouble) == ("accepting", "")
    assert supervise(world, reconciler, seconds=400).step == "done"
    assert not world.store.at(JOB).exists(UPGRADE_BLOCKER)


def test_what_takes_long_does_not_keep_the_other_jobs_from_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_worker, "WAIT_SECONDS", 0.01)
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    goes_on = threading.Event()

    def slow(operation: str) -> None:
        if operation.startswith("create refs/pins/before"):
            goes_on.wait()

    reconciler = world.reconciler(hook=slow)
    for _ in range(20):
        report = reconciler.reconcile_all()
        assert [observation.job for observation in report.observations] == [JOB]
        world.tick(1)
    assert step_of(world).step == "saving"
    assert world.reconciler().reconcile_all().results[0].steps == ()
    goes_on.set()
    end = supervise(world, reconciler, seconds=2_000)
    assert end.step == "done"
    check_end(world, end)
