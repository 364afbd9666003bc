"""What every kind of operator keeps, whichever it is: a new kind is tested by being in the registry, with cases in ``kinds/``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.conformance.cases import Case, Element, cases, random_epochs
from tests.conformance.worlds import Rows, Seen, World, by_harness, kept_by_harness
from tests.seeds import PROFILE, only_long
from tidemark.graph.api.keyed_stream import KeyedStream
from tidemark.graph.api.windows.windowed_stream import WindowedStream
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.registry import definition_changes, kind_of, kinds
from tidemark.savepoints import SavepointStore
from tidemark.state.store.store import JobStore
from tidemark.testing import OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = cases()
IN_SPARK = {name: case for name, case in CASES.items() if PROFILE == "long" or not case.only_long}
SEED = 11
EPOCHS = 3 if PROFILE == "long" else 2
EVERY_POINT = ("state-staged", "outputs-staged", "before-commit")
POINTS = (("", "before-commit"), ("", "")) if PROFILE != "long" else (EVERY_POINT, EVERY_POINT)
"""Where the driver of each epoch of a job dies first, if anywhere. At the first point one operator has staged its state, at the others all
have; in the short profiles drivers die with a case of each kind."""

# The first test that asks for the runs waits for all of them.
pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def epochs() -> list[list[Element]]:
    """The elements of all runs; of the second epoch some are late for each operator that has late ones."""
    return random_epochs(SEED, epochs=EPOCHS, rows=180, disorder_ms=30_000, step_ms=18_000)


@dataclass(frozen=True)
class Ran:
    """What each epoch did, and how many rows the main table of each operator's state had in the savepoint."""

    epochs: list[dict[str, Seen]]
    kept: dict[str, int]


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, epochs: list[list[Element]]) -> Ran:
    """What runs do whose driver dies in epochs, and that resume from a savepoint at another parallelism."""
    jobs = [disturbed(spark, tmp_path_factory.mktemp("disturbed"), *job, epochs) for job in zip(halves(), POINTS, strict=True)]
    whole = [{name: seen for job in jobs for name, seen in job.epochs[number].items()} for number in range(len(jobs[0].epochs))]
    return Ran(whole, {name: rows for job in jobs for name, rows in job.kept.items()})


def halves() -> tuple[Mapping[str, Case], Mapping[str, Case]]:
    """Return a case of each kind, and all others: one job with all has more operators and outputs than the record of an epoch may list."""
    of_each = {node_of(case).KIND: name for name, case in reversed(IN_SPARK.items())}.values()
    return (
        {name: case for name, case in IN_SPARK.items() if name in of_each},
        {name: case for name, case in IN_SPARK.items() if name not in of_each},
    )


def disturbed(spark: SparkSession, folder: Path, chosen: Mapping[str, Case], points: Sequence[str], epochs: list[list[Element]]) -> Ran:
    """Run a job to its end, killed at a point of each epoch, and restored before the last epoch of elements."""
    world = World(spark, folder, chosen, epochs, parallelism=3)
    found = [seen for point in points[:-1] for seen in killed_once(world, point, max_epochs=1)]
    SavepointStore(JobStore.open(world.store), world.job.name).take("half")
    kept = world.kept()
    elsewhere = World(spark, folder, chosen, epochs, parallelism=2)
    # What is killed in the last epoch of elements runs it again, and then ends.
    found += killed_once(elsewhere, points[-1], restore=tm.Restore("half", identity="once"), end_of_input=True)
    return Ran(found, kept)


def killed_once(world: World, point: str, **settings: Any) -> list[dict[str, Seen]]:
    """Run a job whose driver dies at a point, and then again; return what it does in the epochs of the second run, or without a point."""
    if not point:
        return world.run(**settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_CRASH_AT", point)
        patch.setattr("tidemark.crashpoints._reached", {})
        patch.setattr("tidemark.crashpoints.os.kill", killed)
        with pytest.raises(Exception, match="killed here"):
            world.run(**settings)
    return world.run(takeover=True, **settings)


def killed(pid: int, signal: int) -> None:
    """Stand for the death of the process: nothing of it goes on."""
    del pid, signal
    raise RuntimeError("killed here")


def node_of(case: Case) -> StatefulNode:
    """Return a case's operator."""
    node = case.stream(tm_source()).node
    assert isinstance(node, StatefulNode)
    return node


def tm_source() -> tm.Stream:
    """Return a source without elements."""
    from tests.conformance.cases import source

    return source([])


def test_every_kind_has_cases() -> None:
    assert {node_of(case).KIND for case in CASES.values()} == {node_of(case).KIND for case in IN_SPARK.values()} == set(kinds())


@pytest.mark.parametrize("name", CASES)
def test_definitions_are_stored_and_compared(name: str) -> None:
    node = node_of(CASES[name])
    kind = kind_of(node)
    stored = json.loads(json.dumps(kind.encode(node)))
    assert stored["kind"] == node.KIND == kind.name
    assert definition_changes(stored, kind.encode(node)) == ()
    decoded = kind.decode(stored, name)
    assert (decoded.uid, decoded.KIND, decoded.ports) == (name, node.KIND, ())
    assert kind.keeps(decoded) == kind.keeps(node)
    other = definition_changes({"kind": "another"}, stored)
    assert [change.effect for change in other] == ["other"]


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_of_it_before_it_runs(name: str) -> None:
    node = node_of(CASES[name])
    kind = kind_of(node)
    assert set(node.side_tags) <= set(kind.counters(node))
    assert [port.name for port in node.ports] == list(node.PORTS)
    assert kind.describe(node)
    assert kind.describe_rows(node)
    assert all(kind.describe_counter(counter) for counter in kind.counters(node))
    method, does = kind.made_by(node)
    assert any(hasattr(made, method) for made in (tm.Stream, KeyedStream, WindowedStream))
    assert does


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.parametrize("name", IN_SPARK)
def test_an_engine_that_is_killed_and_restored_does_in_each_epoch_what_the_harness_does(
    name: str, ran: Ran, epochs: list[list[Element]]
) -> None:
    assert [seen[name] for seen in ran.epochs] == by_harness(CASES[name], epochs)
    shown = {counter for seen in ran.epochs for counter, rows in seen[name].sides.items() if rows}
    assert set(CASES[name].sides) <= shown, "the elements do not show all its side outputs"


@pytest.mark.spark
def test_each_epoch_balances(ran: Ran) -> None:
    for seen in ran.epochs:
        for name, operator in seen.items():
            counts = dict(operator.counts)
            assert counts.pop("in", 0) == sum(counts.values()), name


@pytest.mark.spark
def test_a_savepoint_has_the_state_that_the_harness_has(ran: Ran, epochs: list[list[Element]]) -> None:
    assert ran.kept == {name: kept_by_harness(case, epochs[:-1]) for name, case in IN_SPARK.items()}


IN_ORDER = {name: case for name, case in CASES.items() if case.in_order}


@pytest.fixture(scope="module")
def ordered() -> list[Element]:
    """Elements in the order of their times."""
    found = (element for epoch in random_epochs(SEED + 1, epochs=3, rows=60) for element in epoch)
    return sorted(found, key=lambda element: element[0])


@pytest.mark.parametrize("name", IN_ORDER)
def test_elements_in_order_may_be_cut_into_epochs_anyhow(name: str, ordered: list[Element]) -> None:
    """By the contract, which the engine does in each epoch."""
    whole = results(by_harness(IN_ORDER[name], [ordered]))
    assert whole
    for cut in (1, 77, len(ordered) - 1):
        assert results(by_harness(IN_ORDER[name], [ordered[:cut], ordered[cut:]])) == whole


@only_long
@pytest.mark.spark
def test_the_engine_may_cut_elements_in_order_into_epochs(spark: SparkSession, tmp_path: Path, ordered: list[Element]) -> None:
    parts = World(spark, tmp_path, IN_ORDER, [ordered[:77], ordered[77:]]).run(end_of_input=True)
    for name, case in IN_ORDER.items():
        assert sum((seen[name].results for seen in parts), Rows()) == results(by_harness(case, [ordered])), name


def results(epochs: list[Seen]) -> Rows:
    """Return the results of all epochs."""
    return sum((seen.results for seen in epochs), Rows())


@pytest.mark.parametrize("name", CASES)
def test_state_is_gone_when_nothing_can_come_any_more(name: str, epochs: list[list[Element]]) -> None:
    harness = OperatorHarness(CASES[name].stream(tm_source()))
    for when, key, value in epochs[0]:
        port, row = CASES[name].arrives({"at": when, "k": key, "v": value})
        harness.process(row, at=when, port=port)
    harness.advance_watermark(epochs[0][0][0])
    assert bool(harness.state()) == kind_of(node_of(CASES[name])).keeps_state
    harness.end_input()
    assert harness.state() == [] or name == "counted" or CASES[name].stays
