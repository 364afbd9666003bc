"""Binds a stream to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.model.nodes import Output, SinkSpec

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


def output_of(sink: str, stream: Stream, spec: SinkSpec, place: str) -> Output:
    """Return a stream bound to a sink.

    Args:
        sink: the function that declares it, for the error.
        stream: what the user gave.
        spec: of the sink.
        place: the user's file and line.

    Raises:
        DefinitionError: what is given is not a stream, or one that never has rows.
    """
    from tidemark.graph.api.streams import Stream

    if not isinstance(stream, Stream):
        raise DefinitionError(
            f"{sink}(...) is given {type(stream).__name__}, not a stream",
            fix="pass what source(...), an operator or side_output(...) returns; a keyed or windowed stream needs .aggregate(...) first",
            place=place,
        )
    check_has_rows(stream.node, place)
    return Output(node=stream.node, sink=spec, place=place)
