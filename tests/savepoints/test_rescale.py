from __future__ import annotations

from dataclasses import replace

import pytest

from tests.savepoints.stored_jobs import store_in_memory
from tidemark.control.attempts import create_attempt
from tidemark.control.records import Attempt
from tidemark.control.spec import JobSpec
from tidemark.control.spec_watch import SpecWatch
from tidemark.control.wishes import Wishes
from tidemark.savepoints.restore import Restore


def test_a_running_driver_takes_another_parallelism_up_and_goes_on() -> None:
    root = store_in_memory()
    spec = JobSpec("taxi", "m:job", parallelism=2)
    wishes = Wishes(root, "me")
    wishes.submit(spec)
    assert create_attempt(root, "taxi", Attempt(1, 1, 0, "me", ""))
    watch = SpecWatch(root, "taxi", 1, leave=lambda: pytest.fail("it was not asked to leave"))
    seen = []
    for parallelism in (2, 7, 7, None):
        wishes.submit(replace(spec, parallelism=parallelism))
        watch.look()
        seen.append((watch.parallelism, watch.stopping.is_set()))
    assert seen == [(2, False), (7, False), (7, False), (None, False)]


def test_a_savepoint_to_go_on_from_needs_another_driver() -> None:
    spec = JobSpec("taxi", "m:job")
    assert not replace(spec, parallelism=9).runs_otherwise_than(spec)
    assert replace(spec, restore=Restore("a", identity="1")).runs_otherwise_than(spec)
    assert replace(spec, outputs_root="elsewhere").runs_otherwise_than(spec)
