"""Descriptions of an output and its columns, from the job's graph alone: the texts on an asset's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.assets.streams.job_streams import StreamData, StreamKind, emitter, result_operator
from tidemark.graph import (
    ExplodeNode,
    Expression,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    StatefulNode,
    UnionNode,
    WithColumnsNode,
    describe_expression,
    kind_of,
)

_KINDS: Final = {
    "main": "Rows",
    "rejected": "Rows that a filter rejected",
    "malformed": "Malformed records, which could not be parsed or have no valid event time",
}
_MALFORMED: Final[Mapping[str, str]] = {
    "raw": "The original record.",
    "reason": "Why it is malformed.",
    "event_time": "Its event time, if it has one.",
    "source": "Name of the source.",
    "split": "Split of the source, such as a partition.",
    "read_at": "When it was read.",
}


def describe_output(stream: StreamData) -> str:
    """Return the description of an output as Markdown: what its declaration says, its rows, windows and keys, and the job's description."""
    if stream.output is None:
        raise TypeError(f"{stream.name} is a source")
    sentences = [f"{_rows(stream.output.node, stream.kind)}.", f"Output `{stream.name}` of the streaming job `{stream.job.name}`."]
    if stream.job.description:
        # The job's description is about its main outputs.
        sentences.insert(0 if stream.kind == "main" else len(sentences), stream.job.description)
    text = " ".join(sentences)
    return f"{stream.output.description}\n\n{text}" if stream.output.description else text


def _rows(node: Node, kind: StreamKind) -> str:
    found = emitter(node)
    if found is not None and isinstance(found[0], StatefulNode):
        return kind_of(found[0]).describe_counter(kind)
    operator = result_operator(node) if kind == "main" else None
    return _KINDS[kind] if operator is None else kind_of(operator).describe_rows(operator)


def describe_column(node: Node, name: str) -> str | None:
    """Return the description of a column of a node's rows, as Markdown; None if the graph does not have one."""
    match node:
        case SourceNode():
            return _source_column(node, name)
        case SideOutputNode(inputs=(SourceNode(), *_)):
            return _MALFORMED.get(name)
        case SideOutputNode():
            emitting = node.emitter
            return describe_column(emitting.ports[0].node if isinstance(emitting, StatefulNode) else emitting.input, name)
        case SelectNode(columns=columns) | WithColumnsNode(columns=columns):
            made = dict(columns).get(name)
            return describe_column(node.input, name) if made is None else _made(node.input, made, name)
        case ExplodeNode(as_=item) if item == name:
            return f"One item of `{describe_expression(node.expression)}`."
        case StatefulNode():
            kind = kind_of(node)
            return describe_column(node.ports[0].node, name) if kind.chooses_rows else kind.describe_column(node, name)
        case UnionNode():
            found = {describe_column(each, name) for each in node.inputs}
            return found.pop() if len(found) == 1 else None
    return describe_column(node.input, name) if node.inputs else None


def _source_column(node: SourceNode, name: str) -> str:
    timed = is_event_time(node, name)
    return f"Event time, as read from source `{node.name}`." if timed else f"As read from source `{node.name}`."


def is_event_time(node: SourceNode, name: str) -> bool:
    """Return whether a source's column is its event time."""
    return node.watermarks.timestamp == name


def _made(before: Node, expression: Expression, name: str) -> str | None:
    text = describe_expression(expression)
    if text.isidentifier():
        renamed = describe_column(before, text)
        return renamed if text == name or renamed is None else f"{renamed} There `{text}`."
    return f"`{text}`"
