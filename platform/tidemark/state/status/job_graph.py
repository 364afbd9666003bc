"""The graph of a job as its driver stores it at each start, for pages that draw it: they do not load the job's code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import GRAPH, job_folder
from tidemark.state.store.store import JobStore

Role = Literal["source", "step", "operator", "output"]
"""``step`` is a stateless node; ``operator`` a stateful one."""

KIND: Final = "graph"


@dataclass(frozen=True)
class GraphNode:
    """One box of the drawing.

    Args:
        id: identifies it within the graph.
        role: which counts of an epoch's progress it has.
        name: its name in progress: a source's, an operator's uid, an output's, or a kind and a number.
        kind: such as ``filter``, ``window`` or ``delta``.
        text: what it does, in one line.
        detail: how a source's elements are timed; what an output guarantees; else empty.
        description: what an output's rows are, as the user wrote it; else empty.
    """

    id: str
    role: Role
    name: str
    kind: str
    text: str
    detail: str = ""
    description: str = ""


@dataclass(frozen=True)
class GraphEdge:
    """Rows from one node to another, by their ids; of a side output with its tag, else empty."""

    start: str
    end: str
    tag: str = ""


@dataclass(frozen=True)
class JobGraph:
    """A job's graph: nodes in order, inputs before consumers, outputs last; ``code_version`` is that of the job's code."""

    job: str
    code_version: str
    description: str = ""
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


def write_job_graph(store: JobStore, graph: JobGraph) -> None:
    """Write a job's graph, replacing an older one. ``store`` is the root store."""
    write_document(store.at(job_folder(graph.job)), GRAPH, kind=KIND, value=graph)


def read_job_graph(store: JobStore, job: str) -> JobGraph | None:
    """Return a job's graph; None if no driver of this release or a later one has started it. ``store`` is the root store.

    Raises:
        CorruptStoreError: the file is damaged; the job's next start writes it again.
        FormatError: a newer release wrote it.
    """
    return read_document(store.at(job_folder(job)), GRAPH, kind=KIND, form=JobGraph)
