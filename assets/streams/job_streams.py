"""The streams of a job that Dagster shows: its sources, and its outputs by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.graph import (
    ChangelogNode,
    DeltaTableSpec,
    ElementsNode,
    ExplodeNode,
    FilesSpec,
    FilterNode,
    FormatSpec,
    FunctionNode,
    KeyedProcessNode,
    Node,
    Output,
    OutputTag,
    PostgresChangesSpec,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SourceSpec,
    StatefulNode,
    TransformNode,
    WindowNode,
    WithColumnsNode,
    kind_of,
    walk,
)

if TYPE_CHECKING:
    from tidemark.graph import Job

StreamKind = str
"""``main``, ``source``, ``malformed``, ``rejected``, or for a stateful operator's side output the name of its counter, such as ``late``."""

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
"""Options of streaming formats that do not determine what is read."""

_ROW_BY_ROW = (SelectNode, WithColumnsNode, FilterNode, ExplodeNode, FunctionNode, TransformNode, ChangelogNode, ElementsNode)


@dataclass(frozen=True)
class StreamData:
    """One stream of a job, as passed to a translator.

    ``kind`` is ``source`` for sources, the kind of rows for side outputs (``late``, ``rejected``, ``malformed``, …), and ``main`` for
    all others. ``name`` is the source's or the output's; exactly one of ``output`` and ``source`` is set.
    """

    job: Job
    kind: StreamKind
    name: str
    output: Output | None = None
    source: SourceNode | None = None

    @property
    def changes_rows(self) -> bool:
        """Whether it is an output that replaces or closes rows of its table, instead of adding rows only."""
        return self.output is not None and getattr(self.output.sink, "mode", "append") != "append"


def output_streams(job: Job) -> tuple[StreamData, ...]:
    """Return the job's outputs in the order they were declared."""
    return tuple(StreamData(job=job, kind=output_kind(output.node), name=name, output=output) for name, output in job.outputs.items())


def source_streams(job: Job) -> tuple[StreamData, ...]:
    """Return the job's sources in the order they were declared."""
    return tuple(StreamData(job=job, kind="source", name=name, source=source) for name, source in job.sources.items())


def source_address(spec: SourceSpec) -> object:
    """Return what identifies a source's location; intake limits, starting offsets and columns may differ per job."""
    match spec:
        case FilesSpec():
            return spec.path
        case DeltaTableSpec():
            return "delta", spec.path, spec.changes
        case PostgresChangesSpec():
            return "postgres", spec.dsn_env, tuple(table.label for table in spec.tables)
        case FormatSpec():
            given = {name.lower(): value for name, value in spec.options.items()}
            return spec.format.lower(), {name: value for name, value in given.items() if name not in _EACH_JOBS_OWN}
        case _:
            return spec


def output_kind(node: Node) -> StreamKind:
    """Return the kind of an output, looking through row-by-row operators."""
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
    """Return the operator and the tag that a stream's rows come from; None if they come from no side output."""
    current = node
    while isinstance(current, _ROW_BY_ROW):
        current = current.input
    return (current.emitter, current.tag) if isinstance(current, SideOutputNode) else None


def is_whole_side_output(node: Node) -> bool:
    """Return whether a stream is an unchanged side output, so that its counts must equal the operator's."""
    return isinstance(node, SideOutputNode)


def sources_of(node: Node) -> tuple[SourceNode, ...]:
    """Return the sources a stream comes from."""
    return tuple(found for found in walk((node,)) if isinstance(found, SourceNode))


def windows_of(node: Node) -> tuple[WindowNode, ...]:
    """Return the window operators upstream of a stream."""
    return tuple(found for found in walk((node,)) if isinstance(found, WindowNode))


def late_operators_of(node: Node) -> tuple[StatefulNode, ...]:
    """Return the operators upstream of a stream to which rows can be late: windows, joins by time and deduplications."""
    return tuple(found for found in walk((node,)) if isinstance(found, StatefulNode) and kind_of(found).late_counters(found))


def functions_of(node: Node) -> tuple[KeyedProcessNode, ...]:
    """Return the process functions upstream of a stream."""
    return tuple(found for found in walk((node,)) if isinstance(found, KeyedProcessNode))


def result_operator(node: Node) -> StatefulNode | None:
    """Return the stateful operator whose results a stream has, row for row; None if it has other rows."""
    current = node
    while isinstance(current, SelectNode | WithColumnsNode | FilterNode):
        current = current.input
    return current if isinstance(current, StatefulNode) else None


def result_window(node: Node) -> WindowNode | None:
    """Return the window operator whose results a stream has, one row per key, window and pane; None if it has other rows."""
    operator = result_operator(node)
    return operator if isinstance(operator, WindowNode) else None
