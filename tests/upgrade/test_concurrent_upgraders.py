"""Somebody else goes on with the same upgrade: who waits for whom, and what is said of it; and who accepts it while it goes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.seeds import only_long
from tests.upgrade.test_supervised_upgrades import Killed, step_of
from tests.upgrade.test_upgrades import BREAKS, TEN_MINUTES, check_end
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.clock import format_ms
from tidemark.control.observed import leases
from tidemark.control.observed.leases import LEASE_MS, upgrade_lease
from tidemark.control.upgrade.upgrade_coordinator import Upgrading
from tidemark.errors import NotReachedError, UpgradeError
from tidemark.savepoints.model.rewind_journal import read_rewind
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.records import OwnerInfo

# -------------------------------------------------------------------------------------------------------------------- leases


def taken_by(world: UpgradeWorld, monkeypatch: pytest.MonkeyPatch, owner: OwnerInfo) -> None:
    """Let another process take the upgrade's lease."""
    with monkeypatch.context() as patched:
        patched.setattr(leases, "current_owner", lambda: owner)
        assert upgrade_lease(world.store, JOB, "bob@host/1", world.clock).take()


def test_a_dead_upgrader_on_this_machine_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    taken_by(world, monkeypatch, replace(current_owner(), started="another boot:1"))
    begun = world.clock.now_ms()
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    assert world.clock.now_ms() - begun < LEASE_MS
    assert not any("carries it out" in line for line in world.said)


def test_an_upgrader_on_another_machine_is_waited_for_and_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    taken_by(world, monkeypatch, OwnerInfo("elsewhere", 4711, "boot:1"))
    until = world.clock.now_ms() + LEASE_MS
    with pytest.raises(NotReachedError, match=r"waits \(bob@host/1 \(process 4711 on host 'elsewhere'\) carries it out\)"):
        world.upgrading().resume(JOB, timeout_ms=5_000)
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    assert [line for line in world.said if "carries it out" in line] == [
        f"bob@host/1 (process 4711 on host 'elsewhere') carries it out, and has its lease until {format_ms(until)}; waiting"
    ]


@pytest.mark.parametrize("other", [{"code_paths": ("b.zip",)}, {"folder": "/elsewhere"}, {"variables": {"RATE": "2"}}], ids=str)
def test_the_same_command_with_its_code_elsewhere_is_another_upgrade(tmp_path: Path, other: dict[str, object]) -> None:
    world = UpgradeWorld(tmp_path).started()
    asked: dict[str, object] = {"code_paths": ("a.zip",), "folder": "/code", "variables": {"RATE": "1"}}
    world.begin(**asked)
    first = step_of(world)
    world.begin(**asked)
    assert step_of(world) == first
    with pytest.raises(UpgradeError, match="another upgrade is under way"):
        world.begin(**{**asked, **other})


# ----------------------------------------------------------------------------------------------------- accepted while it goes back


def putting_back(world: UpgradeWorld) -> Upgrading:
    """Bring an upgrade whose new code failed to where the job is to be put back."""
    world.begin()
    upgrading = world.upgrading()
    while step_of(world).step != "putting-back":
        upgrading.advance(step_of(world))
        world.tick(1)
    world.breaks_at = None
    return upgrading


def once(prefix: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Return a hook that acts the first time that an operation begins so."""
    acted: list[str] = []

    def hook(operation: str) -> None:
        if operation.startswith(prefix) and not acted:
            acted.append(operation)
            act()

    return hook


@pytest.mark.parametrize("moment", ["create refs/pins/rewind", "create refs/rewind", "was created refs/rewind"])
def test_accepted_before_any_table_is_reverted_the_new_code_stays(tmp_path: Path, moment: str) -> None:
    """Who puts the job back has asked whether that is wanted still; since then it is not any more."""
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    putting_back(world)
    other = world.upgrading()

    def accept() -> None:
        if moment.startswith("was"):
            # It asked whether somebody is putting the job back before that was written down.
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("tidemark.control.upgrade.upgrade_coordinator.read_rewind", lambda _: None)
                other.accept(JOB)
        else:
            other.accept(JOB)

    end = world.upgrading(once(moment, accept)).resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.reason) == ("done", "accepted by ada")
    assert read_rewind(world.store.at(JOB)) is None
    assert not [name for name in world.savepoint_names() if name.startswith("rewind-")]
    check_end(world, end)


def accepted_in_ignorance(upgrading: Upgrading) -> None:
    """Accept the new code as somebody does who asked long before whether the job is being put back."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidemark.control.upgrade.upgrade_coordinator.read_rewind", lambda _: None)
        patched.setattr("tidemark.control.upgrade.upgrade_coordinator.was_reverted", lambda *_: False)
        upgrading.accept(JOB, "its rows are needed")


REVERTED = (("create log/", False), ("delete ('refs/pins/rewind", True), ("delete ('refs/rewind", False), ("create control/upgrades", True))
"""Moments after the tables were reverted, and whether the upgrader dies then."""


@pytest.mark.parametrize(("moment", "dies"), [*REVERTED, *(pytest.param(moment, not dies, marks=only_long) for moment, dies in REVERTED)])
def test_accepted_after_tables_were_reverted_the_old_code_has_the_job(tmp_path: Path, moment: str, *, dies: bool) -> None:
    """Of what the new code left nothing is there any more, so it cannot stay."""
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    putting_back(world)
    other = world.upgrading()
    back: list[bool] = []

    def accept() -> None:
        accepted_in_ignorance(other)
        if dies:
            raise Killed

    def hook(operation: str) -> None:
        # Not the term that the rewind begins with.
        if not back and operation.startswith(moment) and len(world.rows()) == 4:
            back.append(True)
            accept()

    try:
        end = world.upgrading(hook).resume(JOB, timeout_ms=TEN_MINUTES)
    except Killed:
        assert dies
        end = other.resume(JOB, timeout_ms=TEN_MINUTES)
    assert back
    assert (end.step, world.spec.code) == ("rolled-back", OLD)
    assert "its tables were reverted to savepoint" in end.reason
    check_end(world, end)


def test_accepting_aborts_the_rewind_of_a_dead_process(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    putting_back(world)

    def dies() -> None:
        accepted_in_ignorance(other)
        raise Killed

    other = world.upgrading()
    with pytest.raises(Killed):
        world.upgrading(once("was created refs/rewind", dies)).resume(JOB, timeout_ms=TEN_MINUTES)
    assert read_rewind(world.store.at(JOB)) is not None
    end = other.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, world.spec.code) == ("done", NEW)
    assert read_rewind(world.store.at(JOB)) is None
    check_end(world, end)


def test_code_whose_results_were_reverted_is_not_accepted(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    putting_back(world)

    def tries() -> None:
        with pytest.raises(UpgradeError, match="the job is rewound already"):
            world.upgrading().accept(JOB)

    end = world.upgrading(once("create control/upgrades", tries)).resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
