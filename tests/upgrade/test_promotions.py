"""Upgrades that go back to an older savepoint first: what counts for the new code, and the way back out of the middle of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.control.worlds import Process
from tests.upgrade.test_supervised_upgrades import Axe, killed, step_of, supervise
from tests.upgrade.test_upgrades import TEN_MINUTES, check_end
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.attempts import claim_attempt
from tidemark.errors import DefinitionError, RewindError, SavepointInUseError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.rewind_journal import read_rewind, require_no_rewind
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.state.status.status import write_failure


class Unloadable(UpgradeWorld):
    """Code that cannot even be loaded, the new one's unless said otherwise: its driver says so, and its process is gone a moment later."""

    unloadable: tuple[str, ...] = (NEW,)

    def _step(self, process: Process) -> None:
        if process.term is not None or self.spec_of(process).code not in self.unloadable:
            super()._step(process)
        elif process.idle:
            process.end(64)
        else:
            process.idle = True
            claim_attempt(self.store, JOB, process.attempt, process=process.handle, at=self.clock.now_ms())
            error = DefinitionError("there is no module fares_v2", fix="give --code-path", job=JOB)
            write_failure(self.store, JOB, error, owner=process.owner, at=self.clock.now_ms())


def suspended(world: UpgradeWorld) -> UpgradeWorld:
    """Stop the job, and wait until it has stopped."""
    JobClient(world.store, "bob", world.clock).stop(JOB)
    world.run(world.reconciler(), 20)
    return world


def promoted(folder: Path, of: Callable[[Path], UpgradeWorld] = UpgradeWorld, **fields: object) -> UpgradeWorld:
    """Begin an upgrade that goes back to epoch 1 first, after six epochs."""
    world = of(folder).started(epochs=6)
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    world.begin(back_to="base", **fields)
    return world


def test_the_new_code_reads_on_from_the_older_savepoint(tmp_path: Path) -> None:
    world = promoted(tmp_path)
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.epoch, end.reason) == ("done", 1, "3 good epochs")
    assert world.rows() == [(0, OLD), (1, OLD), (2, NEW), (3, NEW), (4, NEW)]
    check_end(world, end)
    # What the old code ended with is kept once.
    assert [item.info.kind for item in SavepointStore(world.store, JOB, world.clock).list()] == ["manual", "before-upgrade"]


@pytest.mark.parametrize("rewound_before", [False, True])
def test_epochs_of_the_old_code_do_not_count_for_one_that_never_began(tmp_path: Path, *, rewound_before: bool) -> None:
    """The status still names the epoch that the job went back from, now as its new driver's."""
    if rewound_before:
        world = suspended(Unloadable(tmp_path).started(epochs=6))
        SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
        rewind(world.store, JOB, "base", clock=world.clock)
        world.begin()
    else:
        world = promoted(tmp_path, Unloadable)
    before = world.rows()
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    assert "attempt 2 failed: [TM100] there is no module fares_v2" in end.reason
    assert world.rows() == before
    assert (world.spec.code, world.spec.wanted) == (OLD, "suspended" if rewound_before else "running")


@pytest.mark.parametrize("by_command", [True, False], ids=["command", "supervisor"])
def test_killed_before_any_write_and_aborted_the_old_code_has_the_job_again(tmp_path: Path, *, by_command: bool) -> None:
    # Until it goes back it is an upgrade like others. The one dies before each even write, the other before each odd one.
    at = 8 if by_command else 9
    stages: set[tuple[str, bool]] = set()
    while True:
        world = promoted(tmp_path / str(at))
        assert killed(world, Axe(at), by_command=by_command)
        if step_of(world).step not in {"saving", "going-back"}:
            break
        stages.add((step_of(world).step, read_rewind(world.store.at(JOB)) is not None))
        assert world.upgrading().abort(JOB).heading == "rolled-back"
        end = supervise(world, world.reconciler())
        assert end.step == "rolled-back", at
        assert world.rows()[:6] == [(epoch, OLD) for epoch in range(6)]
        check_end(world, end)
        at += 2
    assert {("going-back", False), ("going-back", True)} <= stages


def test_what_may_be_done_about_its_rewind_is_said(tmp_path: Path) -> None:
    world = promoted(tmp_path)
    folder = world.store.at(JOB)

    def stops(operation: str) -> None:
        if operation.startswith("create log/") and read_rewind(folder) is not None:
            raise DefinitionError("no further", fix="none")

    with pytest.raises(DefinitionError, match="no further"):
        world.upgrading(stops).resume(JOB, timeout_ms=TEN_MINUTES)
    way = rf"it is a step of an upgrade; finish or abort that: `tidemark upgrade {JOB}`, or `tidemark upgrade {JOB} --abort`"
    with pytest.raises(RewindError, match=way):
        require_no_rewind(folder, JOB)
    with pytest.raises(SavepointInUseError, match=way):
        SavepointStore(world.store, JOB).dispose("base")


def test_rows_of_somebody_else_in_the_middle_are_left_out_of_the_way_back(tmp_path: Path) -> None:
    """The table cannot be put back any more, and was not: so the rewind to the older savepoint is given up."""
    world = promoted(tmp_path)

    def writes(operation: str) -> None:
        if operation == "was created refs/rewind.json":
            write_deltalake(str(world.table), pa.table({"epoch": [99], "code": ["foreign"]}), mode="append")

    with pytest.raises(RewindError, match="another writer wrote version"):
        world.upgrading(writes).resume(JOB, timeout_ms=TEN_MINUTES)
    upgrading = world.upgrading()
    upgrading.abort(JOB)
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, world.spec.code) == ("rolled-back", OLD)
    assert (99, "foreign") in world.rows()
