"""Who falls asleep right before a rewind begins, and wakes when it is not wanted any more, does nothing to the job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.control.worlds import WatchedStore
from tests.upgrade.test_promotions import promoted, suspended
from tests.upgrade.test_supervised_upgrades import step_of, supervise
from tests.upgrade.test_upgrades import BREAKS, TEN_MINUTES
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.upgrade_records import Step
from tidemark.control.observed.leases import LEASE_MS
from tidemark.control.reconcile.reconciler import Reconciler
from tidemark.errors import RewindError, UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind, write_rewind
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewinding import rewind


def asleep_before_a_term(world: UpgradeWorld, step: Step | None, meanwhile: Callable[[], None]) -> Callable[[str], None]:
    """Return a hook that lets others act right before the first term of the job log that is begun in a step of an upgrade."""
    slept: list[bool] = []

    def hook(operation: str) -> None:
        if operation.startswith("create log/") and not slept and (step is None or step_of(world).step == step):
            slept.append(True)
            world.clock.advance(LEASE_MS + 1)
            meanwhile()

    return hook


def stopped_by_its_owner(world: UpgradeWorld) -> None:
    """Stop the job, while nobody goes on with its upgrade."""
    JobClient(world.store, "bob", world.clock).stop(JOB)
    world.run(Reconciler(world.store, world.launchers, world.clock), 20)
    assert world.status().lifecycle == "suspended"


def test_when_the_upgrade_has_ended(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    world.begin()
    rows: list[list[tuple[int, str]]] = []

    def ended() -> None:
        assert supervise(world, world.reconciler()).step == "rolled-back"
        world.run(world.reconciler(), 20)
        stopped_by_its_owner(world)
        rows.append(world.rows())

    end = world.upgrading(asleep_before_a_term(world, "putting-back", ended)).resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    assert len(rows[0]) > BREAKS
    assert world.rows() == rows[0]
    assert read_rewind(world.store.at(JOB)) is None


def test_when_another_process_continued_the_upgrade(tmp_path: Path) -> None:
    world = promoted(tmp_path, good_epochs=10_000)
    before = world.rows()

    def gone_on() -> None:
        reconciler = world.reconciler()
        while step_of(world).step != "watching" or world.rows()[-1] != (4, NEW):
            reconciler.reconcile_all()
            world.tick(1)
        stopped_by_its_owner(world)

    end = world.upgrading(asleep_before_a_term(world, "going-back", gone_on)).resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    assert "by bob changed the spec" in end.reason
    assert world.rows() == before
    # What it goes on with after it woke is the way back, of which there is one.
    assert [line for line in world.said if "table of hourly" in line] == [f"table of hourly is back at version {before[-1][0]}"]


def test_when_another_upgrade_was_begun(tmp_path: Path) -> None:
    world = suspended(UpgradeWorld(tmp_path).started())
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    before = world.rows()

    def begun() -> None:
        world.begin()
        upgrading = world.upgrading()
        while step_of(world).step != "starting":
            upgrading.advance(step_of(world))

    hook = asleep_before_a_term(world, None, begun)
    store = WatchedStore(world.store.location, world.store.objects, world.store.prefix, hook)
    with pytest.raises(UpgradeError, match="an upgrade of the job is under way"):
        rewind(store, JOB, "base", clock=world.clock)
    assert world.rows() == before
    assert read_rewind(world.store.at(JOB)) is None
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    assert world.rows() == [*before, *((epoch, NEW) for epoch in range(len(before), len(before) + 3))]


def test_aborting_a_rewind_leaves_the_lock_of_an_upgrade(tmp_path: Path) -> None:
    world = suspended(UpgradeWorld(tmp_path).started())
    folder = world.store.at(JOB)
    journal = RewindJournal("rewind-1", "base", "l1", 1, {}, 0)
    assert write_rewind(folder, journal)

    def begun() -> None:
        # The rewind has come to its end, and an upgrade goes back in its turn.
        folder.delete(["refs/rewind.json"])
        world.begin()
        upgrading = world.upgrading()
        while step_of(world).step != "starting":
            upgrading.advance(step_of(world))
        assert write_rewind(folder, journal)

    hook = asleep_before_a_term(world, None, begun)
    store = WatchedStore(world.store.location, world.store.objects, world.store.prefix, hook)
    with pytest.raises(UpgradeError, match="an upgrade of the job is under way"):
        abort_rewind(store, JOB, clock=world.clock)
    assert read_rewind(folder) == journal


def test_a_step_is_not_taken_for_an_upgrade_that_does_not_exist(tmp_path: Path) -> None:
    world = suspended(UpgradeWorld(tmp_path).started())
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    with pytest.raises(UpgradeError, match="upgrade upgrade-1 has ended"):
        rewind(world.store, JOB, "base", clock=world.clock, upgrade="upgrade-1")
    with pytest.raises(RewindError, match="no rewind of the job is under way"):
        abort_rewind(world.store, JOB, clock=world.clock, upgrade="upgrade-1")
    assert world.rows()[-1] == (len(world.rows()) - 1, OLD)
