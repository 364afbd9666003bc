"""Declares sinks, and their guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.output_columns import check_added_columns
from tidemark.graph.checks.output_texts import ColumnTexts, described
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.checks.upsert_keys import check_sequence, upsert_keys
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import ConsoleSpec, DeltaMode, DeltaSpec, MemorySpec, Output, ParquetSpec, SinkSpec
from tidemark.names import location_fix

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


def delta(
    stream: Stream,
    path: str,
    *,
    mode: DeltaMode = "append",
    keys: Sequence[str] | None = None,
    sequence: str | None = None,
    description: str = "",
    columns: ColumnTexts | None = None,
) -> Output:
    """Write a stream to a Delta table at a path; the table is created if it does not exist.

    Guarantee: exactly once. All rows of an epoch appear in one table version, which carries the epoch's number.

    A changelog is appended as its history, with the columns ``operation`` (``insert``, ``update``, ``delete``) and ``epoch``; upserted, the
    table has its rows as they are after the epoch, without deleted ones.

    Args:
        stream: the stream to write.
        path: of the table.
        mode: ``append`` adds every row, so a window that fires again has one row per pane. ``upsert`` keeps the newest row of each
            key: of a window its newest pane. The rows that a session replaces, by its column ``replaces``, are removed in the same version.
            ``scd2`` keeps every version of a row, with the columns ``valid_from`` and ``valid_to`` (null while it is the newest): a
            slowly changing dimension of type 2. Of a stream that is only added to each row is a version, and one that comes late is put
            between those that are there. Of a changelog the versions without ``valid_to`` are its content after the epoch: a row that is
            inserted or updated takes the place of all that the table has for its key from the row's ``valid_from`` on.
        keys: key columns of an upsert, or of versions; nulls equal nulls. A changelog has its own. The results of windows have default
            keys: the key's columns, ``window_start`` and ``window_end``.
        sequence: of versions: the TIMESTAMP column with the time from which a row is valid; by default the processing time of the epoch
            that brought it. A deleted row is valid until the processing time of the epoch that deleted it, and one that would begin then
            or later was never valid: it is removed. A row of the key that is inserted after that is valid from its own time on, also where
            that is before the deletion.
        description: what the rows are, for readers: the table's description, and that of the asset in Dagster.
        columns: what the columns are, by name, such as ``{"tips": "Sum of the tips, in dollars."}``: the columns' comments in the table.

    Raises:
        DefinitionError: not a stream, no path, keys that are missing or of no use, or a description that is no text.
        ColumnError: the stream lacks a key column, or one that is described.
    """
    output = bind_output("delta", stream, DeltaSpec(path=_text("delta", "path", path, stream)))
    return described(_with_mode(output, path, mode, keys, sequence), description, columns)


def _with_mode(output: Output, path: str, mode: DeltaMode, keys: Sequence[str] | None, sequence: str | None) -> Output:
    if sequence is not None and mode != "scd2":
        raise DefinitionError(
            f"delta(sequence={sequence!r}) says from when a version is valid, and mode={mode!r} keeps none",
            fix="write mode='scd2', or leave sequence out",
            place=output.place,
        )
    if mode == "append" and keys is None:
        check_added_columns(output)
        return output
    if mode == "scd2":
        return _versions(output, path, keys, sequence)
    if mode != "upsert":
        raise DefinitionError(
            f"delta(mode={mode!r}, keys={keys!r}) is neither an append nor an upsert",
            fix="write mode='upsert' or mode='scd2', or mode='append' without keys",
            place=output.place,
        )
    return replace(output, sink=DeltaSpec(path=path, mode=mode, keys=upsert_keys(output.node, keys, output.place)))


def _versions(output: Output, path: str, keys: Sequence[str] | None, sequence: str | None) -> Output:
    node, place = output.node, output.place
    if sequence is not None:
        check_sequence(node, sequence, place)
    elif changelog_keys(node) is None:
        raise DefinitionError(
            "delta(mode='scd2') of a stream that is only added to does not know from when a row is valid",
            fix="name a TIMESTAMP column: sequence='changed_at'",
            place=place,
        )
    versions = replace(output, sink=DeltaSpec(path, "scd2", upsert_keys(node, keys, place, mode="scd2"), sequence))
    check_added_columns(versions)
    return versions


def parquet(
    stream: Stream, path: str, *, readers_move_files: bool = False, description: str = "", columns: ColumnTexts | None = None
) -> Output:
    """Write a stream to a folder of Parquet files.

    Guarantee: each row exactly once; the files of one epoch appear one after the other, so a reader may see part of an epoch.

    Args:
        stream: the stream to write.
        path: of the folder.
        readers_move_files: whether readers move or delete files that they have read. Otherwise the job stops (``TM302``) when all files of
            the newest epoch that it published are missing.
        description: what the rows are, for readers: the description of the asset in Dagster.
        columns: what the columns are, by name, likewise.

    Raises:
        DefinitionError: not a stream, no path, ``readers_move_files`` is neither True nor False, or a description is no text.
        ColumnError: the stream lacks a column that is described.
    """
    output = bind_output("parquet", stream, ParquetSpec(_text("parquet", "path", path, stream), readers_move_files))
    if not isinstance(readers_move_files, bool):
        raise DefinitionError(
            f"parquet(readers_move_files={shortened(repr(readers_move_files))}) is neither True nor False",
            fix="write readers_move_files=True where readers move or delete files that they have read",
            place=output.place,
        )
    return described(output, description, columns)


def console(stream: Stream, *, rows: int = 20) -> Output:
    """Print at most ``rows`` rows of a stream per epoch.

    Guarantee: at least once; an epoch that is finished after a crash prints again.

    Raises:
        DefinitionError: not a stream, or fewer than one row.
    """
    if type(rows) is not int or rows < 1:
        raise DefinitionError(f"console(rows={rows!r}) prints nothing", fix="give 1 row or more", place=call_site())
    return bind_output("console", stream, ConsoleSpec(rows=rows))


def memory(stream: Stream, name: str) -> Output:
    """Keep a stream's rows in this process under a name, for tests and notebooks.

    Guarantee: exactly once within the process; lost when it ends.

    Raises:
        DefinitionError: not a stream, or no name.
    """
    return bind_output("memory", stream, MemorySpec(name=_text("memory", "name", name, stream)))


def guarantee(sink: SinkSpec) -> str:
    """Return in words what a sink guarantees.

    >>> guarantee(DeltaSpec("warehouse/tips"))
    'exactly once'
    """
    match sink:
        case DeltaSpec(mode="upsert"):
            return "exactly once, the newest row of each key"
        case DeltaSpec(mode="scd2"):
            return "exactly once, every version of each key"
        case DeltaSpec():
            return "exactly once"
        case ParquetSpec():
            return "exactly once, an epoch's files one after the other"
        case ConsoleSpec():
            return "at least once"
        case MemorySpec():
            return "exactly once within the process"
        case ConnectorSpec():
            return sink.guarantee


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


def bind_output(sink: str, stream: Stream, spec: SinkSpec) -> Output:
    """Return an output of a stream, called with the name of the function that declares it.

    Raises:
        DefinitionError: not a stream, or one without rows.
    """
    from tidemark.graph.api.streams import Stream

    place = call_site()
    if not isinstance(stream, Stream):
        raise DefinitionError(
            f"{sink}(...) is given {type(stream).__name__}, not a stream",
            fix="pass what source(...), an operator or side_output(...) returns; a keyed or windowed stream needs .aggregate(...) first",
            place=place,
        )
    check_has_rows(stream.node, place)
    output = Output(node=stream.node, sink=spec, place=place)
    if not isinstance(spec, DeltaSpec | ConnectorSpec):
        check_added_columns(output)
    return output
