from __future__ import annotations

from dataclasses import replace

import pytest

from tests.savepoints.stored_jobs import store_in_memory
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.attempts import create_attempt
from tidemark.control.driver.spec_watch import SpecWatch
from tidemark.control.model.paths import SPECS, numbered
from tidemark.control.model.records import Attempt
from tidemark.control.model.spec import JobSpec
from tidemark.savepoints.model.restore import Restore
from tidemark.state.store.layout import job_folder


def test_a_running_driver_takes_another_parallelism_up_and_goes_on() -> None:
    root = store_in_memory()
    spec = JobSpec("taxi", "m:job", parallelism=2)
    client = JobClient(root, "me")
    client.submit(spec)
    assert create_attempt(root, "taxi", Attempt(1, 1, 0, "me", ""))
    watch = SpecWatch(root, "taxi", 1, exit_now=lambda: pytest.fail("it was not asked to leave"))
    seen = []
    for parallelism in (2, 7, 7, None):
        client.submit(replace(spec, parallelism=parallelism))
        watch.poll()
        seen.append((watch.parallelism, watch.stopping.is_set()))
    assert seen == [(2, False), (7, False), (7, False), (None, False)]


def test_another_parallelism_is_that_of_the_next_epoch_though_nobody_has_looked_since() -> None:
    root = store_in_memory()
    client = JobClient(root, "me")
    client.submit(JobSpec("taxi", "m:job", parallelism=2))
    watch = SpecWatch(root, "taxi", 1, exit_now=lambda: pytest.fail("it was not asked to leave"))
    watch.poll()
    client.submit(JobSpec("taxi", "m:job", parallelism=5))
    client.submit(JobSpec("taxi", "m:job", parallelism=7))
    assert watch.next_parallelism() == 7
    client.stop("taxi")
    assert (watch.next_parallelism(), watch.stopping.is_set(), watch.stop_mode) == (7, True, "finish")


def test_an_epoch_begins_as_before_while_the_store_of_specs_does_not_answer() -> None:
    root = store_in_memory()
    JobClient(root, "me").submit(JobSpec("taxi", "m:job", parallelism=2))
    watch = SpecWatch(root, "taxi", 1, exit_now=lambda: None)
    watch.poll()
    root.at(job_folder("taxi")).put(numbered(SPECS, 2), b"not a spec")
    assert watch.next_parallelism() == 2


def test_a_savepoint_to_go_on_from_needs_another_driver() -> None:
    spec = JobSpec("taxi", "m:job")
    assert not replace(spec, parallelism=9).requires_restart_from(spec)
    assert replace(spec, restore=Restore("a", identity="1")).requires_restart_from(spec)
    assert replace(spec, outputs_root="elsewhere").requires_restart_from(spec)
