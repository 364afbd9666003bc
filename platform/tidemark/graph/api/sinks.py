"""Declares sinks, and their guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from tidemark.errors import DefinitionError
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.checks.upsert_keys import upsert_keys
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import ConsoleSpec, DeltaSpec, MemorySpec, Output, ParquetSpec, SinkSpec
from tidemark.names import location_fix

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


def delta(stream: Stream, path: str, *, mode: Literal["append", "upsert"] = "append", keys: Sequence[str] | None = None) -> Output:
    """Write a stream to a Delta table at a path; the table is created if it does not exist.

    Guarantee: exactly once. All rows of an epoch appear in one table version, which carries the epoch's number.

    Args:
        stream: the stream to write.
        path: of the table.
        mode: ``append`` adds every row, so a window that fires again has one row per pane. ``upsert`` keeps the newest row of each
            key: of a window its newest pane. The rows that a session replaces, by its column ``replaces``, are removed in the same version.
        keys: key columns of an upsert; nulls equal nulls. The results of windows have default keys: the
            key's columns, ``window_start`` and ``window_end``.

    Raises:
        DefinitionError: not a stream, no path, or keys that are missing or of no use.
        ColumnError: the stream lacks a key column.
    """
    output = _output("delta", stream, DeltaSpec(path=_text("delta", "path", path, stream)))
    if mode == "append" and keys is None:
        return output
    if mode != "upsert":
        raise DefinitionError(
            f"delta(mode={mode!r}, keys={keys!r}) is neither an append nor an upsert",
            fix="write mode='upsert', or mode='append' without keys",
            place=output.place,
        )
    return replace(output, sink=DeltaSpec(path=path, mode=mode, keys=upsert_keys(stream.node, keys, output.place)))


def parquet(stream: Stream, path: str, *, readers_move_files: bool = False) -> Output:
    """Write a stream to a folder of Parquet files.

    Guarantee: each row exactly once; the files of one epoch appear one after the other, so a reader may see part of an epoch.

    Args:
        stream: the stream to write.
        path: of the folder.
        readers_move_files: whether readers move or delete files that they have read. Otherwise the job stops (``TM302``) when all files of
            the newest epoch that it published are missing.

    Raises:
        DefinitionError: not a stream, no path, or ``readers_move_files`` is neither True nor False.
    """
    output = _output("parquet", stream, ParquetSpec(_text("parquet", "path", path, stream), readers_move_files))
    if not isinstance(readers_move_files, bool):
        raise DefinitionError(
            f"parquet(readers_move_files={shortened(repr(readers_move_files))}) is neither True nor False",
            fix="write readers_move_files=True where readers move or delete files that they have read",
            place=output.place,
        )
    return output


def console(stream: Stream, *, rows: int = 20) -> Output:
    """Print at most ``rows`` rows of a stream per epoch.

    Guarantee: at least once; an epoch that is finished after a crash prints again.

    Raises:
        DefinitionError: not a stream, or fewer than one row.
    """
    if type(rows) is not int or rows < 1:
        raise DefinitionError(f"console(rows={rows!r}) prints nothing", fix="give 1 row or more", place=call_site())
    return _output("console", stream, ConsoleSpec(rows=rows))


def memory(stream: Stream, name: str) -> Output:
    """Keep a stream's rows in this process under a name, for tests and notebooks.

    Guarantee: exactly once within the process; lost when it ends.

    Raises:
        DefinitionError: not a stream, or no name.
    """
    return _output("memory", stream, MemorySpec(name=_text("memory", "name", name, stream)))


def guarantee(sink: SinkSpec) -> str:
    """Return in words what a sink guarantees.

    >>> guarantee(DeltaSpec("warehouse/tips"))
    'exactly once'
    """
    match sink:
        case DeltaSpec(mode="upsert"):
            return "exactly once, the newest row of each key"
        case DeltaSpec():
            return "exactly once"
        case ParquetSpec():
            return "exactly once, an epoch's files one after the other"
        case ConsoleSpec():
            return "at least once"
        case MemorySpec():
            return "exactly once within the process"


def _text(sink: str, argument: str, value: object, stream: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    example = f"tm.{sink}(stream, {'warehouse/tips' if argument == 'path' else 'tips'!r})"
    if isinstance(stream, str) and not isinstance(value, str):
        raise DefinitionError(
            f"{sink}(...) is given its {argument} {stream!r} first, and then {shortened(repr(value))}",
            fix=f"the stream comes first: {example}",
            place=call_site(),
        )
    raise DefinitionError(
        f"{sink}({argument}={shortened(repr(value))}) names no place to write to",
        fix=location_fix(value, f"give a {argument}, such as {example}"),
        place=call_site(),
    )


def _output(sink: str, stream: Stream, spec: SinkSpec) -> Output:
    from tidemark.graph.api.streams import Stream

    place = call_site()
    if not isinstance(stream, Stream):
        raise DefinitionError(
            f"{sink}(...) is given {type(stream).__name__}, not a stream",
            fix="pass what source(...), an operator or side_output(...) returns; a keyed or windowed stream needs .aggregate(...) first",
            place=place,
        )
    check_has_rows(stream.node, place)
    return Output(node=stream.node, sink=spec, place=place)
