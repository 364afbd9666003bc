"""Every kind of operator, resumed from every epoch at 1 and 7 partitions, its files merged between: the tables are those of one run."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from abc import ABC
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.savepoints.every_operator import FILES, land, streams_of
from tests.savepoints.operator_runs import CLOCK, TABLES, OperatorRuns, Rows, covering, require_rest
from tests.seeds import PROFILE
from tidemark.graph.model.nodes import Node, StatefulNode
from tidemark.graph.operators.registry import keeps_state
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows import assigners, local_windows
from tidemark.spark import operators
from tidemark.spark.operators.base.contract import OperatorRuntime
from tidemark.spark.operators.registry.runtimes import runtime_of
from tidemark.state.gc.compaction import CompactionPlan, plan_compaction
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "job"


@dataclass(frozen=True)
class Resumption:
    """A job that goes on from an epoch, with these numbers of partitions, one epoch after the other.

    ``of`` is the job whose epoch it is; where it is the job itself, that is rewound, else the epoch is restored into a new one. The
    epoch is the newest of that number, or that of the ``undisturbed`` run.
    """

    epoch: int
    turns: tuple[int, ...]
    of: str = JOB
    job: str = JOB
    undisturbed: bool = False


READ = FILES if PROFILE == "long" else 2
"""Files of each source: with one more the operators have state of more files, and do nothing else."""

TIMES = CLOCK if PROFILE == "long" else (0, 1_500, 3_900)
"""Processing time of each epoch: two of them close windows of a second."""

RESUMPTIONS = (
    # The second from what the first has left, and one epoch long: what two epochs do, each does for itself.
    (Resumption(0, (7,)), Resumption(1, (1,), job="fork"))
    if PROFILE != "long"
    else (
        Resumption(0, (7, 1, 2)),
        Resumption(1, (1, 7), job="fork", undisturbed=True),
        Resumption(2, (2,), of="fork", job="fork-of-fork"),
        Resumption(2, (7,)),
    )
)
"""From each epoch, to the end of the input in the long profile. The undisturbed run has two partitions."""


def modules_of_operators() -> list[ModuleType]:
    return [importlib.import_module(found.name) for found in pkgutil.walk_packages(operators.__path__, f"{operators.__name__}.")]


def kinds_of(base: type) -> Iterator[type]:
    """Yield the classes below one that can be made; those of other tests are left out."""
    kind: type
    for kind in base.__subclasses__():
        yield from kinds_of(kind)
        if not inspect.isabstract(kind) and ABC not in kind.__bases__ and kind.__module__.startswith("tidemark."):
            yield kind


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_job_has_every_operator() -> None:
    """Each operator is in that job, so that it is shown to be restored as the others are."""
    job = tm.Job("job", {name: tm.memory(stream, name) for name, stream in streams_of(Path("landing")).items()})
    nodes = [node for node in job.nodes if isinstance(node, StatefulNode)]
    assert modules_of_operators()
    assert {type(runtime_of(node)) for node in nodes} == set(kinds_of(OperatorRuntime))
    assert {type(node) for node in job.nodes} == set(kinds_of(Node))
    known = {
        kind
        for module in (assigners, local_windows)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if hasattr(kind, "assign") and kind.__module__ == module.__name__
    }
    assert {type(node.assigner) for node in nodes if isinstance(node, WindowNode)} == known


def outputs_shown() -> list[str] | None:
    """Return outputs that together have each kind of operator, run in each way that it is run; in the long profile None for all."""
    if PROFILE == "long":
        return None
    # The interval join whose state lasts for long enough that files of it are merged.
    return covering(streams_of(Path("landing")), (*TABLES, "alike"))


def merging(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Let operators merge few files, and count their merges by module."""
    merges: Counter[str] = Counter()

    def plan_of(module: str) -> Any:
        def plan(files: Iterable[StateFile], **settings: Any) -> CompactionPlan:
            found = plan_compaction(files, min_files=1, **settings)
            merges[module] += len(found.merge)
            return found

        return plan

    for module in modules_of_operators():
        if hasattr(module, "plan_compaction"):
            merges[module.__name__] = 0
            patch.setattr(module, "plan_compaction", plan_of(module.__name__))
    # Else joins merge no files of different epochs, which expire too far apart.
    patch.setattr("tidemark.spark.operators.interval_join.state.SLOTS", 1)
    return merges


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_resumed_from_any_epoch_at_any_parallelism(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merges = merging(monkeypatch)
    runs = OperatorRuns(spark, tmp_path, outputs_shown(), TIMES)
    land(runs.landing, files=READ)
    undisturbed = runs.run(JOB)
    assert len(undisturbed.epochs) == READ + 1
    require_enough_to_see(undisturbed.epochs)
    tables = tables_by_epoch(runs)
    restored: Counter[str] = Counter(dict.fromkeys(stateful(runs), 0))
    merges_before = dict(merges)
    for step in RESUMPTIONS:
        lineage = undisturbed.lineage if step.undisturbed else None
        savepoint = tm.savepoints_of(step.of, store=runs.store).take(f"at-{step.epoch}", epoch=step.epoch, lineage=lineage)
        restored.update(uid for uid, state in savepoint.record.operators.items() if state.files)
        last = step.epoch + len(step.turns)
        where = f"resumed from epoch {step.epoch}"
        if step.job == step.of:
            tm.rewind(step.job, savepoint.name, store=runs.store)
            require_same(runs.rows_of_tables(step.job), tables[step.epoch], f"the tables, rewound to epoch {step.epoch}")
            found = runs.run(step.job, first=step.epoch + 1, turns=step.turns, max_epochs=len(step.turns))
            require_same(runs.rows_of_tables(step.job), tables[last], f"the tables, {where}")
        else:
            restore = tm.Restore(savepoint.name, job=step.of)
            found = runs.run(step.job, first=step.epoch + 1, turns=step.turns, max_epochs=len(step.turns), restore=restore)
            require_rest(runs.rows_of_tables(step.job), tables[step.epoch], tables[last])
        assert len(found.epochs) == len(step.turns)
        for number, rows in enumerate(found.epochs, step.epoch + 1):
            require_same(rows, undisturbed.epochs[number], f"epoch {number}, {where}")
    # Otherwise little would be shown: state of every operator was restored time and again, and files of every kind were merged.
    assert {step.epoch for step in RESUMPTIONS} == set(range(READ))
    assert min(restored.values()) >= 2, restored
    assert all(0 < merges_before[module] < merges[module] for module in merges), (merges_before, merges)


def stateful(runs: OperatorRuns) -> list[str]:
    """Return the uids of the job's operators that keep state."""
    return [node.uid for node in runs.job(JOB)[0].nodes if isinstance(node, StatefulNode) and node.uid and keeps_state(node)]


def tables_by_epoch(runs: OperatorRuns) -> list[Rows]:
    """Return the rows of the job's tables after each epoch; all of them have some in the end."""
    store = tm.savepoints_of(JOB, store=runs.store)
    found = []
    for epoch in range(READ + 1):
        versions = {name: table.version for name, table in store.take(f"after-{epoch}", epoch=epoch).info.tables.items()}
        found.append(runs.rows_of_tables(JOB, versions))
    assert all(found[-1].values()), found[-1]
    return found


def require_enough_to_see(epochs: list[Rows]) -> None:
    """Make sure that there are rows of each output in several epochs."""
    found = {name: sum(bool(rows[name]) for rows in epochs) for name in epochs[0]}
    assert min(found.values()) >= 2, found


def require_same(found: Rows, expected: Rows, where: str) -> None:
    assert set(found) == set(expected)
    for output, rows in expected.items():
        assert found[output] == rows, f"{output} in {where}"
