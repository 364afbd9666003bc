"""What every kind of operator keeps, whichever it is: a new kind is tested by being in the registry, with cases in ``kinds/``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.conformance.cases import Case, Element, cases, random_epochs
from tests.conformance.worlds import Rows, Seen, World, by_harness, kept_by_harness
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
# One job with all of them has more operators and outputs than the record of an epoch may list.
JOBS = tuple({name: CASES[name] for name in [*CASES][number::2]} for number in (0, 1))
SEED = 11
POINTS = ("state-staged", "outputs-staged", "before-commit")

# The first test that asks for the runs waits for all of them.
pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def epochs() -> list[list[Element]]:
    """The elements of all runs."""
    return random_epochs(SEED)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, epochs: list[list[Element]]) -> list[dict[str, Seen]]:
    """What runs do whose driver dies in each of the first epochs, at another point each time."""
    both = [killed_at_each_point(World(spark, tmp_path_factory.mktemp("killed"), chosen, epochs)) for chosen in JOBS]
    return [{**one, **other} for one, other in zip(*both, strict=True)]


def killed_at_each_point(world: World) -> list[dict[str, Seen]]:
    """Run a job to its end; return what each of its epochs does."""
    found: list[dict[str, Seen]] = []
    for point in POINTS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TIDEMARK_CRASH_AT", point)
            patch.setattr("tidemark.crashpoints._reached", {})
            patch.setattr("tidemark.crashpoints.os.kill", killed)
            with pytest.raises(Exception, match="killed here"):
                world.run(max_epochs=1)
        found += world.run(takeover=True, max_epochs=1)
    return found + world.run(takeover=True, end_of_input=True)


def killed(pid: int, signal: int) -> None:
    """Stand for the death of the process: nothing of it goes on."""
    del pid, signal
    raise RuntimeError("killed here")


def of_job(seen: list[dict[str, Seen]], chosen: Mapping[str, Case]) -> list[dict[str, Seen]]:
    """Return what the operators of one job do."""
    return [{name: epoch[name] for name in chosen} for epoch in seen]


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
    assert {node_of(case).KIND for case in CASES.values()} == set(kinds())


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
@pytest.mark.parametrize("name", CASES)
def test_an_engine_that_is_killed_does_in_each_epoch_what_the_harness_does(
    name: str, ran: list[dict[str, Seen]], epochs: list[list[Element]]
) -> None:
    assert [seen[name] for seen in ran] == by_harness(CASES[name], epochs)
    shown = {counter for seen in ran for counter, rows in seen[name].sides.items() if rows}
    assert set(CASES[name].sides) <= shown, "the elements do not show all its side outputs"


@pytest.mark.spark
def test_each_epoch_balances(ran: list[dict[str, Seen]]) -> None:
    for seen in ran:
        for name, operator in seen.items():
            counts = dict(operator.counts)
            assert counts.pop("in", 0) == sum(counts.values()), name


@pytest.mark.spark
@pytest.mark.parametrize("number", range(len(JOBS)))
def test_a_savepoint_goes_on_as_if_nothing_had_been_at_any_parallelism(
    spark: SparkSession, tmp_path: Path, ran: list[dict[str, Seen]], epochs: list[list[Element]], number: int
) -> None:
    chosen = JOBS[number]
    whole = of_job(ran, chosen)
    world = World(spark, tmp_path, chosen, epochs, parallelism=5)
    assert world.run(max_epochs=2) == whole[:2]
    assert world.kept() == {name: kept_by_harness(case, epochs[:2]) for name, case in chosen.items()}
    SavepointStore(JobStore.open(world.store), world.job.name).take("half")
    # What the job does after it is undone.
    assert world.run(max_epochs=1) == whole[2:3]
    elsewhere = World(spark, tmp_path, chosen, epochs, parallelism=3)
    assert elsewhere.run(restore=tm.Restore("half"), end_of_input=True) == whole[2:]


@pytest.mark.spark
def test_elements_in_order_may_be_cut_into_epochs_anyhow(spark: SparkSession, tmp_path: Path) -> None:
    ordered = sorted((element for epoch in random_epochs(SEED + 1, epochs=4, rows=60) for element in epoch), key=lambda element: element[0])
    chosen = {name: case for name, case in CASES.items() if case.in_order}
    parts = World(spark, tmp_path, chosen, [ordered[:70], ordered[70:77], ordered[77:]]).run(end_of_input=True)
    for name, case in chosen.items():
        whole = by_harness(case, [ordered])
        assert sum((seen[name].results for seen in parts), Rows()) == sum((seen.results for seen in whole), Rows()), name


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
