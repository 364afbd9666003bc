"""Builds a job from its description in YAML, by the calls that a program would make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import tidemark as tm
from tidemark.components.sink_models import OutputModel
from tidemark.components.source_models import SourceModel
from tidemark.components.stream_models import StreamModel, WindowModel, columns_of
from tidemark.components.yaml_places import YamlPlaces
from tidemark.errors import DefinitionError
from tidemark.graph import Output, declared_at

_Section = Literal["sources", "streams"]


@dataclass(frozen=True)
class StreamGraph:
    """The sources, streams and outputs of a job in YAML, by name.

    A stream's ``input`` names a source, another stream, or a side output: those that ``malformed_to``, ``rejects_to`` and ``late_to``
    name. The order in which they stand does not matter.
    """

    sources: Mapping[str, SourceModel]
    streams: Mapping[str, StreamModel]
    outputs: Mapping[str, OutputModel]
    places: YamlPlaces = field(default_factory=YamlPlaces)

    def bound_outputs(self) -> dict[str, Output]:
        """Return the outputs.

        Raises:
            DefinitionError: or one of its kinds, with the place in YAML: a name is used twice or stands for nothing, a stream is made of
                itself, or what is declared is wrong.
        """
        builder = _Builder(self, _side_outputs(self))
        found = {}
        for name, output in self.outputs.items():
            with declared_at(self.places.of("outputs", name)):
                found[name] = output.bind(builder.stream(output.input))
        return found


def _side_outputs(graph: StreamGraph) -> dict[str, tuple[_Section, str]]:
    """Return who emits each side output: the section and the name there."""
    found: dict[str, tuple[_Section, str]] = {}
    known = dict.fromkeys(graph.sources, "sources")
    for name in graph.streams:
        if name in known:
            raise DefinitionError(f"{name!r} is a source, too", fix="give the stream another name", place=graph.places.of("streams", name))
        known[name] = "streams"
    for section, owner, option, tag in _tags(graph):
        if tag in known or tag in found:
            raise DefinitionError(
                f"the name {tag!r} is used twice", fix="give the side output another", place=graph.places.of(section, owner, option)
            )
        found[tag] = (section, owner)
    return found


def _tags(graph: StreamGraph) -> Iterator[tuple[_Section, str, str, str]]:
    for name, source in graph.sources.items():
        if source.malformed_to is not None:
            yield "sources", name, "malformed_to", source.malformed_to
    for name, stream in graph.streams.items():
        if stream.rejects_to is not None:
            yield "streams", name, "rejects_to", stream.rejects_to
        if stream.late_to is not None:
            yield "streams", name, "late_to", stream.late_to


class _Builder:
    def __init__(self, graph: StreamGraph, tags: Mapping[str, tuple[_Section, str]]) -> None:
        self._graph = graph
        self._tags = tags
        self._made: dict[str, tm.Stream] = {}
        self._making: list[str] = []

    def stream(self, name: str) -> tm.Stream:
        """Return a stream by its name; places of errors are those of the block around, unless it has one of its own."""
        if name in self._tags:
            _, owner = self._tags[name]
            return self.stream(owner).side_output(tm.OutputTag(name))
        if name in self._made:
            return self._made[name]
        if name in self._making:
            raise DefinitionError(f"{' → '.join((*self._making, name))}: a stream is made of itself", fix="change one of these inputs")
        self._making.append(name)
        self._made[name] = self._make(name)
        self._making.pop()
        return self._made[name]

    def _make(self, name: str) -> tm.Stream:
        graph = self._graph
        if name in graph.sources:
            with declared_at(graph.places.of("sources", name)):
                return _source(name, graph.sources[name])
        if name in graph.streams:
            with declared_at(graph.places.of("streams", name)):
                return self._derived(name, graph.streams[name])
        known = ", ".join((*graph.sources, *graph.streams, *self._tags))
        raise DefinitionError(f"{name!r} is no source, stream or side output", fix=f"use one of {known}")

    def _derived(self, name: str, model: StreamModel) -> tm.Stream:
        first, *others = (self.stream(each) for each in ([model.input] if isinstance(model.input, str) else model.input))
        stream = first.union(*others) if others else first
        if model.filter is not None:
            stream = stream.filter(model.filter, rejects_to=_tag(model.rejects_to))
        if model.with_columns:
            stream = stream.with_columns(**model.with_columns)
        if model.select is not None:
            columns, named = columns_of(model.select)
            stream = stream.select(*columns, **named)
        return stream if model.window is None else self._windowed(name, stream, model, model.window)

    def _windowed(self, name: str, stream: tm.Stream, model: StreamModel, window: WindowModel) -> tm.Stream:
        with declared_at(self._graph.places.of("streams", name, "window")):
            assigner = window.assigner()
        columns, named = columns_of(model.key_by)
        windowed = stream.window_all(assigner) if model.key_by is None else stream.key_by(*columns, **named).window(assigner)
        if model.allowed_lateness is not None:
            windowed = windowed.allowed_lateness(model.allowed_lateness)
        late_to = _tag(model.late_to)
        if late_to is not None:
            windowed = windowed.late_to(late_to)
        aggregates = {}
        for column, aggregate in (model.aggregates or {}).items():
            with declared_at(self._graph.places.of("streams", name, "aggregates", column)):
                aggregates[column] = aggregate.aggregate()
        return windowed.aggregate(**aggregates).uid(model.uid or name)


def _source(name: str, model: SourceModel) -> tm.Stream:
    return tm.source(name, model.spec(), watermarks=model.watermarks(), malformed_to=_tag(model.malformed_to))


def _tag(name: str | None) -> tm.OutputTag | None:
    return None if name is None else tm.OutputTag(name)
