from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.errors import CorruptStoreError, FormatError
from tidemark.state.status.job_graph import GraphEdge, GraphNode, JobGraph, read_job_graph, write_job_graph
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden" / "graph-1.json"
GRAPH = JobGraph(
    "taxi",
    "c0ffee",
    "Tips of the city",
    (
        GraphNode("n1", "source", "trips", "source", "source trips: json files in /landing", "event time at, ascending"),
        GraphNode("n2", "step", "refunds", "filter", "filter fare >= 0"),
        GraphNode("n3", "operator", "hourly", "window", "window by zone, tumbling 1h: n = count()"),
        GraphNode("o1", "output", "tips", "delta", "delta /lake/tips", "exactly once", "Tips by hour"),
    ),
    (GraphEdge("n1", "n2"), GraphEdge("n2", "n3"), GraphEdge("n3", "o1", "late")),
)


def test_golden_graph_is_written_and_read_as_ever(root: JobStore) -> None:
    write_job_graph(root, GRAPH)
    assert root.get("taxi/graph.json") == GOLDEN.read_bytes()
    assert read_job_graph(root, "taxi") == GRAPH


def test_the_newest_graph_replaces_the_one_before(root: JobStore) -> None:
    assert read_job_graph(root, "taxi") is None
    write_job_graph(root, GRAPH)
    write_job_graph(root, JobGraph("taxi", "beef"))
    assert read_job_graph(root, "taxi") == JobGraph("taxi", "beef")


def test_damage_and_newer_formats_are_refused(root: JobStore) -> None:
    for damage in (b"", b"{oops", GOLDEN.read_bytes().replace(b"hourly", b"daily!")):
        root.put("taxi/graph.json", damage)
        with pytest.raises(CorruptStoreError, match=r"taxi/graph\.json"):
            read_job_graph(root, "taxi")
    root.put("taxi/graph.json", b'{"format":2}')
    with pytest.raises(FormatError):
        read_job_graph(root, "taxi")
