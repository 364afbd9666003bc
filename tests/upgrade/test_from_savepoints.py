"""``tidemark upgrade --from``: the new code reads on from an older savepoint; the way back leads to where the job was before."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.savepoints.delta_jobs import job_with_tables, run_epoch
from tests.upgrade.test_commands import CODE, type_in
from tests.upgrade.test_promotions import suspended
from tests.upgrade.test_supervised_upgrades import Axe, killed, step_of, supervise
from tests.upgrade.test_upgrades import TEN_MINUTES, check_end
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld, fits
from tidemark.cli.jobs import upgrading
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.model.upgrade_records import newest_step
from tidemark.control.upgrade.code_check import Maps
from tidemark.control.upgrade.upgrade_request import begin_upgrade
from tidemark.errors import PublishError, RewindError, SavepointInUseError, UnknownSavepointError, UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.export_format import encode_record
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.savepoint import SavepointInfo
from tidemark.savepoints.model.verdict import Verdict
from tidemark.savepoints.rewind import rewinding
from tidemark.savepoints.rewind.rewinding import require_possible, rewind
from tidemark.state.encoding.codec import to_jsonable

RENAMED = Maps({"hourly": "hourly"})
"""A map, so that the new code is restored from the savepoint after the job was put back to it."""


def world_with_savepoint(folder: Path, *, breaks_at: int | None = None, on_disk: bool = False) -> UpgradeWorld:
    """Return a job of six epochs with a savepoint of the second one."""
    world = UpgradeWorld(folder, breaks_at=breaks_at, on_disk=on_disk).started(epochs=6)
    SavepointStore(world.store, JOB, world.clock).take("base", epoch=1)
    return world


@pytest.mark.parametrize("maps", [Maps(), RENAMED], ids=["as-it-is", "renamed"])
@pytest.mark.parametrize("breaks_at", [None, 2, 3], ids=["works", "fails-at-once", "fails-later"])
def test_it_ends_with_the_new_code_from_the_savepoint_or_with_all_that_was(tmp_path: Path, maps: Maps, breaks_at: int | None) -> None:
    world = world_with_savepoint(tmp_path, breaks_at=breaks_at)
    before, epoch = world.rows(), SavepointStore(world.store, JOB, world.clock).pins.log.load().epoch
    world.begin(back_to="base", maps=maps)
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert any("is going back to savepoint base, heading for fares_v2:job version 2" in line for line in world.said)
    taken = SavepointStore(world.store, JOB, world.clock).get(end.upgrade.savepoint)
    assert epoch is not None
    assert (taken.record.epoch, taken.info.kind) == (epoch.epoch, "before-upgrade"), "the way back is where the old code ended"
    if breaks_at is None:
        assert (end.step, world.spec.code) == ("done", NEW)
        assert require_spec(world.store, JOB).why == "upgrade to fares_v2:job version 2 from savepoint base"
        assert world.rows()[:3] == [(0, OLD), (1, OLD), (2, NEW)]
        restore = world.spec.restore
        assert (restore.savepoint if restore is not None else None) == (None if maps.empty else "base")
    else:
        assert (end.step, world.spec.code) == ("rolled-back", OLD)
        assert "divides by nought" in end.reason
        assert world.rows()[: len(before)] == before
        assert all(code == OLD for _, code in world.rows())
    check_end(world, end)


def test_killed_anywhere_and_gone_on_with_by_a_supervisor_all_that_was_is_there_again(tmp_path: Path) -> None:
    """The new code fails after its first epoch; whoever carries the upgrade out dies at every fourth write, in worlds side by side."""
    at, stages = 2, set[str]()
    while True:
        world = world_with_savepoint(tmp_path / str(at), breaks_at=3)
        before = world.rows()
        world.begin(back_to="base", maps=RENAMED)
        if not killed(world, Axe(at), by_command=True):
            break
        stages.add(step_of(world).step)
        end = supervise(world, world.reconciler())
        assert (end.step, world.spec.code) == ("rolled-back", OLD), at
        assert world.rows()[: len(before)] == before, at
        check_end(world, end)
        at += 4
    assert {"saving", "going-back", "starting", "putting-back"} <= stages, stages


@pytest.mark.parametrize("rewound", [False, True], ids=["as-it-was", "after-another-of-its-name"])
def test_a_changed_savepoint_of_the_epoch_that_the_job_is_at_is_gone_back_to(tmp_path: Path, *, rewound: bool) -> None:
    world = suspended(UpgradeWorld(tmp_path).started())
    savepoints = SavepointStore(world.store, JOB, world.clock)
    if rewound:
        import_changed(savepoints, dropped=1)
        rewind(world.store, JOB, "fixed", clock=world.clock)
        savepoints.dispose("fixed")
    gone = import_changed(savepoints, dropped=2)
    world.begin(back_to="fixed")
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    head = savepoints.pins.log.load().epoch
    assert head is not None
    left = {file.path for file in head.operators["hourly"].files}
    assert left, "the other files are there"
    assert left.isdisjoint(gone)


def import_changed(savepoints: SavepointStore, *, dropped: int) -> set[str]:
    """Import the newest epoch as savepoint ``fixed`` without some files of its state, and return their paths."""
    head = savepoints.pins.find().record
    files = head.operators["hourly"].files
    fixed = replace(head, operators={"hourly": replace(head.operators["hourly"], files=files[:-dropped])}, outputs={})
    savepoints.pins.adopt("fixed", encode_record(fixed)[0], about=to_jsonable(SavepointInfo("imported")))
    return {file.path for file in files[-dropped:]}


def test_what_cannot_be_gone_back_to_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    world = world_with_savepoint(tmp_path)
    with pytest.raises(UnknownSavepointError):
        world.begin(back_to="bse")
    with pytest.raises(UpgradeError, match="the job has that code already") as refused:
        world.begin(code=OLD, version="", back_to="base")
    assert f"`tidemark rewind {JOB} --to base --stop`" in refused.value.fix
    assert newest_step(world.store, JOB) is None
    assert world.spec.wanted == "running"


def test_one_that_was_only_begun_keeps_its_savepoint_and_rewinds_off(tmp_path: Path) -> None:
    world = world_with_savepoint(tmp_path)
    world.begin(back_to="base")
    with pytest.raises(SavepointInUseError, match="may go back to savepoint 'base'"):
        SavepointStore(world.store, JOB, world.clock).dispose("base")
    with pytest.raises(UpgradeError, match="an upgrade of the job is under way"):
        require_possible(world.store, JOB, "base", clock=world.clock)


def test_a_rewind_begun_while_the_new_code_was_judged_is_ended_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = suspended(world_with_savepoint(tmp_path))

    def stops(*_: object) -> bool:
        raise PublishError("no space", fix="none")

    def judge(*of: Any) -> Verdict:
        with monkeypatch.context() as patched, suppress(PublishError):
            patched.setattr(rewinding, "revert_table", stops)
            rewind(world.store, JOB, "base", clock=world.clock)
        return fits(*of)

    begin_upgrade(world.store, world.request(), launchers=world.launchers, by="ada", clock=world.clock, judge=judge)
    way = f"abort the upgrade that was begun since: `tidemark upgrade {JOB} --abort`; then finish it .*--to base"
    with pytest.raises(RewindError, match=way):
        world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    upgrading = world.upgrading()
    upgrading.abort(JOB)
    assert upgrading.resume(JOB, timeout_ms=TEN_MINUTES).step == "rolled-back"
    rewind(world.store, JOB, "base", clock=world.clock)
    assert world.rows() == [(0, OLD), (1, OLD)]


def test_a_restore_that_the_job_waits_for_is_made_before_it_is_upgraded(tmp_path: Path) -> None:
    world = suspended(world_with_savepoint(tmp_path))
    world.want(JOB, restore=Restore("base", identity="wish"))
    for back_to in ("", "base"):
        with pytest.raises(UpgradeError, match="has a pending restore from savepoint 'base'"):
            world.begin(back_to=back_to)
    assert newest_step(world.store, JOB) is None
    world.want(JOB, wanted="running")
    world.run(world.reconciler(), 20)
    world.begin()
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"


def test_the_command_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_savepoint(tmp_path, on_disk=True)
    store = str(tmp_path / "store")
    monkeypatch.setattr(upgrading, "begin_upgrade", partial(begin_upgrade, judge=fits))
    renames = ("--map", "hourly=per-hour", "--column", "per-hour:n=rides")
    done = type_in("upgrade", JOB, "--code", NEW, "--from", "base", *renames, "--no-wait", store=store)
    assert done.exit_code == 0, done.output
    step = newest_step(world.store, JOB)
    assert step is not None
    restore = step.upgrade.after.restore
    assert (step.upgrade.back_to, step.step) == ("base", "stopping")
    assert restore is not None
    assert (restore.savepoint, restore.uids, restore.columns) == ("base", {"hourly": "per-hour"}, {"per-hour": {"n": "rides"}})
    alone = type_in("upgrade", JOB, "--from", "base", store=store)
    assert "--from requires --code" in alone.output
    assert f"`tidemark rewind {JOB} --to SAVEPOINT`" in alone.output


def test_a_job_that_only_drains_is_told_to_go_back_first(tmp_path: Path) -> None:
    made = job_with_tables(tmp_path)
    run_epoch(made)
    made.savepoints.take("base")
    run_epoch(made)
    code = tmp_path / "code"
    code.mkdir()
    (code / "taxi_from.py").write_text(CODE)
    where = ("--code-path", str(code), "--env", "SUFFIX=-new")
    words = ("upgrade", "taxi", "--code", "taxi_from:job", *where, "--allow-non-restored-state", "--from")
    unknown = type_in(*words, "bse", store=str(tmp_path / "store"))
    assert unknown.exit_code == 1
    said = type_in(*words, "base", store=str(tmp_path / "store"))
    assert said.exit_code == 0, said.output
    taken = made.savepoints.list()[-1]
    assert f"tidemark rewind taxi --to base --store {tmp_path / 'store'}" in said.output
    assert "--restore base" in said.output
    assert f"tidemark rewind taxi --to {taken.name}" in said.output
