"""Every operator, resumed from every epoch at 1, 2 and 7 partitions, its files merged between: the tables are those of one run."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.savepoints.every_operator import FILES, land, streams_of
from tests.savepoints.operator_runs import OperatorRuns, Rows, require_rest
from tests.seeds import PROFILE
from tidemark.graph.nodes import Node, WindowNode
from tidemark.semantics import assigners
from tidemark.spark import windows
from tidemark.spark.windows.contract import WindowStep
from tidemark.spark.windows.steps import step_of
from tidemark.state.compaction import CompactionPlan, plan_compaction
from tidemark.state.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNS = ((7, 1, 2), (1, 7), (7,))
"""Numbers of partitions of the epochs that follow, by the epoch that is resumed from. The undisturbed run has two."""


def modules_of_windows() -> list[ModuleType]:
    return [importlib.import_module(f"{windows.__name__}.{found.name}") for found in pkgutil.iter_modules(windows.__path__)]


def kinds_of(base: type) -> Iterator[type]:
    """Yield the classes below one that can be made."""
    kind: type
    for kind in base.__subclasses__():
        yield from kinds_of(kind)
        if not inspect.isabstract(kind):
            yield kind


def test_the_job_has_every_operator() -> None:
    """Whoever adds an operator adds it to that job: then it is shown to be restored as the others are."""
    job = tm.Job("job", {name: tm.memory(stream, name) for name, stream in streams_of(Path("landing")).items()})
    nodes = [node for node in job.nodes if isinstance(node, WindowNode)]
    assert modules_of_windows()
    assert {type(step_of(node)) for node in nodes} == set(kinds_of(WindowStep))
    assert {type(node) for node in job.nodes} == set(kinds_of(Node))
    known = {kind for _, kind in inspect.getmembers(assigners, inspect.isclass) if hasattr(kind, "assign")}
    assert {type(node.assigner) for node in nodes} == {kind for kind in known if kind.__module__ == assigners.__name__}


def merging(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Let operators merge few files, and count their merges by module."""
    merges: Counter[str] = Counter()

    def plan_of(module: str) -> Any:
        def plan(files: Iterable[StateFile], **settings: Any) -> CompactionPlan:
            found = plan_compaction(files, min_files=1, **settings)
            merges[module] += len(found.merge)
            return found

        return plan

    for module in modules_of_windows():
        if hasattr(module, "plan_compaction"):
            merges[module.__name__] = 0
            patch.setattr(module, "plan_compaction", plan_of(module.__name__))
    return merges


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.skipif(PROFILE != "long", reason="ten epochs of all operators take minutes")
def test_resumed_from_any_epoch_at_any_parallelism(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merges = merging(monkeypatch)
    runs = OperatorRuns(spark, tmp_path)
    land(runs.landing)
    undisturbed = runs.run()
    golden = runs.rows_of_tables("job")
    assert len(undisturbed.epochs) == FILES + 1
    require_enough_to_see(undisturbed.epochs, golden)
    store = tm.savepoints_of("job", store=runs.store)
    restored: Counter[str] = Counter()
    merges_before = dict(merges)
    for epoch, turns in enumerate(TURNS):
        forks = epoch % 2 == 1
        # Forks go on from the undisturbed run; the job itself from what it did when it was resumed the time before.
        savepoint = store.take(f"at-{epoch}", epoch=epoch, lineage=undisturbed.lineage if forks else None)
        restored.update(uid for uid, state in savepoint.record.operators.items() if state.files)
        versions = {name: table.version for name, table in savepoint.info.tables.items()}
        if forks:
            name = f"fork-{epoch}"
            found = runs.run(name, first=epoch + 1, turns=turns, restore=tm.Restore(savepoint.name, job="job"))
            require_rest(runs.rows_of_tables(name), runs.rows_of_tables("job", versions), golden)
        else:
            tm.rewind("job", savepoint.name, store=runs.store)
            assert runs.rows_of_tables("job") == runs.rows_of_tables("job", versions)
            found = runs.run(first=epoch + 1, turns=turns)
            require_same(runs.rows_of_tables("job"), golden, f"the tables, resumed from epoch {epoch}")
        assert len(found.epochs) == FILES - epoch
        for number, rows in enumerate(found.epochs, epoch + 1):
            require_same(rows, undisturbed.epochs[number], f"epoch {number}, resumed from epoch {epoch}")
    # Otherwise little would be shown: state of every operator was restored time and again, and files of every kind were merged.
    assert len(TURNS) == FILES
    assert set(restored) == set(store.get("at-0").record.operators)
    assert min(restored.values()) >= 2, restored
    assert all(0 < merges_before[module] < merges[module] for module in merges), (merges_before, merges)


def require_enough_to_see(epochs: list[Rows], tables: Rows) -> None:
    """Make sure that there are rows of each output, of most in several epochs."""
    found = {name: sum(bool(rows[name]) for rows in epochs) for name in epochs[0]}
    assert min(found.values()) >= 2, found
    assert all(tables.values()), tables


def require_same(found: Rows, expected: Rows, where: str) -> None:
    assert set(found) == set(expected)
    for output, rows in expected.items():
        assert found[output] == rows, f"{output} in {where}"
