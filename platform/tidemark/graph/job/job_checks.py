"""Checks of a whole job: unique names, uids of stateful operators, outputs that must not collide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.checks.function_names import check_declared, check_functions
from tidemark.graph.checks.side_outputs import tags_of
from tidemark.graph.job.folder_checks import check_folders
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import (
    ConsoleSpec,
    DeltaSpec,
    MemorySpec,
    Node,
    Output,
    OutputTag,
    ParquetSpec,
    SideOutputNode,
    SourceNode,
    StatefulNode,
)
from tidemark.graph.model.unknown_members import with_article
from tidemark.graph.operators.registry import keeps_state, kind_of
from tidemark.locations import Location
from tidemark.names import is_blank, location_fix, validate_name

if TYPE_CHECKING:
    from tidemark.graph.job.job import Job


def check_job(job: Job, place: str) -> None:
    """Check a job.

    Raises:
        DefinitionError: or one of its kinds; each names the place of the definition and the fix.
    """
    validate_name("job", job.name, place=place)
    _check_settings(job, place)
    _check_outputs(job, place)
    _check_sources(job)
    check_folders(job, place)
    _check_uids(job.nodes)
    _check_tags(job.nodes)
    check_functions(job.nodes, job.functions)


def _check_settings(job: Job, place: str) -> None:
    if job.parallelism is not None and (type(job.parallelism) is not int or job.parallelism < 1):
        raise DefinitionError(f"parallelism={job.parallelism!r} is not 1 or more", fix="give 1 or more, or leave it out", place=place)
    if type(job.retained_epochs) is not int or job.retained_epochs < 1:
        raise DefinitionError(f"retained_epochs={job.retained_epochs!r} is not 1 or more", fix="give 1 or more", place=place)
    if job.store is not None and is_blank(job.store):
        raise DefinitionError(
            f"store={job.store!r} names no folder", fix=location_fix(job.store, "give a folder or bucket, or leave it out"), place=place
        )
    if isinstance(job.owners, str) or any(is_blank(owner) for owner in job.owners):
        raise DefinitionError(f"owners={job.owners!r} is not a list of texts", fix="write owners=['team:data']", place=place)
    if not _is_mapping(job.tags) or not all(isinstance(text, str) for pair in job.tags.items() for text in pair):
        raise DefinitionError(f"tags={job.tags!r} is not a dict of texts", fix="write tags={'domain': 'taxi'}", place=place)
    check_declared(job.functions, place)


def _check_outputs(job: Job, place: str) -> None:
    if not _is_mapping(job.outputs):
        kind = type(job.outputs).__name__
        raise DefinitionError(
            f"outputs is {with_article(kind)}, not a dict of sinks by name; outputs are identified by their names",
            fix="write outputs={'name': tm.delta(stream, 'path')}",
            place=place,
        )
    if not job.outputs:
        raise DefinitionError("the job has no outputs", fix="write outputs={'name': tm.delta(stream, 'path')}", place=place)
    used: dict[tuple[object, ...], str] = {}
    seen: dict[str, str] = {}
    for name, output in job.outputs.items():
        validate_name("output", name, place=place)
        if not isinstance(output, Output):
            raise DefinitionError(
                f"output {name!r} is a {type(output).__name__}, not a stream bound to a sink",
                fix=f"write {name!r}: tm.delta(stream, 'path')",
                place=place,
            )
        if name.lower() in seen:
            raise DefinitionError(
                f"outputs {seen[name.lower()]!r} and {name!r} differ only in case, which not every file system distinguishes",
                fix="give each another name",
                place=output.place,
            )
        seen[name.lower()] = name
        location = _location(name, output)
        if location is not None and location in used:
            other = used[location]
            raise DefinitionError(
                f"outputs {other!r} and {name!r} both write to one place: {_written(job.outputs[other])}, {_written(output)}",
                fix="give each its own path or name, or write the .union(...) of the streams",
                place=output.place,
            )
        if location is not None:
            used[location] = name


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _location(name: str, output: Output) -> tuple[object, ...] | None:
    """Return a key that is equal for outputs at one place, however it is spelled; None if outputs may share it."""
    match output.sink:
        case DeltaSpec(path) | ParquetSpec(path):
            try:
                found = Location.parse(path)
            except DefinitionError as error:
                raise DefinitionError(error.what, fix=error.fix, uid=name, place=output.place) from None
            return "path", *found.real_parts
        case MemorySpec(table):
            return "memory", table
        case ConnectorSpec() as sink:
            return sink.kind, sink.location
        case ConsoleSpec():
            return None


def _written(output: Output) -> str:
    match output.sink:
        case DeltaSpec(path) | ParquetSpec(path):
            return repr(path)
        case MemorySpec(table):
            return repr(table)
        case ConnectorSpec() as sink:
            return repr(sink.location)
        case ConsoleSpec():
            return "the console"


def _check_sources(job: Job) -> None:
    by_name: dict[str, SourceNode] = {}
    used = {id(output.node) for output in job.outputs.values()}
    used |= {id(child) for node in job.nodes if not isinstance(node, SideOutputNode) for child in node.inputs}
    for node in job.nodes:
        if not isinstance(node, SourceNode):
            continue
        other = by_name.setdefault(node.name.lower(), node)
        if other is not node:
            raise DefinitionError(
                f"two sources are named {node.name!r}; the other is at {other.place}",
                fix="give each source another name, or use one stream twice",
                uid=node.name,
                place=node.place,
            )
        if id(node) not in used:
            raise DefinitionError(
                f"nothing uses the rows of source {node.name!r}, only its malformed records",
                fix="bind an output to the source's stream too",
                uid=node.name,
                place=node.place,
            )


def _check_uids(nodes: tuple[Node, ...]) -> None:
    by_uid: dict[str, Node] = {}
    for node in nodes:
        if node.uid is None:
            if isinstance(node, StatefulNode) and keeps_state(node):
                raise _missing_uid(node, nodes)
            continue
        other = by_uid.setdefault(node.uid.lower(), node)
        if other is not node:
            raise DefinitionError(
                f"two operators have the uid {node.uid!r}; the other is at {other.place}",
                fix="give each operator its own uid",
                uid=node.uid,
                place=node.place,
            )


def _missing_uid(node: StatefulNode, nodes: tuple[Node, ...]) -> DefinitionError:
    kind = kind_of(node)
    call, what = kind.made_by(node)
    named = next((other for other in nodes if other.uid and isinstance(other, StatefulNode) and other.inputs is node.inputs), None)
    if named is None:
        fix = f"give it one: .{call}(...).uid('hourly-tips')"
    else:
        fix = f"use the stream that .uid({named.uid!r}) returns, also for .side_output(...), not the stream before it"
    return DefinitionError(f"the {kind.noun} that {what} keeps state and has no uid", fix=fix, place=node.place)


def _check_tags(nodes: tuple[Node, ...]) -> None:
    by_name: dict[str, Node] = {}
    for node, tag in _emitted(nodes):
        other = by_name.get(tag.name)
        if other is not None:
            raise DefinitionError(
                f"side output tag {tag.name!r} is emitted twice; the other is at {other.place}",
                fix="give each side output its own tag, and .union(...) the streams if they belong together",
                uid=node.uid,
                place=node.place,
            )
        by_name[tag.name] = node


def _emitted(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, OutputTag]]:
    return ((node, tag) for node in nodes for tag in tags_of(node))
