"""What an output and its columns hold, in words, from the job's graph alone: the texts on an asset's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.assets.streams.job_streams import StreamData, result_window
from tidemark.graph import (
    ExplodeNode,
    Expression,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    UnionNode,
    WindowNode,
    WithColumnsNode,
    describe_aggregate,
    describe_expression,
    describe_firing,
)

_KINDS: Final = {
    "main": "Rows",
    "late": "Late rows, turned away because their window had expired",
    "rejected": "Rejected rows, turned away by a filter",
    "malformed": "Malformed records, which could not be read or timed",
}
_WINDOW: Final[Mapping[str, str]] = {
    "window_start": "Start of the window, inclusive.",
    "window_end": "End of the window, exclusive.",
    "pane_timing": "EARLY, ON_TIME or LATE: when the result was made.",
    "pane_index": "Number of the result of this key and window, from 0; the greatest is the newest.",
    "replaces": "Starts of the sessions whose results this one replaces.",
}
_MALFORMED: Final[Mapping[str, str]] = {
    "raw": "The record as it came.",
    "reason": "Why it was set aside.",
    "event_time": "Its event time, where it has one.",
    "source": "Name of the source.",
    "split": "Split of the source, such as a partition.",
    "read_at": "When it was read.",
}


def describe_output(stream: StreamData) -> str:
    """Return what an output holds, as Markdown: rows of which windows and keys, and what the job is for."""
    if stream.output is None:
        raise TypeError(f"{stream.name} is a source")
    window = result_window(stream.output.node) if stream.kind == "main" else None
    rows = _KINDS[stream.kind] if window is None else _results(window)
    sentences = [f"{rows}.", f"Output `{stream.name}` of the streaming job `{stream.job.name}`."]
    if stream.job.description:
        # The job is there for its main outputs.
        sentences.insert(0 if stream.kind == "main" else len(sentences), stream.job.description)
    return " ".join(sentences)


def describe_column(node: Node, name: str) -> str | None:
    """Return what a column of a node's rows holds, as Markdown; None where the graph does not say."""
    match node:
        case SourceNode():
            return _source_column(node, name)
        case SideOutputNode(inputs=(SourceNode(), *_)):
            return _MALFORMED.get(name)
        case SideOutputNode():
            return describe_column(node.input.input, name)
        case SelectNode(columns=columns) | WithColumnsNode(columns=columns):
            made = dict(columns).get(name)
            return describe_column(node.input, name) if made is None else _made(node.input, made, name)
        case ExplodeNode(as_=item) if item == name:
            return f"One item of `{describe_expression(node.expression)}`."
        case WindowNode():
            return _result_column(node, name)
        case UnionNode():
            found = {describe_column(each, name) for each in node.inputs}
            return found.pop() if len(found) == 1 else None
    return describe_column(node.input, name) if node.inputs else None


def _results(window: WindowNode) -> str:
    by = ", ".join(f"`{name}`" for name, _ in window.keys)
    each = f"One row for each {by}, window and pane" if by else "One row for each window and pane"
    return f"{each} ({describe_firing(window)})"


def _result_column(window: WindowNode, name: str) -> str | None:
    keys, aggregates = dict(window.keys), dict(window.aggregates)
    if name in keys:
        text = describe_expression(keys[name])
        return "Key of the window." if text == name else f"Key of the window: `{text}`."
    if name in aggregates and window.function is None and not window.reduced:
        return f"`{describe_aggregate(aggregates[name])}` over the window."
    return _WINDOW.get(name)


def _source_column(node: SourceNode, name: str) -> str:
    timed = is_event_time(node, name)
    return f"Event time, as read from source `{node.name}`." if timed else f"As read from source `{node.name}`."


def is_event_time(node: SourceNode, name: str) -> bool:
    """Say whether a source's column is what its rows are timed by."""
    return node.watermarks.timestamp == name


def _made(before: Node, expression: Expression, name: str) -> str | None:
    text = describe_expression(expression)
    if text.isidentifier():
        renamed = describe_column(before, text)
        return renamed if text == name or renamed is None else f"{renamed} There `{text}`."
    return f"`{text}`"
