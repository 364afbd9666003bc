"""Upgrades that rename state, and the ways back from them: the old code needs no map, and the new one gets its own once more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.control.worlds import Process
from tests.upgrade.test_promotions import suspended
from tests.upgrade.test_upgrades import TEN_MINUTES
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import change_spec
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.rewind.rename_replay import reapply_renames, renames_text
from tidemark.control.rewind.rewind_job import Rewinder
from tidemark.control.upgrade.code_check import Maps
from tidemark.errors import StateMismatchError
from tidemark.graph.operators.state_names import element_column
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord, OperatorState

UIDS = {OLD: "hourly", NEW: "per-hour"}
MAPS = Maps({"hourly": "per-hour"}, {"per-hour": {"fares": "total"}})


class Renaming(UpgradeWorld):
    """The new code calls its operator otherwise, and the aggregate in it; a driver takes state by its own names only."""

    def _begin(self, process: Process, restore: Restore | None) -> None:
        super()._begin(process, restore)
        last = process.term.last if process.term is not None else None
        uid, _ = self.operator_of(self.spec_of(process).code)
        if last is not None and set(last.operators) != {uid}:
            error = StateMismatchError(f"the stored state does not fit the job: {', '.join(last.operators)}", fix="map it", job=JOB)
            self.say(process, "failed", error)
            self._leave(process, 64)

    def operator_of(self, code: str) -> tuple[str, dict[str, object]]:
        return UIDS[code], {"keys": [], "aggregates": [{"name": "total" if code == NEW else "fares"}]}


def operators(world: UpgradeWorld) -> dict[str, int]:
    """Return how many state files each operator of the job's newest epoch has."""
    head = JobLog(world.store.at(JOB), JOB, world.clock).load().epoch
    assert head is not None
    return {uid: len(state.files) for uid, state in head.operators.items()}


def begun(folder: Path, **fields: object) -> Renaming:
    """Begin an upgrade that renames, after four epochs; epoch 1 is a savepoint."""
    world = Renaming(folder, **fields)  # type: ignore[arg-type]
    world.started()
    SavepointStore(world.store, JOB, world.clock).take("old", epoch=1)
    world.begin(maps=MAPS)
    return world


def rewinder(world: UpgradeWorld, said: list[str]) -> Rewinder:
    return Rewinder(world.store, world.launchers, TEN_MINUTES, "ada", world.clock, on_progress=said.append)


@pytest.mark.parametrize("breaks_at", [4, 6], ids=["before an epoch", "after some"])
def test_the_way_back_of_an_upgrade_that_renamed_needs_no_map(tmp_path: Path, breaks_at: int) -> None:
    world = begun(tmp_path, breaks_at=breaks_at)
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, world.status().lifecycle) == ("rolled-back", "running")
    assert world.rows() == [(epoch, OLD) for epoch in range(4)]
    assert operators(world) == {"hourly": 4}
    world.tick(3)
    world.tick(3)
    assert operators(world) == {"hourly": 6}
    assert world.rows() == [(epoch, OLD) for epoch in range(6)]
    # Nor does it stand in the way of the next one.
    world.breaks_at = None
    world.begin(maps=MAPS, version="3")
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    assert set(operators(world)) == {"per-hour"}


def test_put_back_to_before_the_renames_the_new_code_gets_them_again(tmp_path: Path) -> None:
    world = begun(tmp_path)
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    SavepointStore(world.store, JOB, world.clock).take("new")
    said: list[str] = []
    done = rewinder(world, said).rewind(JOB, "old", stop=True)
    assert (done.head.epoch, set(done.head.operators)) == (1, {"hourly"})
    assert said[-1] == "replaying the renames that its code has made since: --map hourly=per-hour --column per-hour:fares=total"
    assert (world.status().lifecycle, world.status().failures) == ("running", ())
    world.tick(3)
    assert world.rows() == [(0, OLD), (1, OLD), (2, NEW)]
    assert operators(world) == {"per-hour": 3}
    # Once: drivers come and go, and what is put back to a savepoint with the new names has them.
    JobClient(world.store, "ada", world.clock).restart(JOB)
    world.run(world.reconciler(), 20)
    assert (world.status().lifecycle, world.status().failures) == ("running", ())
    said.clear()
    assert set(rewinder(world, said).rewind(JOB, "new", stop=True).head.operators) == {"per-hour"}
    assert not any("renamed" in line for line in said)
    assert (world.status().lifecycle, world.status().failures) == ("running", ())


def test_of_a_job_that_is_not_started_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun(tmp_path, on_disk=True)
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    suspended(world)
    said: list[str] = []
    assert rewinder(world, said).rewind(JOB, "old", stop=False).started is None
    assert said[-1].startswith("its code has renamed parts of the rewound state (--map hourly=per-hour --column per-hour:fares=total): ")
    # As it says.
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.launchers_here", lambda: world.launchers)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.Rewinder", partial(Rewinder, clock=world.clock))
    _, resume, again = said[-1].split("`tidemark ")
    for words in (resume, again):
        result = CliRunner().invoke(main, [*words.partition("`")[0].split(), "--store", world.store.uri])
        assert result.exit_code == 0, result.output
    assert (world.status().lifecycle, operators(world)) == ("running", {"per-hour": 2})
    # Or the old code, which knows the names.
    suspended(world)
    rewinder(world, said).rewind(JOB, "old", stop=False)

    def old_code(newest: SpecGeneration | None) -> JobSpec:
        assert newest is not None
        return replace(newest.spec, code=OLD, restore=None, wanted="running")

    change_spec(world.store, JOB, old_code, by="ada", why="old code", clock=world.clock)
    world.run(world.reconciler(), 20)
    assert (world.status().lifecycle, set(operators(world))) == ("running", {"hourly"})


def test_only_what_has_its_old_name_is_renamed_again() -> None:
    def head(uid: str, *aggregates: str) -> EpochRecord:
        operator = OperatorState({"keys": ["zone"], "aggregates": [{"name": name} for name in aggregates]}, (), 0)
        return EpochRecord(JOB, "l9", None, 1, 4, 0, "", None, operators={uid: operator})  # type: ignore[arg-type]

    made = Restore("before", MAPS.uids, job="other", identity="u1", columns={"per-hour": {"fares": "total", "tips": None}})
    again = reapply_renames(made, head("hourly", "fares", "tips"), savepoint="old")
    assert again == replace(made, savepoint="old", job="", identity="renamed-again-l9")
    assert renames_text(again) == "--map hourly=per-hour --column per-hour:fares=total --column per-hour:tips="
    some = reapply_renames(made, head("per-hour", "total", "tips"), savepoint="old")
    assert some is not None
    assert (some.uids, some.columns) == ({}, {"per-hour": {"tips": None}})
    assert reapply_renames(made, head("per-hour", "total"), savepoint="old") is None
    assert reapply_renames(made, head("another", "fares"), savepoint="old") is None
    put_back = head("hourly", "fares", "tips")
    assert reapply_renames(made, put_back, savepoint="old", before=head("per-hour", "total")) == again
    others = (head("hourly", "fares"), head("per-hour", "fares"), head("per-hour", "total", "tips"))
    assert [reapply_renames(made, put_back, savepoint="old", before=before) for before in others] == [None] * 3, "other code has the job"
    assert reapply_renames(None, head("hourly", "fares"), savepoint="old") is None


def test_columns_of_kept_elements_are_renamed_again() -> None:
    def head(column: str) -> EpochRecord:
        fields = [{"name": element_column(column), "type": "long", "nullable": True, "metadata": {}}]
        operator = OperatorState({"keys": [{"name": "zone"}], "function": {}, "schema": {"type": "struct", "fields": fields}}, (), 0)
        return EpochRecord(JOB, "l9", None, 1, 4, 0, "", None, operators={"trips": operator})  # type: ignore[arg-type]

    made = Restore("before", identity="u1", columns={"trips": {"fare": "amount"}})
    again = reapply_renames(made, head("fare"), savepoint="old", before=head("amount"))
    assert again is not None
    assert again.columns == made.columns
    assert reapply_renames(made, head("fare"), savepoint="old", before=head("fare")) is None, "other code has the job"
    assert reapply_renames(made, head("amount"), savepoint="old", before=head("amount")) is None


def test_columns_that_only_expressions_name_are_renamed_again() -> None:
    def head(column: str, name: str = "total") -> EpochRecord:
        aggregates = [{"name": name, "arguments": [f"{column} * 100"]}, {"name": "n", "arguments": []}]
        operator = OperatorState({"keys": [{"name": "zone", "expression": f"{column} > 3"}], "aggregates": aggregates}, (), 0)
        return EpochRecord(JOB, "l9", None, 1, 4, 0, "", None, operators={"trips": operator})  # type: ignore[arg-type]

    made = Restore("before", identity="u1", columns={"trips": {"fare": "amount", "total": "fares"}})
    again = reapply_renames(made, head("fare"), savepoint="old", before=head("amount", "fares"))
    assert again is not None
    assert again.columns == made.columns
    assert reapply_renames(made, head("fare"), savepoint="old", before=head("fare", "fares")) is None, "other code has the job"
    assert reapply_renames(made, head("amount", "fares"), savepoint="old", before=head("amount", "fares")) is None
    # What is left behind is an aggregate, whatever columns are called.
    left = Restore("before", identity="u1", columns={"trips": {"fare": None}})
    assert reapply_renames(left, head("fare"), savepoint="old") is None
