"""Requests that an upgrade would overwrite are refused, with how the upgrade ends; those after it are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.upgrade.test_upgrades import BREAKS, TEN_MINUTES, check_end
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld, fits
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_records import Step, UpgradeStep
from tidemark.control.observed.leases import LEASE_MS
from tidemark.control.upgrade.restore_request import RestoreRequest, request_restore
from tidemark.control.upgrade.upgrade_coordinator import Upgrading
from tidemark.control.upgrade.upgrade_plan import Wait
from tidemark.errors import UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.rewind_journal import read_rewind
from tidemark.savepoints.model.upgrade_lock import read_upgrade_lock

Ask = Callable[[UpgradeWorld], object]


def bob(world: UpgradeWorld) -> JobClient:
    return JobClient(world.store, "bob", world.clock)


def starts(world: UpgradeWorld) -> object:
    return bob(world).start(JOB)


def restarts(world: UpgradeWorld) -> object:
    return bob(world).restart(JOB)


def submits(world: UpgradeWorld) -> object:
    return bob(world).submit(JobSpec(JOB, "fares_v3:job"))


def restores(world: UpgradeWorld) -> object:
    return request_restore(world.store, RestoreRequest(JOB, "base", "key"), by="bob", clock=world.clock, judge=fits)


ASKS: tuple[tuple[Ask, str], ...] = (
    (starts, f"`tidemark start {JOB}`"),
    (restarts, f"`tidemark restart {JOB}`"),
    (restores, "request the restore from base again"),
    (submits, "submit it again"),
)
"""What changes the spec, and what is said to do once the upgrade is over."""


def upgrading_in(world: UpgradeWorld, during: Step) -> tuple[Upgrading, UpgradeStep]:
    """Return an upgrade that has come to a step."""
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    world.begin(good_epochs=10_000, back_to="base" if during == "going-back" else "")
    upgrading = world.upgrading()
    while (step := upgrading.require_step(JOB)).step != during:
        if step.step == "watching":
            upgrading.accept(JOB, "good enough") if during == "accepting" else upgrading.abort(JOB, "a mistake")
        elif isinstance(upgrading.advance(step), Wait):
            world.tick(1)
    return upgrading, step


@pytest.mark.parametrize(
    "during", ["stopping", "saving", "going-back", "starting", "accepting", "reverting", "putting-back", "starting-old"]
)
def test_what_an_upgrade_would_overwrite_is_refused(tmp_path: Path, during: Step) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading, step = upgrading_in(world, during)
    before = world.spec
    code = OLD if step.heading == "rolled-back" else f"{NEW} version 2"
    forward = during in {"stopping", "saving", "going-back", "starting"}
    abort = f" or roll it back (`tidemark upgrade {JOB} --abort`)" if forward else ""
    for ask, then in ASKS:
        with pytest.raises(UpgradeError) as raised:
            ask(world)
        assert f"job '{JOB}' is being upgraded: upgrade {step.upgrade.identity} is {during.replace('-', ' ')}" in raised.value.what
        assert f"writes the spec with {code} itself" in raised.value.what
        assert ("it has suspended the job" in raised.value.what) == (during != "accepting")
        assert raised.value.fix == f"complete the upgrade (`tidemark upgrade {JOB}`){abort}, then {then}"
        assert world.spec == before
    if during == "accepting":
        assert upgrading.resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    else:
        upgrading.abort(JOB, "a mistake")
        check_end(world, upgrading.resume(JOB, timeout_ms=TEN_MINUTES))
    for ask, _ in ASKS:
        ask(world)
        assert world.spec.wanted == "running"


def test_a_start_after_a_stop_during_the_way_back_is_not_lost(tmp_path: Path) -> None:
    """It was accepted, and the job stayed stopped."""
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    world.begin()
    upgrading = world.upgrading()
    while (step := upgrading.require_step(JOB)).step != "putting-back":
        if isinstance(upgrading.advance(step), Wait):
            world.tick(1)
    bob(world).stop(JOB)
    with pytest.raises(UpgradeError, match="it has suspended the job, and leaves it stopped, as it was stopped meanwhile") as raised:
        starts(world)
    assert raised.value.fix == f"complete the upgrade (`tidemark upgrade {JOB}`), then `tidemark start {JOB}`"
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, world.spec.wanted) == ("rolled-back", "suspended")
    starts(world)
    assert world.spec.wanted == "running"
    check_end(world, end)


def test_a_restore_during_the_probation_is_refused_since_the_way_back_would_drop_it(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    upgrading = world.watched()
    with pytest.raises(UpgradeError, match="it goes back to fares:job if the spec is changed, and the change is lost"):
        restores(world)
    starts(world)
    assert upgrading.require_step(JOB).step == "watching", "a start of the code that is watched changes nothing"


def test_other_code_is_not_submitted_during_the_probation_since_the_upgrade_would_go_back(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading = world.watched()
    before = world.spec
    for changed in (JobSpec(JOB, "fares_v3:job"), replace(before, variables={"FARES": "9"})):
        with pytest.raises(UpgradeError, match="it goes back to fares:job if the spec is changed, and the change is lost") as raised:
            bob(world).submit(changed)
        assert raised.value.fix == (
            f"complete the upgrade (`tidemark upgrade {JOB}`) or roll it back (`tidemark upgrade {JOB} --abort`), then submit it again"
        )
    assert world.spec == before
    bob(world).submit(replace(before, trigger_ms=before.trigger_ms + 1))
    upgrading.advance(upgrading.require_step(JOB))
    assert upgrading.require_step(JOB).step == "watching", "other settings of the code on probation change nothing"
    assert world.spec.trigger_ms == before.trigger_ms + 1
    bob(world).stop(JOB)
    bob(world).submit(before)
    assert world.spec.wanted == "running", "the code on probation is submitted after a stop"


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_stop_at_any_moment_of_going_back_to_an_older_savepoint_is_heard(tmp_path: Path, *, taken_over: bool) -> None:
    """In the middle of the rewind of one process; it goes on with it, or another process rolls back as far as it can meanwhile."""
    moments = 0
    for number in range(1_000):
        world = UpgradeWorld(tmp_path / str(number)).started()
        SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
        before = world.rows()
        world.begin(back_to="base")
        seen: list[str] = []

        def hook(operation: str, world: UpgradeWorld = world, seen: list[str] = seen, number: int = number) -> None:
            if operation.startswith(("put ", "create ", "delete ")) and world.upgrading().require_step(JOB).step == "going-back":
                seen.append(operation)
                if len(seen) == number + 1:
                    bob(world).stop(JOB, why="the lake is moved")
                    if taken_over:
                        world.clock.advance(LEASE_MS + 1)
                        rolls_back(world)

        end = world.upgrading(hook).resume(JOB, timeout_ms=TEN_MINUTES)
        if len(seen) <= number:
            break
        moments += 1
        assert (end.step, end.stopped, end.reason) == ("rolled-back", True, "stopped by bob: the lake is moved"), seen
        assert (world.spec.code, world.spec.wanted, world.rows()) == (OLD, "suspended", before), seen
        folder = world.store.at(JOB)
        assert (read_upgrade_lock(folder), read_rewind(folder)) == (None, None), seen
    assert moments > 5


def rolls_back(world: UpgradeWorld) -> None:
    """Continue the upgrade in another process until it waits for the one that rewinds, or has ended."""
    other = world.upgrading()
    while not (step := other.require_step(JOB)).ended:
        if isinstance(other.advance(step), Wait):
            return
