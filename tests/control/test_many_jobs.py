"""A thousand jobs in one store: a pass that has nothing to do reads little, and is over in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.control import NoLauncher, fill, measure
from tests.control.worlds import WatchedStore
from tidemark.control.reconciler import Reconciler
from tidemark.state.store import JobStore

JOBS = 200


@dataclass
class Counter:
    operations: list[str] = field(default_factory=list)

    def __call__(self, operation: str) -> None:
        self.operations.append(operation)


def test_a_pass_over_many_jobs_is_quick(tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path))
    found = measure(store, 2, fill(store, JOBS))
    assert found.well == JOBS
    # Five seconds for a thousand is the promise; on a machine that does other things, too, this is three times what it takes.
    assert min(found.later) < 5 * JOBS / 1_000


def test_in_the_steady_state_a_job_costs_one_listing_and_three_reads(tmp_path: Path) -> None:
    root = JobStore.open(str(tmp_path))
    clock, counter = fill(root, 5), Counter()
    store = WatchedStore(root.location, root.objects, root.prefix, counter)
    reconciler = Reconciler(store, {"local": NoLauncher()}, clock)
    reconciler.pass_over()
    counter.operations.clear()
    reconciler.pass_over()
    assert sorted(counter.operations[:4]) == ["get control/status.json", "get heartbeat.json", "get status.json", "list control"]
    assert len(counter.operations) == 20
