"""Many jobs in one store: a pass that has nothing to do reads little. How long it takes, ``benchmarks.operation.control`` measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.operation.control import NoLauncher, fill
from tests.control.worlds import WatchedStore
from tidemark.control.upgrade.upgrade_worker import upgrading_reconciler
from tidemark.state.store.store import JobStore


@dataclass
class Counter:
    operations: list[str] = field(default_factory=list)

    def __call__(self, operation: str) -> None:
        self.operations.append(operation)


def test_in_the_steady_state_a_job_costs_one_listing_and_three_reads(tmp_path: Path) -> None:
    root = JobStore.open(str(tmp_path))
    clock, counter = fill(root, 5), Counter()
    store = WatchedStore(root.location, root.objects, root.prefix, counter)
    reconciler = upgrading_reconciler(store, {"local": NoLauncher()}, clock)
    reconciler.reconcile_all()
    counter.operations.clear()
    reconciler.reconcile_all()
    assert sorted(counter.operations[:4]) == ["get control/status.json", "get heartbeat.json", "get status.json", "list control"]
    assert len(counter.operations) == 20
