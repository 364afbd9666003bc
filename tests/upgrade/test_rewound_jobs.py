"""Submitted jobs that are put back to a savepoint run again afterwards: also those whose input had ended, and after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from tests.control.worlds import WatchedStore
from tests.upgrade.test_promotions import suspended
from tests.upgrade.test_upgrades import TEN_MINUTES
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.rewind import rewind_job
from tidemark.control.rewind.rewind_job import Rewinder
from tidemark.errors import RewindError, UnknownSavepointError, UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.state.store.store import JobStore


class Killed(BaseException):
    """The process was killed."""


@pytest.fixture
def world(tmp_path: Path) -> UpgradeWorld:
    """A job that runs, with a savepoint of epoch 1."""
    return with_savepoint(UpgradeWorld(tmp_path))


def with_savepoint(made: UpgradeWorld) -> UpgradeWorld:
    made.started()
    SavepointStore(made.store, JOB, made.clock).take("good", epoch=1)
    return made


@pytest.fixture
def drained(world: UpgradeWorld) -> UpgradeWorld:
    """The job, whose input has ended."""
    JobClient(world.store, "ada", world.clock).stop(JOB, "drain")
    world.run(world.reconciler(), 20)
    assert world.status().lifecycle == "finished"
    return world


def client(world: UpgradeWorld) -> JobClient:
    return JobClient(world.store, "ada", world.clock)


def rewinder(world: UpgradeWorld, store: JobStore | None = None) -> Rewinder:
    return Rewinder(store or world.store, world.launchers, TEN_MINUTES, "ada", world.clock)


# ------------------------------------------------------------------------------------------------------------ input that ended


def test_a_job_whose_input_has_ended_is_not_started_again(drained: UpgradeWorld) -> None:
    client(drained).start(JOB)
    drained.run(drained.reconciler(), 20)
    assert drained.status().lifecycle == "finished"
    with pytest.raises(UpgradeError, match=r"input has ended for good.*rewind it to a savepoint from before the end first"):
        drained.begin()


def test_put_back_to_before_the_end_it_is_started(drained: UpgradeWorld) -> None:
    rewind(drained.store, JOB, "good", clock=drained.clock)
    made = client(drained).start(JOB)
    drained.run(drained.reconciler(), 20)
    assert drained.status().lifecycle == "running"
    assert [epoch for epoch, _ in drained.rows()] == list(range(len(drained.rows())))
    assert client(drained).start(JOB) == made, "one that runs is left alone"


def test_put_back_to_before_the_end_it_is_upgraded(drained: UpgradeWorld) -> None:
    rewind(drained.store, JOB, "good", clock=drained.clock)
    drained.begin()
    assert drained.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    assert drained.rows() == [(0, OLD), (1, OLD), (2, NEW), (3, NEW), (4, NEW)]


def test_rewound_while_it_is_wanted_to_run_it_runs(drained: UpgradeWorld) -> None:
    """As after the end of a bounded input: nobody has stopped it."""
    client(drained).start(JOB)
    drained.run(drained.reconciler(), 20)
    done = rewinder(drained).rewind(JOB, "good", stop=True)
    assert (done.head.epoch, done.started is not None) == (1, True)
    drained.run(drained.reconciler(), 20)
    assert drained.status().lifecycle == "running"


# ------------------------------------------------------------------------------------------------------------ stopped for it


def test_it_is_stopped_put_back_and_started(world: UpgradeWorld) -> None:
    shown: list[str] = []
    made = replace(rewinder(world), on_status=lambda view: shown.append(view.lifecycle)).rewind(JOB, "good", stop=True, why="a bug")
    assert shown[-3:] == ["suspended", "starting", "running"]
    assert made.started is not None
    assert (made.started.why, made.started.spec.wanted, made.started.spec.for_rewind) == ("a bug", "running", False)
    assert world.rows() == [(0, OLD), (1, OLD)]
    world.run(world.reconciler(), 20)
    assert world.rows()[:3] == [(0, OLD), (1, OLD), (2, OLD)]


@pytest.mark.parametrize("point", ["rewind-stopping", "create log/", "create refs/rewind", "delete ('refs/rewind", "rewind-done"])
def test_given_again_after_a_crash_it_is_started(world: UpgradeWorld, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def dies(place: str) -> None:
        if place.startswith(point):
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(rewind_job, "crash_point", dies)
        store = WatchedStore(world.store.location, world.store.objects, world.store.prefix, dies)
        with pytest.raises(Killed):
            rewinder(world, store).rewind(JOB, "good", stop=True)
    assert (world.spec.wanted, world.spec.for_rewind) == ("suspended", True)
    # Supervisors go on meanwhile, and somebody changes what has nothing to do with it.
    world.run(world.reconciler(), 60)
    world.want(JOB, parallelism=8)
    assert rewinder(world).rewind(JOB, "good", stop=True).started is not None
    assert (world.spec.wanted, world.spec.for_rewind, world.spec.parallelism) == ("running", False, 8)
    assert world.rows() == [(0, OLD), (1, OLD)]


@pytest.mark.parametrize("stop", [True, False])
def test_a_restore_that_was_not_made_yet_is_not_made_after_it(world: UpgradeWorld, *, stop: bool) -> None:
    """Its driver would go on from elsewhere than the tables."""
    SavepointStore(world.store, JOB, world.clock).take("old", epoch=0)
    suspended(world)
    restore = Restore("old", identity="wish-1")
    world.want(restore=restore)
    said: list[str] = []
    made = replace(rewinder(world), on_progress=said.append).rewind(JOB, "good", stop=stop)
    assert "the pending restore from savepoint old was withdrawn" in said
    assert (made.head.epoch, world.spec.restore) == (1, None)
    client(world).start(JOB)
    world.run(world.reconciler(), 20)
    assert world.rows()[:3] == [(0, OLD), (1, OLD), (2, OLD)]
    assert not any(reference.job == JOB for reference in SavepointStore(world.store, JOB, world.clock).file_references("old"))


def test_what_refuses_it_leaves_a_restore_that_was_not_made_yet(world: UpgradeWorld) -> None:
    SavepointStore(world.store, JOB, world.clock).take("old", epoch=0)
    suspended(world)
    restore = Restore("old", identity="wish-1")
    world.want(restore=restore)
    with pytest.raises(UnknownSavepointError):
        rewinder(world).rewind(JOB, "bad", stop=True)
    assert world.spec.restore == restore


def test_given_up_the_job_runs_again(world: UpgradeWorld) -> None:
    def dies(place: str) -> None:
        if place.startswith("was created refs/rewind"):
            raise Killed

    store = WatchedStore(world.store.location, world.store.objects, world.store.prefix, dies)
    with pytest.raises(Killed):
        rewinder(world, store).rewind(JOB, "good", stop=True)
    assert (world.spec.wanted, world.spec.for_rewind) == ("suspended", True)
    world.clock.advance(60_000)
    said: list[str] = []
    replace(rewinder(world), on_progress=said.append).abort(JOB)
    assert said[-1].startswith(f"{JOB} was stopped for it, and is to run again")
    assert (world.spec.wanted, world.spec.for_rewind) == ("running", False)
    world.run(world.reconciler(), 20)
    assert world.status().lifecycle == "running"


def test_refused_after_the_job_was_stopped_it_runs_again(world: UpgradeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes to the table between the look and the rewind."""

    def writes(point: str) -> None:
        if point == "rewind-stopping":
            write_deltalake(str(world.table), pa.table({"epoch": [99], "code": ["x"]}), mode="append")

    monkeypatch.setattr(rewind_job, "crash_point", writes)
    with pytest.raises(RewindError, match="by other writers"):
        rewinder(world).rewind(JOB, "good", stop=True)
    assert (world.spec.wanted, world.spec.for_rewind) == ("running", False)
    world.run(world.reconciler(), 20)
    assert world.status().lifecycle == "running"


@pytest.mark.parametrize("crashed", [False, True])
def test_one_that_its_owner_stopped_stays_so(world: UpgradeWorld, monkeypatch: pytest.MonkeyPatch, *, crashed: bool) -> None:
    if crashed:

        def dies(_: str) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(rewind_job, "crash_point", dies)
            with pytest.raises(Killed):
                rewinder(world).rewind(JOB, "good", stop=True)
    suspended(world)
    done = rewinder(world).rewind(JOB, "good", stop=True)
    assert (done.head.epoch, done.started, world.spec.wanted) == (1, None, "suspended")


def test_as_it_is_typed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_savepoint(UpgradeWorld(tmp_path, on_disk=True))
    client(world).stop(JOB, for_rewind=True)
    world.run(world.reconciler(), 20)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.launchers_here", lambda: world.launchers)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.Rewinder", partial(Rewinder, clock=world.clock))
    result = CliRunner().invoke(main, ["rewind", JOB, "--to", "good", "--stop", "--json", "--store", world.store.uri])
    assert result.exit_code == 0, result.output
    done, view = map(json.loads, result.stdout.splitlines())
    assert (done["job"], done["savepoint"], done["epoch"]) == (JOB, "good", 1)
    assert (view["spec"]["wanted"], view["lifecycle"], view["generation"]) == ("running", "running", 3)
    assert require_spec(world.store, JOB).why == "rewound to good"


@pytest.mark.parametrize("who", ["start", "restart", "upgrade"])
def test_whoever_starts_it_meanwhile_ends_the_pause(world: UpgradeWorld, who: str) -> None:
    client(world).stop(JOB, for_rewind=True)
    world.run(world.reconciler(), 20)
    if who == "upgrade":
        world.begin()
    asks: dict[str, Callable[[], object]] = {
        "start": lambda: client(world).start(JOB),
        "restart": lambda: client(world).restart(JOB),
        "upgrade": lambda: world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES),
    }
    asks[who]()
    assert (world.spec.wanted, world.spec.for_rewind) == ("running", False)


def test_an_upgrade_that_is_rolled_back_leaves_the_pause_as_it_was(world: UpgradeWorld) -> None:
    client(world).stop(JOB, for_rewind=True)
    world.run(world.reconciler(), 20)
    world.breaks_at = 6
    world.begin()
    assert world.upgrading().resume(JOB, timeout_ms=TEN_MINUTES).step == "rolled-back"
    assert (world.spec.wanted, world.spec.for_rewind) == ("suspended", True)
    assert rewinder(world).rewind(JOB, "good", stop=True).started is not None
