"""What becomes of a job, from its submission on, when its driver ends, fails, hangs, or its machine goes away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control.worlds import START, FakeLauncher, World, lifecycle
from tidemark.control.desired.attempts import abandon_attempt, create_attempt
from tidemark.control.desired.spec_store import KEPT_GENERATIONS, spec_numbers
from tidemark.control.model.driver_warnings import write_warning
from tidemark.control.model.records import Attempt, DriverWarning, ProcessHandle
from tidemark.control.model.spec import RestartPolicy
from tidemark.control.reconcile.plan import KEPT_ATTEMPTS
from tidemark.errors import EngineError, SourceError


@pytest.fixture
def world() -> World:
    return World()


def test_a_submitted_job_is_started_and_runs(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    reconciler.reconcile_all()
    lifecycle(world, "starting")
    assert world.status().reason == "a test (ada)"
    world.run(reconciler, 10)
    lifecycle(world, "running")
    assert world.status().process == world.driver().handle
    assert world.driver().drives


def test_nothing_is_written_in_the_steady_state(world: World) -> None:
    world.submit()
    world.run(world.reconciler(), 20)
    seen: list[str] = []
    reconciler = world.reconciler(hook=seen.append)
    for _ in range(3):
        assert reconciler.reconcile_all().acted == ()
        world.tick()
    assert {operation.split()[0] for operation in seen} == {"get", "list"}


def test_a_killed_driver_is_started_again_with_its_failure_remembered(world: World) -> None:
    world.submit(restart=RestartPolicy(kind="fixed", delay_ms=1_000))
    reconciler = world.reconciler()
    world.run(reconciler, 20)
    world.driver().end(-9)
    reconciler.reconcile_all()
    lifecycle(world, "failing")
    status = world.status()
    assert status.error is not None
    assert (status.error.code, status.error.message) == ("TM503", "its process ended without reporting an error, killed by signal 9")
    assert status.next_start_at is not None
    world.run(reconciler, 20)
    lifecycle(world, "running")
    status = world.status()
    assert (status.attempt, status.restarts_done, status.error, len(status.failures)) == (2, 1, None, 1)
    assert world.launched == [("fares", 1), ("fares", 2)]


def test_what_a_driver_left_running_is_ended_before_its_end_is_written_down(world: World) -> None:
    world.submit(restart=RestartPolicy(kind="fixed", delay_ms=1_000))
    world.run(world.reconciler(), 20)
    world.driver().end(-9)
    seen: list[str] = []
    reconciler = world.reconciler(hook=seen.append)
    reconciler.reconcile_all()
    lifecycle(world, "failing")
    assert seen.index("kill") < seen.index("put control/status.json")
    world.want(wanted="suspended")
    reconciler.reconcile_all()
    lifecycle(world, "suspended")
    seen.clear()
    world.run(reconciler, 20)
    assert "kill" not in seen, "of a job that is at rest nothing is ended"


def test_an_error_that_does_not_pass_ends_the_job_until_somebody_asks(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tidemark")
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.driver().doomed = SourceError("the folder is gone", fix="bring it back")
    world.run(reconciler, 600)
    lifecycle(world, "failed")
    status = world.status()
    assert status.error is not None
    assert (status.error.code, status.error.transient, status.attempt) == ("TM200", False, 1)
    assert status.reason == "attempt 1 failed, and is not restarted: error TM200 is permanent"
    assert f"{status.reason}: [TM200] the folder is gone. Fix: bring it back" in caplog.text
    world.want(restarts=1)
    world.run(reconciler, 10)
    lifecycle(world, "running")
    assert world.status().counted_from == 2


def test_three_failures_at_one_epoch_end_the_job(world: World) -> None:
    world.submit(restart=RestartPolicy(initial_ms=0))
    reconciler = world.reconciler()
    for _ in range(3):
        world.run(reconciler, 15)
        world.driver().doomed = EngineError("an executor was lost", fix="look", epoch=7)
    world.run(reconciler, 60)
    lifecycle(world, "failed")
    assert "epoch 7 failed 3 times in a row" in world.status().reason


@pytest.mark.parametrize("stop", ["finish", "now"])
def test_a_suspended_job_ends_and_a_resumed_one_runs_again(world: World, stop: str) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.want(wanted="suspended", stop=stop)
    world.run(reconciler, 10)
    lifecycle(world, "suspended")
    assert world.alive() == []
    assert world.of()[0].exit_code == (0 if stop == "finish" else -9)
    world.want(wanted="running")
    world.run(reconciler, 10)
    lifecycle(world, "running")
    assert world.status().failures == ()


def test_a_drained_job_is_finished_and_stays_so(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.want(wanted="suspended", stop="drain")
    world.run(reconciler, 10)
    lifecycle(world, "finished")
    world.want(wanted="running")
    world.run(reconciler, 30)
    lifecycle(world, "finished")
    assert len(world.launched) == 1


def test_a_drain_that_is_killed_is_gone_on_with(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.want(wanted="suspended", stop="drain")
    reconciler.reconcile_all()
    lifecycle(world, "draining")
    world.driver().end(-9)
    world.run(reconciler, 30)
    lifecycle(world, "finished")
    assert len(world.launched) == 2


@pytest.mark.parametrize("changes", [0, 1])
def test_a_job_submitted_in_the_place_of_one_that_was_removed_is_another(world: World, changes: int) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    for _ in range(changes):
        world.want(wanted="suspended")
    world.run(reconciler, 10)
    for process in world.alive():
        process.end(-9)
    world.store.remove_folder("fares")
    world.submit(wanted="suspended")
    world.run(reconciler, 10)
    assert world.launched == [("fares", 1)]
    lifecycle(world, "suspended")


def test_other_code_replaces_the_driver(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.want(version="2")
    reconciler.reconcile_all()
    lifecycle(world, "upgrading")
    world.run(reconciler, 15)
    lifecycle(world, "running")
    assert [process.exit_code for process in world.of()] == [0, None]
    assert world.status().counted_from == 2


def test_other_settings_restart_the_driver_and_other_thresholds_do_not(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.want(restart=RestartPolicy(kind="none"), hang_after_ms=600_000)
    world.run(reconciler, 10)
    assert (len(world.launched), world.status().generation) == (1, 2)
    world.want(trigger_ms=1_000)
    reconciler.reconcile_all()
    lifecycle(world, "draining")
    world.run(reconciler, 15)
    lifecycle(world, "running")
    assert len(world.launched) == 2


def test_a_driver_that_is_resumed_while_it_ends_is_followed_by_another(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.want(wanted="suspended")
    reconciler.reconcile_all()
    lifecycle(world, "draining")
    world.want(wanted="running")
    world.run(reconciler, 15)
    lifecycle(world, "running")
    assert len(world.launched) == 2
    assert world.of()[0].signals == 1, "a second one would interrupt the epoch at hand"


def test_a_stopped_process_is_killed_after_its_lease_and_started_again(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.driver().frozen = True
    world.run(reconciler, 30)
    assert world.status().suspicion is not None
    assert world.of()[0].alive
    world.run(reconciler, 30)
    lifecycle(world, "running")
    assert world.of()[0].exit_code == -9
    assert "no heartbeat since" in world.status().failures[0].message


def test_a_process_that_sleeps_less_than_that_is_left_alone(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    world.driver().frozen = True
    world.run(reconciler, 40)
    world.driver().frozen = False
    world.run(reconciler, 20)
    lifecycle(world, "running")
    assert world.status().suspicion is None
    assert len(world.launched) == 1


def test_an_epoch_without_end_is_a_hang_and_counts_as_a_failure_of_that_epoch(world: World) -> None:
    world.submit(hang_after_ms=60_000)
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    driver = world.driver()
    begun = world.clock.now_ms()
    for _ in range(20):
        world.clock.advance(5_000)
        if driver.alive:
            world.busy(driver, begun)
        reconciler.reconcile_all()
    failed = world.status().failures[0]
    assert "an epoch has been running since" in failed.message
    last = world.observe().driver
    assert last is not None
    assert last.last is not None
    assert failed.epoch == last.last.epoch + 1


def test_a_driver_that_never_shows_itself_is_killed(world: World) -> None:
    world.submit(start_timeout_ms=60_000)
    reconciler = world.reconciler()
    reconciler.reconcile_all()
    world.driver().frozen = True
    world.run(reconciler, 90)
    assert "no heartbeat within 1m after its launch" in world.status().failures[0].message
    lifecycle(world, "running")


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
def test_a_clock_that_jumps_kills_nobody(world: World, jump: int) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 20)
    world.clock.set(world.clock.now_ms() + jump)
    world.run(reconciler, 60)
    lifecycle(world, "running")
    assert len(world.launched) == 1
    world.driver().end(-9)
    world.clock.set(world.clock.now_ms() - jump)
    world.run(reconciler, 60)
    lifecycle(world, "running")
    assert len(world.launched) == 2


def test_a_launch_that_fails_is_tried_again(world: World) -> None:
    world.refuses_to_launch = 2
    world.submit()
    world.run(world.reconciler(), 60)
    lifecycle(world, "running")
    assert [failure.code for failure in world.status().failures] == ["TM601", "TM601"]
    assert world.launched == [("fares", 3)]


def test_one_job_s_damage_does_not_keep_the_others_from_running(world: World) -> None:
    world.submit("bikes")
    world.submit("fares")
    world.store.put("bikes/control/specs/00000001.json", b"{}")
    world.store.put("loose/data.csv", b"")
    report = world.reconciler().reconcile_all()
    assert set(report.errors) == {"bikes"}
    assert [done.job for done in report.acted] == ["fares"]


def test_a_launch_that_fails_in_an_unforeseen_way_fails_as_any_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = World.launch

    def odd(self: World, job: str, attempt: Attempt, host: str) -> ProcessHandle:
        if job == "bikes":
            raise RuntimeError("no home for postgres://ada:hunter2@db")
        return launch(self, job, attempt, host)

    monkeypatch.setattr(World, "launch", odd)
    for job in ("bikes", "fares"):
        world.submit(job)
    report = world.reconciler().reconcile_all()
    assert (report.errors, world.launched) == ({}, [("fares", 1)])
    status = world.status("bikes")
    assert (status.lifecycle, status.next_start_at is not None) == ("failing", True)
    assert status.error is not None
    assert "launcher 'local' failed: RuntimeError: no home for postgres://<hidden>@db" in status.error.message
    assert "hunter2" not in world.store.get("bikes/control/status.json").decode()


@pytest.mark.parametrize("place", ["probe", "kill"])
def test_one_job_s_odd_trouble_is_its_own_and_frees_its_lease(world: World, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in ("bikes", "fares"):
        world.submit(job)
    world.run(world.reconciler(), 20)
    for job in ("bikes", "fares"):
        world.want(job, wanted="suspended", stop="now")
    usual = getattr(FakeLauncher, place)

    def odd(self: FakeLauncher, handle: ProcessHandle) -> object:
        if world.find(handle).job == "bikes":
            raise ValueError("a sign that nobody can read, DB_PASS=hunter2")
        return usual(self, handle)

    with monkeypatch.context() as patch:
        patch.setattr(FakeLauncher, place, odd)
        report = world.reconciler().reconcile_all()
    assert set(report.errors) == {"bikes"}
    text = str(report.errors["bikes"])
    assert "ValueError: a sign that nobody can read, DB_PASS=<hidden> (job 'bikes', at " in text
    assert ".py:" in text.split(" at ")[1]
    assert world.alive("fares") == []
    assert not world.reconciler("host-a").reconcile_all(["bikes"]).results[0].lease_held_elsewhere, "another holder may act at once"
    assert world.alive("bikes") == []


def test_a_damaged_status_is_made_anew(world: World) -> None:
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 20)
    world.store.put("fares/control/status.json", b"{")
    world.run(reconciler, 20)
    lifecycle(world, "running")
    assert len(world.launched) == 1


def test_old_records_are_deleted(world: World) -> None:
    world.submit(restart=RestartPolicy(initial_ms=0, same_epoch_failures=0, longest_ms=0))
    for number in range(1, 101):
        create_attempt(world.store, "fares", Attempt(number, 1, START, "ada/1", "long ago"))
        abandon_attempt(world.store, "fares", number, by="ada/1", at=START)
        write_warning(world.store, "fares", DriverWarning(number, START, "no metrics"))
    reconciler = world.reconciler()
    for _ in range(25):
        world.run(reconciler, 10)
        for process in world.alive():
            process.end(-9)
    world.run(reconciler, 20)
    newest = world.driver().attempt
    assert newest >= 120
    names = [file.path for file in world.store.list("fares/control")]
    for kind in ("attempts", "claims"):
        numbers = sorted(int(Path(name).stem) for name in names if f"/{kind}/" in name)
        assert numbers == list(range(newest - newest % 10 - KEPT_ATTEMPTS, newest + 1)), kind
    assert len([name for name in names if "/warnings/" in name]) == 100 - (newest - newest % 10 - KEPT_ATTEMPTS) + 1
    assert len([name for name in names if "/leases/" in name]) <= 6
    lifecycle(world, "running")


def test_old_generations_are_deleted_but_not_the_one_that_is_used(world: World) -> None:
    world.submit(hang_after_ms=300_000)
    world.want(hang_after_ms=300_001)
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    for number in range(240):
        world.want(hang_after_ms=400_000 + number)
    assert world.run(reconciler, 20).acted == (), "the driver needs no other spec, and its own is still there"
    left = spec_numbers(world.store, "fares")
    assert left == (2, *range(left[1], 243))
    assert KEPT_GENERATIONS <= len(left) <= KEPT_GENERATIONS + 11
    world.want(version="2")
    world.run(reconciler, 20)
    for number in range(20):
        world.want(hang_after_ms=500_000 + number)
    assert spec_numbers(world.store, "fares")[0] > 100
    lifecycle(world, "running")
