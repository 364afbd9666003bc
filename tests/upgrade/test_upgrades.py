"""Upgrades of a job that runs on come to one of two ends, with all results there once, wherever they are interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.control.worlds import START
from tests.killed import kill_at
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld, fits
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import KIND as SPEC_KIND
from tidemark.control.model.paths import SPECS, numbered
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.upgrade_records import UpgradeStep, newest_step
from tidemark.control.upgrade import upgrade_actions
from tidemark.control.upgrade.code_check import Maps
from tidemark.control.upgrade.upgrade_request import begin_upgrade
from tidemark.errors import (
    DefinitionError,
    JobRunningError,
    NotReachedError,
    RewindError,
    SavepointInUseError,
    StateMismatchError,
    UnknownSavepointError,
    UpgradeError,
)
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.rewind_journal import read_rewind
from tidemark.savepoints.model.upgrade_lock import read_upgrade_lock
from tidemark.savepoints.model.verdict import Finding, OperatorVerdict, Verdict
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.documents import create_document
from tidemark.state.store.store import JobStore

TEN_MINUTES = 600_000
LATER = 3_600_000
BREAKS = 6
"""The epoch at which new code fails that does: one of it is out then, after four of the old code."""


def check_end(world: UpgradeWorld, end: UpgradeStep) -> None:
    """Every epoch is there once; the end's code has the job, and goes on."""
    rows = world.rows()
    assert [epoch for epoch, _ in rows] == list(range(len(rows)))
    news = [code for _, code in rows].count(NEW)
    assert [code for _, code in rows] == [OLD] * (len(rows) - news) + [NEW] * news
    assert (end.step == "done") == (news > 0) == (world.spec.code == NEW)
    assert read_upgrade_lock(world.store.at(JOB)) is None
    world.run(world.reconciler(), 60, every=10)
    after = world.rows()
    assert [epoch for epoch, _ in after] == list(range(len(after)))
    assert len(after) > len(rows)
    assert after[-1][1] == world.spec.code


def test_new_code_that_is_well_stays(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin()
    upgrading = world.upgrading()
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.heading, end.reason, end.epoch) == ("done", "done", "3 good epochs", 3)
    assert world.rows() == [(epoch, OLD) for epoch in range(4)] + [(epoch, NEW) for epoch in range(4, 7)]
    check_end(world, end)
    assert [item.info.kind for item in SavepointStore(world.store, JOB).list()] == ["before-upgrade"]
    assert world.said[-1] == f"upgrade {end.upgrade.identity} is done: fares has fares_v2:job version 2 (3 good epochs)"
    assert (world.spec.version, world.spec.trigger_ms) == ("2", 1000)
    # Going on with what has ended is to say how.
    assert upgrading.resume(JOB, timeout_ms=0) == end


def test_new_code_that_fails_leaves_nothing(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    world.begin()
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.heading) == ("rolled-back", "rolled-back")
    assert "attempt 2 failed: [TM502] the new code divides by nought" in end.reason
    assert world.rows() == [(epoch, OLD) for epoch in range(4)]
    assert any("table of hourly is back at version 3" in line for line in world.said)
    check_end(world, end)
    # Another upgrade may be begun then.
    world.breaks_at = None
    world.begin()
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"


def test_new_code_that_does_nothing_in_its_time_goes(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin(good_epochs=10_000, within_ms=5_000)
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    assert end.reason.startswith("after 5s: ")
    assert end.reason.endswith(" of 10000 good epochs")
    check_end(world, end)


def test_aborted_it_goes_back_from_wherever_it_is(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading = world.upgrading()
    for ended in range(2):
        world.begin(good_epochs=10_000)
        if ended:
            with pytest.raises(NotReachedError):
                upgrading.resume(JOB, timeout_ms=5_000)
        assert upgrading.abort(JOB, "a mistake").heading == "rolled-back"
        end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
        assert (end.step, end.reason) == ("rolled-back", "aborted by ada: a mistake")
        check_end(world, end)
        assert upgrading.abort(JOB) == end


def test_what_is_under_way_keeps_others_off(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    savepoints = SavepointStore(world.store, JOB, world.clock)
    other = savepoints.take("other")
    world.begin(good_epochs=10_000)
    first = newest_step(world.store, JOB)
    world.begin(good_epochs=10_000)
    assert newest_step(world.store, JOB) == first, "the same command goes on with it"
    with pytest.raises(UpgradeError, match=r"another upgrade is under way: upgrade .* is stopping, heading for fares_v2:job"):
        world.begin(code="fares_v3:job")
    with pytest.raises(UpgradeError, match="another upgrade is under way"):
        world.begin(good_epochs=10_000, maps=Maps({"fares": "rides"}))
    with pytest.raises(NotReachedError):
        world.upgrading().resume(JOB, timeout_ms=5_000)
    with pytest.raises(UpgradeError, match="an upgrade of the job is under way"):
        rewind(world.store, JOB, other.name, clock=world.clock)
    assert first is not None
    with pytest.raises(SavepointInUseError, match="may go back to savepoint"):
        savepoints.dispose(first.upgrade.savepoint)


def test_the_same_command_goes_on_only_with_the_same_renames(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    maps = Maps({"fares": "rides"}, {"rides": {"fare": "total", "tips": None}}, allow_non_restored_state=True)
    world.begin(maps=maps)
    first = newest_step(world.store, JOB)
    world.begin(maps=maps)
    assert newest_step(world.store, JOB) == first
    for others in (Maps(), Maps({"fares": "trips"}), replace(maps, allow_non_restored_state=False)):
        with pytest.raises(UpgradeError, match="another upgrade is under way"):
            world.begin(maps=others)


def test_what_cannot_be_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path)
    with pytest.raises(UpgradeError, match="was not submitted"):
        world.begin()
    world.submit(JOB, code=OLD)
    with pytest.raises(UpgradeError, match="has no epoch yet"):
        world.begin()
    world.started()
    with pytest.raises(UpgradeError, match="has that code already"):
        world.begin(code=OLD)
    with pytest.raises(UnknownSavepointError):
        world.begin(back_to="nowhere")
    with pytest.raises(UpgradeError, match="no upgrade of the job was begun"):
        world.upgrading().resume(JOB, timeout_ms=0)
    world.want(JOB, wanted="suspended")
    world.run(world.reconciler(), 20)
    by_hand = world.by_hand(JOB)
    with pytest.raises(JobRunningError, match="has no attempt"):
        world.begin()
    by_hand.release()
    assert (newest_step(world.store, JOB), read_upgrade_lock(world.store.at(JOB))) == (None, None)


def test_what_looks_like_a_secret_is_refused_unless_the_spec_has_it_already(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    with pytest.raises(DefinitionError, match="the value of API_TOKEN looks like a secret"):
        world.begin(variables={"API_TOKEN": "x1y2z3-secret"})
    assert newest_step(world.store, JOB) is None
    # As a release kept it that did not look so closely.
    kept = SpecGeneration(2, START, "ada", "old", replace(world.spec, variables={"API_TOKEN": "x1y2z3-secret"}))
    assert create_document(world.store.at(JOB), numbered(SPECS, 2), kind=SPEC_KIND, value=kept)
    with pytest.raises(DefinitionError, match="the value of API_TOKEN looks like a secret"):
        world.begin(variables={"API_TOKEN": "another-secret"})
    world.begin()
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    assert dict(world.spec.variables) == {"API_TOKEN": "x1y2z3-secret"}


def test_a_table_that_cannot_be_put_back_is_said_and_gone_on_with(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    world.begin()
    upgrading = world.upgrading()
    step = upgrading.require_step(JOB)
    while step.step != "reverting":
        upgrading.advance(step)
        world.tick(1)
        step = upgrading.require_step(JOB)
    write_deltalake(str(world.table), pa.table({"epoch": [99], "code": ["foreign"]}), mode="append")
    for _ in range(2):
        with pytest.raises(RewindError, match="newer versions by other writers"):
            upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
        assert upgrading.require_step(JOB).step == "putting-back"
    # The way out where there is none back: the new code stays.
    world.breaks_at = None
    assert upgrading.accept(JOB, "their rows are needed").heading == "done"
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.reason) == ("done", "accepted by ada: their rows are needed")
    DeltaTable(str(world.table)).delete("epoch = 99")
    check_end(world, end)


def test_new_code_is_not_accepted_while_the_job_is_being_put_back(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS).started()
    upgrading = world.upgrading()
    with pytest.raises(UpgradeError, match="no upgrade of the job was begun"):
        upgrading.accept(JOB)
    world.begin()
    with pytest.raises(UpgradeError, match=r"was not started yet.*continue until it is watched"):
        upgrading.accept(JOB)
    refused: list[str] = []

    def accepts(operation: str) -> None:
        # The tables are back, and the note is there until the job's first record is.
        if operation.startswith("create log/") and not refused and read_rewind(world.store.at(JOB)) is not None:
            with pytest.raises(UpgradeError) as caught:
                upgrading.accept(JOB)
            refused.append(str(caught.value))

    end = world.upgrading(accepts).resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    (text,) = refused
    savepoint = end.upgrade.savepoint
    assert f"the job is being rewound to savepoint {savepoint!r}, and some of its tables may be reverted already" in text
    assert f"`tidemark upgrade {JOB}`; `tidemark status {JOB}` shows what blocks it" in text
    assert f"then upgrade again: `tidemark upgrade {JOB} --code {NEW}`" in text
    with pytest.raises(UpgradeError, match=r"the upgrade is over.*Fix: upgrade again"):
        upgrading.accept(JOB)
    check_end(world, end)


GOOD = ["upgrade-recorded:1", "upgrade-acted:1", "upgrade-recorded:2", "pin-put", "upgrade-acted:2", "upgrade-recorded:3"]
SWITCHED = ["upgrade-acted:3", "upgrade-recorded:4"]
BACK = [
    *("upgrade-recorded:5", "upgrade-acted:4", "upgrade-recorded:6", "rewind-noted", "rewind-tables-back", "rewind-restored"),
    *("upgrade-acted:5", "upgrade-recorded:7", "upgrade-acted:6", "upgrade-recorded:8"),
]


@pytest.mark.crash
@pytest.mark.parametrize("point", [*GOOD, *SWITCHED, "upgrade-recorded:5", *(f"back {point}" for point in BACK)])
def test_killed_between_any_two_steps_it_comes_to_an_end(tmp_path: Path, point: str) -> None:
    """The drivers die with the command. One of the new code's that dies on probation is a failure; so the end may be the other one."""
    fails, _, at = point.rpartition(" ")
    breaks = str(BREAKS) if fails else ""
    kill_at("tests.upgrade.upgrade_worlds:upgrade_in_process", at, [str(tmp_path), breaks])
    world = UpgradeWorld(tmp_path, on_disk=True, now=START + LATER, breaks_at=BREAKS if fails else None)
    step = newest_step(world.store, JOB)
    assert step is not None
    assert step.heading == ("rolled-back" if fails else "done")
    end = world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.upgrade.identity == step.upgrade.identity
    if fails:
        assert end.step == "rolled-back"
    elif at in GOOD:
        assert end.step == "done"
    check_end(world, end)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["rewind-noted", "rewind-tables-back", "rewind-restored", "upgrade-acted:3"])
def test_killed_while_it_goes_back_first_it_can_be_aborted(tmp_path: Path, point: str) -> None:
    kill_at("tests.upgrade.upgrade_worlds:promote_in_process", point, [str(tmp_path)])
    world = UpgradeWorld(tmp_path, on_disk=True, now=START + LATER)
    upgrading = world.upgrading()
    assert upgrading.require_step(JOB).step == "going-back"
    assert upgrading.abort(JOB, "a mistake").heading == "rolled-back"
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.reason) == ("rolled-back", "aborted by ada: a mistake")
    assert world.rows() == [(epoch, OLD) for epoch in range(4)]
    # Tables that were not put back yet are not put back for it.
    gave_up = "the rewind to base is aborted: no table was reverted, and fares resumes after epoch 3"
    assert (gave_up in world.said) == (point == "rewind-noted")
    check_end(world, end)


@pytest.mark.parametrize("seed", range(6))
def test_several_at_once_and_one_that_sleeps_do_not_get_in_each_others_way(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    world = UpgradeWorld(tmp_path, breaks_at=BREAKS if seed % 2 else None).started()
    world.begin()
    several = [world.upgrading() for _ in range(3)]
    known = [upgrading.require_step(JOB) for upgrading in several]
    for _ in range(400):
        number = dice.randrange(3)
        # Each acts on what it last saw, however long ago that was.
        if not known[number].ended:
            several[number].advance(known[number])
        if dice.random() < 0.5:
            known[number] = several[number].require_step(JOB)
        if dice.random() < 0.3:
            world.tick(1)
        if all(step.ended for step in known):
            break
    end = several[0].require_step(JOB)
    assert end.step == ("rolled-back" if seed % 2 else "done")
    check_end(world, end)


def killed_before_it_publishes(world: UpgradeWorld) -> EpochRecord:
    """Let the driver commit an epoch and die; returns the epoch."""
    (process,) = (process for process in world.processes if process.alive)
    stopped: list[EpochRecord] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "publish", stopped.append)
        world.commit(process)
    process.alive = False
    return stopped[0]


def test_what_the_old_code_has_not_published_is_not_lost_in_a_promotion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = UpgradeWorld(tmp_path).started(epochs=2)

    # Rows of this world are not those of sinks.
    def publish(_driver: object, record: EpochRecord, _unshown: object) -> dict[str, str]:
        world.publish(record)
        return {}

    monkeypatch.setattr(upgrade_actions, "publisher", lambda *_: publish)
    SavepointStore(world.store, JOB, world.clock).take("base")
    world.run(world.reconciler(), 3)
    JobClient(world.store, "bob", world.clock).stop(JOB)
    killed_before_it_publishes(world)
    world.clock.sleep(60)
    # Of a job that stands still, too, it is no reason to refuse.
    world.begin(back_to="base")
    upgrading = world.upgrading()
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert any("is published first: hourly" in line for line in world.said)
    check_end(world, end)


def test_what_the_new_code_has_not_published_goes_with_it(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    upgrading = world.watched()
    stopped = killed_before_it_publishes(world)
    upgrading.abort(JOB)
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert end.step == "rolled-back"
    world.publish(stopped)
    check_end(world, end)


def test_code_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    def does_not(store: JobStore, spec: JobSpec, maps: Maps, against: str, of: str) -> Verdict:
        finding = Finding("the key is another", "incompatible", "40 rows", "give it another uid")
        return Verdict(
            fits(store, spec, maps, against, of).job, "a", 3, (OperatorVerdict("hourly", "hourly", "incompatible", (finding,)),), ()
        )

    world = UpgradeWorld(tmp_path).started()
    with pytest.raises(StateMismatchError, match="the key is another"):
        begin_upgrade(world.store, world.request(), launchers=world.launchers, clock=world.clock, judge=does_not)
    assert newest_step(world.store, JOB) is None
