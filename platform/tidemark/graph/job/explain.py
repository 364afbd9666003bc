"""Draws a job's graph, as text and as Mermaid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.api.sinks import guarantee
from tidemark.graph.checks.descriptions import describe_node, describe_sink, describe_timing
from tidemark.graph.checks.side_outputs import tags_of
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import FilterNode, Node, Output, OutputTag, SideOutputNode, SourceNode, SplitNode, StatefulNode
from tidemark.graph.operators.registry import kind_of

if TYPE_CHECKING:
    from tidemark.graph.job.job import Job


def explain(job: Job, format: str = "text") -> str:
    """Return a job's graph: sources, operators with uid, keys, windows, lateness, side outputs, sinks with their guarantee.

    Args:
        job: what to draw.
        format: ``"text"``, for a terminal, or ``"mermaid"``, a flow chart in Mermaid's language.

    Raises:
        DefinitionError: another format.
    """
    if format == "text":
        return "\n".join(_text(job))
    if format == "mermaid":
        return "\n".join(_mermaid(job))
    raise DefinitionError(f"explain(format={format!r}) is not a format", fix="use 'text' or 'mermaid'", job=job.name, place=call_site())


def drawn_nodes(job: Job) -> dict[Node, int]:
    """Return the numbers of the drawn nodes; a side output is an edge of the node that emits it."""
    return {node: number for number, node in enumerate((n for n in job.nodes if not isinstance(n, SideOutputNode)), start=1)}


def outlet_of(node: Node) -> tuple[Node, str | None]:
    """Return the drawn node whose rows these are, and the tag they leave it under."""
    return (node.emitter, node.tag.name) if isinstance(node, SideOutputNode) else (node, None)


def _unbound(job: Job) -> dict[Node, list[str]]:
    bound = {(id(node.emitter), node.tag.name) for node in job.nodes if isinstance(node, SideOutputNode)}
    return {node: [tag.name for tag in tags_of(node) if (id(node), tag.name) not in bound] for node in job.nodes}


def _text(job: Job) -> Iterator[str]:
    numbers = drawn_nodes(job)
    unbound = _unbound(job)
    yield f"job {job.name}"
    for node, number in numbers.items():
        yield f"  {number}. {_title(node)}{_origins(node, numbers)}"
        yield from (f"       {line}" for line in _details(node, unbound[node]))
    yield "outputs"
    for name, output in job.outputs.items():
        emitter, tag = outlet_of(output.node)
        origin = f"{numbers[emitter]}" + (f" ({tag})" if tag else "")
        yield f"  {name} <- {origin}: {describe_sink(output.sink)}, {guarantee(output.sink)}"


def _title(node: Node) -> str:
    uid = f" [{node.uid}]" if node.uid else ""
    return describe_node(node) + uid


def _origins(node: Node, numbers: dict[Node, int]) -> str:
    outlets = [outlet_of(child) for child in node.inputs]
    return " <- " + ", ".join(f"{numbers[emitter]}" + (f" ({tag})" if tag else "") for emitter, tag in outlets) if outlets else ""


def _details(node: Node, unbound: list[str]) -> Iterator[str]:
    if isinstance(node, SourceNode):
        yield describe_timing(node)
    yield from (
        f"{role} rows are counted only"
        if tag is None
        else f"{role} -> {tag.name}" + (" (counted only: bound to no output)" if tag.name in unbound else "")
        for role, tag in _side_outputs(node)
    )


def _side_outputs(node: Node) -> list[tuple[str, OutputTag | None]]:
    """Return the rows that a node does not pass on, in a word, and their side outputs; None if they are counted only."""
    if isinstance(node, StatefulNode):
        emitted = [("emitted", tag) for tag in node.emitted_tags.values()]
        return [(counter, node.side_tags.get(counter)) for counter in kind_of(node).counters(node)] + emitted
    role = {SourceNode: "malformed", FilterNode: "rejected", SplitNode: "branch"}.get(type(node))
    return [(role, tag) for tag in tags_of(node) or (None,)] if role else []


def _mermaid(job: Job) -> Iterator[str]:
    numbers = drawn_nodes(job)
    yield "flowchart LR"
    for node, number in numbers.items():
        title = _quoted(_title(node))
        if isinstance(node, SourceNode):
            yield f"  n{number}([{_quoted(describe_node(node), describe_timing(node))}])"
        else:
            yield f"  n{number}{{{{{title}}}}}" if isinstance(node, StatefulNode) else f"  n{number}[{title}]"
    for number, (name, output) in enumerate(job.outputs.items(), start=1):
        yield f"  o{number}[({_quoted(name, describe_sink(output.sink), guarantee(output.sink))})]"
    for node, number in numbers.items():
        yield from (f"  {_edge(child, numbers)} n{number}" for child in node.inputs)
    yield from (f"  {_edge(output.node, numbers)} o{number}" for number, output in enumerate(_outputs(job), start=1))


def _outputs(job: Job) -> list[Output]:
    return list(job.outputs.values())


def _edge(node: Node, numbers: dict[Node, int]) -> str:
    emitter, tag = outlet_of(node)
    return f"n{numbers[emitter]} -. {_quoted(tag)} .->" if tag else f"n{numbers[emitter]} -->"


def _quoted(*lines: str) -> str:
    # Mermaid reads quotes, backquotes, angle brackets and # in labels as its own; it takes them as numbered entities.
    text = "<br/>".join("".join(f"#{ord(c)};" if c in '"`<>#&' else c for c in line) for line in lines)
    return f'"{text}"'
