"""The graph that a driver stores: what it holds, for every operator there is."""

from __future__ import annotations

from pathlib import Path

import tidemark as tm
from tests.savepoints.every_operator import streams_of
from tests.web.recorded_job import taxi_job
from tidemark.graph.operators.registry import kinds
from tidemark.savepoints.model.stored_graph import graph_of
from tidemark.spark.epoch.topology import build_topology


def test_names_and_edges() -> None:
    graph = graph_of(taxi_job())
    names = {node.id: f"{node.role} {node.name}" for node in graph.nodes}
    assert [(names[edge.start], names[edge.end], edge.tag) for edge in graph.edges] == [
        ("source fares", "step select-1", ""),
        ("step select-1", "step refunds", ""),
        ("step refunds", "operator hourly", ""),
        ("source rides", "operator first-ride", ""),
        ("operator hourly", "output hourly", ""),
        ("operator first-ride", "output rides", ""),
        ("operator hourly", "output late", "late_fares"),
        ("step refunds", "output refunds", "refunds"),
        ("source fares", "output unreadable", "unreadable"),
    ]
    hourly = next(node for node in graph.nodes if node.name == "hourly" and node.role == "operator")
    assert hourly.text == "window by zone, tumbling 1h, allowed lateness 10m: fares = count(), dollars = sum(fare)"
    output = next(node for node in graph.nodes if node.name == "late")
    assert (output.kind, output.detail) == ("parquet", "exactly once, an epoch's files one after the other")


def test_every_operator_has_the_name_that_its_progress_has(tmp_path: Path) -> None:
    streams = streams_of(tmp_path)
    job = tm.Job("every", outputs={name: tm.memory(stream, name) for name, stream in streams.items()})
    graph, topology = graph_of(job), build_topology(job.outputs)
    operators = {node.name: node.kind for node in graph.nodes if node.role == "operator"}
    assert operators == {topology.name(node): node.KIND for node in topology.operators}
    assert set(operators.values()) == set(kinds())
    assert {node.name for node in graph.nodes if node.role == "source"} == {source.name for source in topology.sources}
    ids = [node.id for node in graph.nodes]
    assert len(set(ids)) == len(ids)
    order = {identity: number for number, identity in enumerate(ids)}
    assert all(order[edge.start] < order[edge.end] for edge in graph.edges)


def test_credentials_are_not_stored() -> None:
    files = tm.files("s3://key:hunter2@bucket/in", format="json", schema="at TIMESTAMP, note STRING")
    trips = tm.source("trips", files, watermarks=tm.ascending(timestamp="at"))
    paid = trips.filter("note <> 'password=hunter2'")
    job = tm.Job("fares", outputs={"tips": tm.memory(paid, "tips")}, description="password=hunter2")
    assert "hunter2" not in str(graph_of(job))
