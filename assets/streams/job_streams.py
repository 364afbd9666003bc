"""The streams of a job that Dagster shows: its sources, and its outputs by what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.graph import (
    ExplodeNode,
    FilesSpec,
    FilterNode,
    FormatSpec,
    FunctionNode,
    Node,
    Output,
    OutputTag,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SourceSpec,
    StatefulNode,
    TransformNode,
    WindowNode,
    WithColumnsNode,
    walk,
)

if TYPE_CHECKING:
    from tidemark.graph import Job

StreamKind = str
"""``main``, ``source``, ``malformed``, ``rejected``, or of a stateful operator's side output the name of its counter, such as ``late``."""

_EACH_JOBS_OWN = frozenset(
    (
        "startingoffsets",
        "startingoffsetsbytimestamp",
        "startingtimestamp",
        "startingversion",
        "failondataloss",
        "minoffsetspertrigger",
        "maxoffsetspertrigger",
        "maxbytespertrigger",
        "maxfilespertrigger",
        "maxtriggerdelay",
        "minpartitions",
    )
)
"""Options of streaming formats that do not say what is read."""

_ROW_BY_ROW = (SelectNode, WithColumnsNode, FilterNode, ExplodeNode, FunctionNode, TransformNode)


@dataclass(frozen=True)
class StreamData:
    """One stream of a job, as a translator sees it.

    ``kind`` is ``source`` for what enters the job, for side outputs what they hold (``late``, ``rejected``, ``malformed``, …), and
    ``main`` for all else. ``name`` is the source's or the output's; exactly one of ``output`` and ``source`` is set.
    """

    job: Job
    kind: StreamKind
    name: str
    output: Output | None = None
    source: SourceNode | None = None


def output_streams(job: Job) -> tuple[StreamData, ...]:
    """Return the job's outputs in the order they were declared."""
    return tuple(StreamData(job=job, kind=output_kind(output.node), name=name, output=output) for name, output in job.outputs.items())


def source_streams(job: Job) -> tuple[StreamData, ...]:
    """Return the job's sources in the order they were declared."""
    return tuple(StreamData(job=job, kind="source", name=name, source=source) for name, source in job.sources.items())


def source_address(spec: SourceSpec) -> object:
    """Return what tells where a source reads; how much at once, from where on and as which columns is each job's own affair."""
    match spec:
        case FilesSpec():
            return spec.path
        case FormatSpec():
            given = {name.lower(): value for name, value in spec.options.items()}
            return spec.format.lower(), {name: value for name, value in given.items() if name not in _EACH_JOBS_OWN}
        case _:
            return spec


def output_kind(node: Node) -> StreamKind:
    """Say what an output holds, looking through operators that work row by row."""
    found = emitter(node)
    if found is None:
        return "main"
    emitting, tag = found
    match emitting:
        case SourceNode() if emitting.malformed_to == tag:
            return "malformed"
        case FilterNode() if emitting.rejects_to == tag:
            return "rejected"
        case StatefulNode():
            return emitting.counter_of(tag)
        case _:
            return "main"


def emitter(node: Node) -> tuple[Node, OutputTag] | None:
    """Return the operator and the tag that a stream's rows come from; none if they come from no side output."""
    current = node
    while isinstance(current, _ROW_BY_ROW):
        current = current.input
    return (current.emitter, current.tag) if isinstance(current, SideOutputNode) else None


def is_whole_side_output(node: Node) -> bool:
    """Say whether a stream is a side output as it was emitted, row for row, so that its counts must equal the operator's."""
    return isinstance(node, SideOutputNode)


def sources_of(node: Node) -> tuple[SourceNode, ...]:
    """Return the sources a stream comes from."""
    return tuple(found for found in walk((node,)) if isinstance(found, SourceNode))


def windows_of(node: Node) -> tuple[WindowNode, ...]:
    """Return the window operators a stream's rows went through, or were turned away by."""
    return tuple(found for found in walk((node,)) if isinstance(found, WindowNode))


def result_operator(node: Node) -> StatefulNode | None:
    """Return the stateful operator whose results a stream holds, row for row; none if it holds other rows."""
    current = node
    while isinstance(current, SelectNode | WithColumnsNode | FilterNode):
        current = current.input
    return current if isinstance(current, StatefulNode) else None


def result_window(node: Node) -> WindowNode | None:
    """Return the window operator whose results a stream holds, one row per key, window and pane; none if it holds other rows."""
    operator = result_operator(node)
    return operator if isinstance(operator, WindowNode) else None
