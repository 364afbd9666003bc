"""``delta_source`` and ``delta_changes``: Delta tables as sources, of the rows that are added, or of all changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.api.sources import source
from tidemark.graph.api.streams import Stream
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.name_checks import column_names
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import OutputTag
from tidemark.graph.model.source_specs import DeltaTableSpec, SourceSpec
from tidemark.locations import Location
from tidemark.names import is_blank, location_fix
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy

_ADDED: Final = ("_change_type", "_commit_version", "_commit_timestamp")

_OPERATIONS: Final = (
    "CASE _change_type WHEN 'update_preimage' THEN 'update_before' WHEN 'update_postimage' THEN 'update_after' ELSE _change_type END"
)

_SEQUENCE: Final = "_commit_version * 2 + if(_change_type IN ('insert', 'update_postimage'), 1, 0)"
"""Of a version what is taken away comes before what is added: a rewritten file has rows in both."""


def delta_source(
    path: str,
    *,
    schema: str,
    changes: bool = False,
    start: Literal["snapshot", "latest"] = "snapshot",
    from_version: int | None = None,
    from_timestamp: str | None = None,
    on_rewrite: Literal["fail", "skip"] = "fail",
    max_versions_per_epoch: int | None = None,
    max_bytes_per_epoch: int | None = None,
) -> DeltaTableSpec:
    """Return a source of the rows that are added to a Delta table, each once, in the order of the table's versions.

    The table is read by its log and its files; the position is a version, and a file within it where a version is larger than an epoch.

    Args:
        path: of the table, which has to exist; local or of an object store.
        schema: Spark DDL of the columns to read. The table may have more, also such that are added later; a column that is dropped,
            renamed or of another type ends the job with an error.
        changes: read deletes and updates, too, as Delta's change data feed has them: rows have the columns ``_change_type`` (``insert``,
            ``update_preimage``, ``update_postimage``, ``delete``), ``_commit_version`` and ``_commit_timestamp``. ``delta_changes`` makes a
            changelog of these.
        start: ``snapshot`` begins with the rows that the table has when the job first reads it, ``latest`` with those that come after.
        from_version: begin with this version instead.
        from_timestamp: begin with the first version that is not older, such as ``"2026-11-26T08:00:00+00:00"``.
        on_rewrite: what to do with a version that deletes, updates or overwrites rows, where ``changes`` are not read: ``fail`` ends the
            job with an error that names it, ``skip`` ignores all of that version.
        max_versions_per_epoch: greatest number of versions of one epoch.
        max_bytes_per_epoch: greatest number of bytes of one epoch's files; 256 MiB by default. An epoch has a file at least, and with
            ``changes`` a version at least.

    Raises:
        DefinitionError: no path, an unreadable schema, two starts, an option of no use, or a limit below 1.
    """
    place = call_site()
    if is_blank(path):
        raise DefinitionError(
            f"delta_source(path={path!r}) names no table", fix=location_fix(path, "give the path of the table"), place=place
        )
    Location.parse(path)
    columns = parse_schema(schema, place=place)
    if changes and (taken := next((name for name in _ADDED if columns.find(name) is not None), None)) is not None:
        raise DefinitionError(f"delta_source(changes=True) adds {taken!r}", fix="leave it out of the schema", place=place)
    if start not in {"snapshot", "latest"}:
        raise DefinitionError(
            f"delta_source(start={start!r}) is neither 'snapshot' nor 'latest'", fix="write one of them, or from_version=12", place=place
        )
    if sum([start != "snapshot", from_version is not None, from_timestamp is not None]) > 1:
        raise DefinitionError("delta_source begins at one place", fix="give one of start, from_version, from_timestamp", place=place)
    if on_rewrite not in {"fail", "skip"} or (changes and on_rewrite != "fail"):
        why = "reads rewritten rows as changes" if changes else "is neither 'fail' nor 'skip'"
        raise DefinitionError(f"delta_source(on_rewrite={on_rewrite!r}) {why}", fix="leave it out", place=place)
    _check_number("from_version", from_version, 0, place)
    _check_number("max_versions_per_epoch", max_versions_per_epoch, 1, place)
    _check_number("max_bytes_per_epoch", max_bytes_per_epoch, 1, place)
    return DeltaTableSpec(
        path=path,
        schema=schema,
        changes=changes,
        start=start,
        from_version=from_version,
        from_ms=None if from_timestamp is None else _milliseconds(from_timestamp, place),
        on_rewrite=on_rewrite,
        max_versions_per_epoch=max_versions_per_epoch,
        max_bytes_per_epoch=max_bytes_per_epoch,
    )


def delta_changes(
    name: str, spec: SourceSpec, *, key: Sequence[str], watermarks: WatermarkStrategy, malformed_to: OutputTag | None = None
) -> Stream:
    """Return the changes of a Delta table as a changelog: inserts, updates and deletes of its key.

    The rows before updates are those of the table, whether it has a change data feed or not: without one they come from the files that a
    version removes, so that rows that a version only moves to another file change nothing. A version is never divided between epochs.

    Args:
        name: identifies the source's positions in checkpoints.
        spec: ``delta_source(path, schema=..., changes=True)``.
        key: the columns that identify a row. The table has at most one row of each, which is not checked.
        watermarks: how elements are timed; ``_commit_timestamp`` is the time of the version.
        malformed_to: tag of the side output for rows that cannot be timed; without it they are counted only.

    Raises:
        DefinitionError: the source does not read changes.
        ColumnError: a column of the key is not read.
    """
    place = call_site()
    if not isinstance(spec, DeltaTableSpec) or not spec.changes:
        raise DefinitionError(
            f"delta_changes({name!r}) is given a source that does not read changes",
            fix="write tm.delta_source(path, schema=..., changes=True)",
            place=place,
        )
    columns = parse_schema(spec.schema, place=place)
    missing = [each for each in column_names(key, "delta_changes(key=...)", place) if columns.find(each) is None]
    if missing:
        raise ColumnError(
            f"delta_changes(key=...) names {missing[0]!r}, and the schema has {', '.join(columns.names)}",
            fix="name columns of the schema",
            place=place,
        )
    rows = source(name, spec, watermarks=watermarks, malformed_to=malformed_to)
    changelog = rows.as_changelog(key, operation=_OPERATIONS, sequence=_SEQUENCE)
    return changelog.select(*(f"`{column}`" for column in columns.names))


def _check_number(name: str, value: object, least: int, place: str) -> None:
    if value is not None and (type(value) is not int or value < least):
        raise DefinitionError(
            f"delta_source({name}={value!r}) is not a whole number of {least} or more",
            fix=f"give {least} or more, or leave it out",
            place=place,
        )


def _milliseconds(text: str, place: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        found = None
    if found is None or found.tzinfo is None:
        raise DefinitionError(
            f"delta_source(from_timestamp={text!r}) is no time with an offset from UTC",
            fix="write '2026-11-26T08:00:00+00:00'",
            place=place,
        )
    return round(found.timestamp() * 1000)
