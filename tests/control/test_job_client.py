"""What is asked of a job while no reconciler looks: whoever asks last is heard, whatever the driver did meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.control.test_records import GOLDEN, NOW, SPEC
from tests.control.worlds import World, lifecycle
from tests.savepoints.stored_jobs import StoredJob, store_in_memory
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import change_spec, require_spec
from tidemark.control.model.paths import SPECS, numbered
from tidemark.control.model.spec import JobSpec, MissingEpochsRequest, SpecGeneration
from tidemark.errors import SourceError
from tidemark.testing.manual_clock import ManualClock

GONE = SourceError("the folder is gone", fix="bring it back")


@pytest.fixture
def world() -> World:
    """A job that runs."""
    made = World()
    made.submit()
    made.run(made.reconciler(), 10)
    lifecycle(made, "running")
    return made


@pytest.fixture
def client(world: World) -> JobClient:
    return JobClient(world.store, "ada", world.clock)


@pytest.mark.parametrize("seen", ["nothing", "the failure", "the stop"])
def test_a_failed_job_that_was_stopped_and_started_runs_whatever_a_reconciler_observed(world: World, client: JobClient, seen: str) -> None:
    reconciler = world.reconciler()
    world.driver().doomed = GONE
    world.tick()
    assert world.alive() == []
    if seen == "the failure":
        reconciler.reconcile_all()
        lifecycle(world, "failed")
    client.stop("fares")
    if seen == "the stop":
        reconciler.reconcile_all()
        lifecycle(world, "suspended")
    client.start("fares", "the folder is back")
    world.run(reconciler, 30)
    lifecycle(world, "running")
    assert len(world.launched) == 2
    assert [failure.code for failure in world.status().failures] == ([] if seen == "the stop" else ["TM200"])


def test_a_job_that_was_stopped_and_started_at_once_gets_another_driver(world: World, client: JobClient) -> None:
    client.stop("fares")
    world.tick()
    assert world.alive() == []
    client.start("fares")
    world.reconciler().reconcile_all()
    assert len(world.launched) == 2, "at once, as after a stop that was seen"
    world.run(world.reconciler(), 10)
    lifecycle(world, "running")


def test_a_job_that_failed_while_draining_can_be_started(world: World, client: JobClient) -> None:
    client.stop("fares", "drain")
    world.reconciler().reconcile_all()
    world.driver().doomed = GONE
    world.run(world.reconciler(), 30)
    lifecycle(world, "failed")
    assert require_spec(world.store, "fares").spec.wanted == "suspended"
    client.start("fares")
    world.run(world.reconciler(), 10)
    lifecycle(world, "running")


def test_a_request_for_the_current_desired_state_writes_no_generation(world: World, client: JobClient) -> None:
    assert client.start("fares").generation == 1
    client.stop("fares")
    world.run(world.reconciler(), 20)
    lifecycle(world, "suspended")
    started = client.start("fares")
    assert (started.generation, started.spec.restarts) == (3, 0), "a stop that was seen needs no restart"
    assert client.start("fares") == started


def test_a_request_for_missing_epochs_is_not_kept_by_the_next_start() -> None:
    job = StoredJob(store_in_memory(), name="fares")
    client = JobClient(job.root, "ada", job.clock)
    client.submit(JobSpec("fares", "fares:job", wanted="suspended"))
    assert client.start("fares", missing_epochs="accept").spec.missing_epochs is None, "nothing was committed that could be missing"
    first = job.commit()
    request = client.start("fares", missing_epochs="accept").spec.missing_epochs
    assert request == MissingEpochsRequest("accept", first.lineage, first.epoch)
    assert (request.after(first.lineage, first.epoch), request.after(first.lineage, first.epoch + 1)) == ("accept", None)
    assert client.start("fares").spec.missing_epochs is None
    submitted = client.submit(JobSpec("fares", "fares:job"), missing_epochs="republish").spec
    assert submitted.missing_epochs == MissingEpochsRequest("republish", first.lineage, first.epoch)
    assert client.submit(JobSpec("fares", "fares:job")).spec.missing_epochs is None


def test_a_submission_with_missing_epochs_restarts_a_failed_job(world: World, client: JobClient) -> None:
    world.driver().doomed = GONE
    world.run(world.reconciler(), 5)
    lifecycle(world, "failed")
    stored = StoredJob(world.store, name="fares", clock=world.clock)
    stored.commit()
    stored.driver.release()
    spec = require_spec(world.store, "fares").spec
    client.submit(spec)
    world.run(world.reconciler(), 10)
    lifecycle(world, "failed")
    client.submit(spec, missing_epochs="accept")
    world.run(world.reconciler(), 10)
    lifecycle(world, "running")
    assert len(world.launched) == 2


def test_a_completed_request_for_missing_epochs_neither_restarts_a_driver_nor_is_repeated(world: World, client: JobClient) -> None:
    stored = StoredJob(world.store, name="fares", clock=world.clock)
    first = stored.commit()
    stored.driver.release()
    requested = client.start("fares", missing_epochs="accept").spec
    world.run(world.reconciler(), 30)
    lifecycle(world, "running")
    assert len(world.launched) == 2, "what is asked for is done at a start"
    plain = client.start("fares").spec
    world.run(world.reconciler(), 30)
    lifecycle(world, "running")
    assert len(world.launched) == 2, "the driver runs, and has done what was asked for"
    assert (plain.missing_epochs, plain.restarts) == (None, 0)
    assert requested.missing_epochs == MissingEpochsRequest("accept", first.lineage, first.epoch)
    assert requested.requires_restart_from(plain)
    client.start("fares", missing_epochs="accept")
    assert client.restart("fares").spec.missing_epochs is None, "another start, of which nobody has said so"


def test_a_request_for_missing_epochs_has_a_golden_record() -> None:
    root = store_in_memory()
    requested = replace(SPEC, missing_epochs=MissingEpochsRequest("republish", "a1", 7))
    change_spec(root, "fares", lambda _: requested, by="ada", why="a test", clock=ManualClock(NOW))
    assert root.get(f"fares/{numbered(SPECS, 1)}") == (GOLDEN / "spec-missing-epochs-1.json").read_bytes()
    assert require_spec(root, "fares") == SpecGeneration(1, NOW, "ada", "a test", requested)
