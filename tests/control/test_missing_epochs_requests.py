"""What is asked for about missing epochs counts for one start: it is done again only as long as no driver has gone on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.savepoints.stored_jobs import StoredJob, store_in_memory
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.attempts import create_attempt
from tidemark.control.desired.spec_store import change_spec, require_spec
from tidemark.control.driver.missing_epochs import missing_epochs_action
from tidemark.control.model.driver_starts import write_start
from tidemark.control.model.records import Attempt, DriverStart
from tidemark.control.model.spec import JobSpec
from tidemark.state.log.progress import MissingEpochs


class Job:
    """A job with an epoch, whose output lost some, as somebody said what is to be done about."""

    def __init__(self) -> None:
        self.stored = StoredJob(store_in_memory(), name="fares")
        self.root, self.clock = self.stored.root, self.stored.clock
        self.client = JobClient(self.root, "ada", self.clock)
        self.client.submit(JobSpec("fares", "fares:job", wanted="suspended"))
        self.stored.commit()
        self.client.start("fares", missing_epochs="accept")
        self._attempts = 0

    def attempt(self, *stages: str) -> MissingEpochs | None:
        """Return what the next attempt's driver may do, which then comes as far as the last of some stages, and ends."""
        self._attempts += 1
        spec = require_spec(self.root, "fares")
        attempt = Attempt(self._attempts, spec.generation, 0, "ada", "a test")
        assert create_attempt(self.root, "fares", attempt)
        found = missing_epochs_action(self.root, spec.spec, attempt)
        write_start(self.root, "fares", DriverStart(attempt.number, 0, "", 0, dict.fromkeys(stages, 5)))
        return found

    def change(self, **fields: object) -> None:
        changed = replace(require_spec(self.root, "fares").spec, **fields)  # type: ignore[arg-type]
        change_spec(self.root, "fares", lambda _: changed, by="ada", why="", clock=self.clock)


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_request_holds_for_later_attempts_until_one_commits(job: Job) -> None:
    assert [job.attempt("python", "code"), job.attempt("python", "recovery"), job.attempt()] == ["accept", "accept", "accept"]


def test_a_request_does_not_cover_a_later_loss(job: Job) -> None:
    assert job.attempt("recovery", "checkpoint", "first epoch") == "accept"
    assert [job.attempt("recovery"), job.attempt("recovery")] == [None, None]
    job.change(parallelism=7, version="2")
    assert job.attempt() is None, "another setting, and no word of what is missing"


@pytest.mark.parametrize("between", ["a stop", "a failure", "a start without it"])
def test_the_same_request_can_be_made_again(job: Job, between: str) -> None:
    assert job.attempt("first epoch") == "accept"
    if between == "a stop":
        job.client.stop("fares")
    elif between == "a failure":
        job.change(restarts=1)
    else:
        job.client.start("fares")
        assert job.attempt() is None
    job.client.start("fares", missing_epochs="accept")
    assert [job.attempt(), job.attempt("first epoch"), job.attempt()] == ["accept", "accept", None]


def test_a_request_is_for_the_epoch_that_was_the_newest(job: Job) -> None:
    job.stored.commit()
    assert job.attempt() is None
