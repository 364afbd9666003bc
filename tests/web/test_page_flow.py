"""Rows into and out of the nodes of a graph: counted ones, and those that follow from them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.control.worlds import World
from tests.web.recorded_job import RecordedJob, taxi_job
from tidemark.savepoints.model.stored_graph import graph_of
from tidemark.state.log.progress import EpochProgress, OperatorProgress, OutputProgress, SourceProgress
from tidemark.state.status.job_graph import GraphEdge, GraphNode, JobGraph, Role
from tidemark.web.page.flow import NodeRows, graph_of_progress, rows_by_node, sources_of, sum_of_epochs


def node(identity: str, role: Role, kind: str) -> GraphNode:
    return GraphNode(identity, role, identity, kind, identity)


def chain(*nodes: GraphNode) -> JobGraph:
    edges = tuple(GraphEdge(one.id, other.id) for one, other in pairwise(nodes))
    return JobGraph("fares", "", nodes=nodes, edges=edges)


def operator(rows: int, late: int = 0, **fields: object) -> OperatorProgress:
    return replace(OperatorProgress(rows, rows - late, late, None, 0, 0, 0, 0, 0), **fields)  # type: ignore[arg-type]


def epoch(**fields: object) -> EpochProgress:
    return replace(EpochProgress("fares", "a1", 0, 0, 1, 0, 0), **fields)  # type: ignore[arg-type]


def test_what_operators_and_expressions_give_follows_from_their_consumers() -> None:
    graph = chain(
        node("trips", "source", "source"),
        node("select-1", "step", "select"),
        node("hourly", "operator", "window"),
        node("with-columns-3", "step", "with-columns"),
        node("function-4", "step", "function"),
        node("tips", "output", "delta"),
    )
    progress = epoch(
        sources={"trips": SourceProgress(10, 9, 1, None, None, None)},
        operators={"hourly": operator(9, 2)},
        outputs={"tips": OutputProgress(4, 1, 1, "delta")},
    )
    assert rows_by_node(graph, progress) == {
        "trips": NodeRows(10, 9),
        "select-1": NodeRows(9, 9),
        "hourly": NodeRows(9, None, 2),
        "with-columns-3": NodeRows(None, None),
        "function-4": NodeRows(None, 4),
        "tips": NodeRows(4, None),
    }, "a function may give more or fewer rows than it takes, so nothing is known before it"
    without = replace(graph, nodes=graph.nodes[:4] + graph.nodes[5:], edges=(*graph.edges[:3], GraphEdge("with-columns-3", "tips")))
    found = rows_by_node(without, progress)
    assert found["hourly"] == NodeRows(9, 4, 2)
    assert found["with-columns-3"] == NodeRows(4, 4)


def test_a_union_takes_what_all_its_inputs_give_if_all_are_known() -> None:
    nodes = (node("one", "source", "source"), node("other", "source", "source"), node("union-2", "step", "union"))
    graph = JobGraph("fares", "", nodes=nodes, edges=(GraphEdge("one", "union-2"), GraphEdge("other", "union-2")))
    sources = {name: SourceProgress(3, 3, 0, None, None, None) for name in ("one", "other")}
    assert rows_by_node(graph, epoch(sources=sources))["union-2"] == NodeRows(6, 6)
    assert rows_by_node(graph, epoch(sources={"one": sources["one"]}))["union-2"] == NodeRows(None, None)


def test_side_outputs_have_the_rows_that_were_not_accepted() -> None:
    job = RecordedJob(World())
    progress = job.commit(late=7, malformed=5)
    graph = graph_of(taxi_job())
    rows = rows_by_node(graph, progress)
    by_name = {(each.role, each.name): rows[each.id] for each in graph.nodes}
    assert by_name["output", "late"].rows_in == 7
    assert by_name["output", "unreadable"].rows_in == 5
    assert by_name["operator", "hourly"].late == 7
    assert by_name["step", "refunds"].rows_in == by_name["step", "select-1"].rows_out == by_name["source", "fares"].rows_out


def test_epochs_in_which_a_node_has_no_count_are_left_out() -> None:
    graph = chain(node("trips", "source", "source"), node("hourly", "operator", "window"))
    found = sum_of_epochs(graph, [epoch(), epoch(operators={"hourly": operator(5, 1)}), epoch(operators={"hourly": operator(6)})])
    assert found == {"trips": NodeRows(None, 11), "hourly": NodeRows(11, None, 1)}
    assert sum_of_epochs(graph, []) == {"trips": NodeRows(), "hourly": NodeRows()}


def test_the_sources_of_a_node() -> None:
    graph = graph_of(taxi_job())
    ids = {(each.role, each.name): each.id for each in graph.nodes}
    assert sources_of(graph, ids["operator", "hourly"]) == {ids["source", "fares"]}
    assert sources_of(graph, ids["output", "rides"]) == {ids["source", "rides"]}
    assert sources_of(graph, ids["source", "rides"]) == {ids["source", "rides"]}


def test_without_a_stored_graph_the_nodes_with_counts_are_known() -> None:
    progress = RecordedJob(World()).commit()
    graph = graph_of_progress("fares", progress)
    assert graph.edges == ()
    assert {each.name for each in graph.nodes} == {*progress.sources, *progress.filters, *progress.operators, *progress.outputs}
    assert len({each.id for each in graph.nodes}) == len(graph.nodes)
    assert graph_of_progress("fares", None).nodes == ()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60), st.integers(1, 31))
def test_graphs_of_any_form_have_rows(pairs: list[tuple[int, int]], size: int) -> None:
    """Whatever is connected with what: every node has an entry, counts stay as they are."""
    nodes = tuple(node(f"n{n}", "source" if n == 0 else "step", "source" if n == 0 else "select") for n in range(size))
    edges = tuple(dict.fromkeys(GraphEdge(f"n{min(a, b)}", f"n{max(a, b)}") for a, b in pairs if a != b and max(a, b) < size))
    rows = rows_by_node(JobGraph("fares", "", nodes=nodes, edges=edges), epoch(sources={"n0": SourceProgress(3, 3, 0, None, None, None)}))
    assert rows.keys() == {each.id for each in nodes}
    assert rows["n0"] == NodeRows(3, 3)
    for each in nodes[1:]:
        into = [edge.start for edge in edges if edge.end == each.id]
        known = [rows[start].rows_out for start in into]
        if into and all(value is not None for value in known):
            assert rows[each.id].rows_in == sum(value for value in known if value is not None)
