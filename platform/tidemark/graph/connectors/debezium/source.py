"""``debezium``: the changes of a database's table, from the records that Debezium writes, as a changelog."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.schema_inference import source_schema
from tidemark.graph.connectors.debezium.envelopes import PREFIX, RECORD, Envelope
from tidemark.graph.connectors.debezium.texts import DEFAULT_PLACEHOLDER
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.expressions.name_checks import check_column_names, column_names
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import OutputTag, RecordReasons, SourceNode
from tidemark.graph.model.schema import Schema
from tidemark.graph.model.source_specs import SourceSpec
from tidemark.names import is_blank, validate_source_name
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy

_DELETED: Final = f"{PREFIX}_deleted"
_SEQUENCE: Final = f"{PREFIX}_sequence"
_CHANGE: Final = f"{PREFIX}_change"
_OPERATION: Final = f"{PREFIX}_operation"
_TIMES: Final = re.compile(r"\bTIMESTAMP\b")
_KEY_FIX: Final = "name columns of the table's primary key, such as key=['id']"


def debezium(
    name: str,
    spec: SourceSpec,
    *,
    schema: str,
    key: Sequence[str],
    watermarks: WatermarkStrategy,
    keep_rows: bool = True,
    full_before: bool = False,
    placeholder: str | None = DEFAULT_PLACEHOLDER,
    sequence: str | None = None,
    metadata: Mapping[str, str] | None = None,
    malformed_to: OutputTag | None = None,
    outdated_to: OutputTag | None = None,
    incomplete_to: OutputTag | None = None,
    uid: str | None = None,
) -> Stream:
    """Return the changes of a table as a changelog, from the JSON records of Debezium, with or without a schema in each.

    The operations ``c``, ``r``, ``u`` and ``d`` and tombstones are applied. Other records, such as a truncation, those that cannot be
    parsed and those without a row, a key or an event time are malformed: they change nothing, and go to ``malformed_to`` with their
    partition and offset.

    ``timestamp`` of the watermarks, ``sequence`` and ``metadata`` are SQL over the parts of an envelope (``source``, ``op``, ``ts_ms``,
    ``transaction``, ``before``, ``after``), the table's columns and those of the source, such as Kafka's ``offset``. The values in
    ``source`` and ``transaction`` are texts: ``source.ts_ms``, ``CAST(source.lsn AS BIGINT)``, ``transaction.id``. Each part and each
    column of the source has a second name with ``debezium_`` before it, for tables that have a column of its name.

    Args:
        name: identifies the source's positions in checkpoints.
        spec: where the records come from: Kafka, or files or elements with a column ``value`` and, where records have keys, ``key``.
        schema: Spark DDL of the table's columns that are read. A TIMESTAMP is a text with a date; numbers are read as BIGINT, since nothing
            says their unit.
        key: the columns that identify a row. They are taken from the row, and from the record's own key where that has none of it.
        watermarks: how elements are timed, such as ``bounded_out_of_orderness("1 minute", timestamp="source.ts_ms")``.
        keep_rows: keep the row of each key in the job's state, so that updates without the row before, snapshots that are read again and
            records that come twice give exact changes. False takes the row before from the record: the table then needs ``REPLICA
            IDENTITY FULL``, and each record has to come once. An update without it ends the epoch with an error.
        full_before: with ``keep_rows=False``, whether nulls in the row before are values: the table certainly has ``REPLICA IDENTITY
            FULL``. By default they count as columns that the database did not send.
        placeholder: what Debezium writes for a value that its database did not send, since it is long and was unchanged
            (``unavailable.value.placeholder``). The row keeps the value that it had; without kept rows the record is malformed. None where
            the database sends all values.
        sequence: an SQL expression whose values order the changes of a key, such as a log position; of a key a record with a lesser one
            is outdated and changes nothing. Tombstones have none and are left out then. By default the order is that of the source.
        metadata: columns to add to the rows, such as ``{"lsn": "CAST(source.lsn AS BIGINT)", "tx": "transaction.id"}``: those of the
            record that a row came from; needs ``keep_rows``.
        malformed_to: tag of the side output for malformed records; without it they are counted only.
        outdated_to: tag of the side output for outdated records; needs ``keep_rows`` and a sequence.
        incomplete_to: tag of the side output for rows with a placeholder, of whose key no row is kept; without it they are counted only.
        uid: of the operator that keeps the rows; by default the source's name with ``-rows``.

    Raises:
        InvalidNameError: the name, or that of a column, is not allowed.
        ColumnError: a column of the key is not in the schema, or an expression names one that does not exist.
        ExpressionError: an expression cannot be parsed.
        DefinitionError: the source has no column ``value``, the watermarks no timestamp, or arguments do not go together.
    """
    place = call_site()
    validate_source_name(name, place=place)
    given = _envelope(name, spec, schema, key, place)
    envelope = replace(given, placeholder=placeholder, full_before=full_before, keeps_rows=keep_rows)
    added = dict(metadata or {})
    _check_arguments(envelope, added, outdated_to=outdated_to, incomplete_to=incomplete_to, sequence=sequence, uid=uid, place=place)
    records = Stream(
        SourceNode(
            name=name,
            spec=spec,
            watermarks=_timed(name, envelope, watermarks, place),
            malformed_to=malformed_to,
            reasons=_reasons(envelope, watermarks),
            place=place,
        )
    )
    helpers = {} if sequence is None else {_SEQUENCE: _over(envelope, sequence, f"sequence of {name!r}", place)}
    if sequence is not None:
        records = records.filter("value IS NOT NULL")
    decoded = records.with_columns(**{RECORD: envelope.decoded})
    if not keep_rows:
        return _sent_changes(decoded, envelope, helpers)
    others = {column: _over(envelope, text, f"metadata {column!r} of {name!r}", place) for column, text in added.items()}
    rows = decoded.select(**envelope.row, **others, **helpers, **{_DELETED: envelope.deletes})
    newest = rows.latest(
        by=list(envelope.keys),
        sequence=_SEQUENCE if helpers else None,
        deleted=_DELETED,
        unchanged=envelope.unavailable,
        outdated_to=outdated_to,
        incomplete_to=incomplete_to,
    )
    return newest.uid(uid or f"{name}-rows").select(*(f"`{column}`" for column in (*envelope.row, *others)))


def _sent_changes(decoded: Stream, envelope: Envelope, helpers: Mapping[str, str]) -> Stream:
    """Return the changes with the rows before as the records have them."""
    changes = decoded.explode(envelope.changes, as_=_CHANGE)
    row = {column.name: f"{_CHANGE}.row.`{column.name}`" for column in envelope.columns.columns}
    typed = {name: f"CAST({value} AS {envelope.type_of(name)})" for name, value in row.items()}
    rows = changes.select(**typed, **helpers, **{_OPERATION: f"CAST({_CHANGE}.operation AS STRING)"})
    changelog = rows.as_changelog(list(envelope.keys), operation=_OPERATION, sequence=_SEQUENCE if helpers else None)
    return changelog.select(*(f"`{column}`" for column in row))


def _envelope(name: str, spec: SourceSpec, schema: str, key: Sequence[str], place: str) -> Envelope:
    columns = parse_schema(schema, place=place)
    check_column_names(columns.names, f"debezium source {name!r}", place)
    reserved = next((each for each in columns.names if each.lower().startswith(PREFIX)), None)
    if reserved is not None:
        raise DefinitionError(
            f"column {reserved!r} of source {name!r} begins with {PREFIX!r}, as columns do that decoding adds",
            fix="rename the column in the connector, such as by its transform ReplaceField",
            place=place,
        )
    nested = next((each for each in columns.columns if each.type not in {None, "TIMESTAMP"} and _TIMES.search(str(each.type))), None)
    if nested is not None:
        raise DefinitionError(
            f"column {nested.name!r} of source {name!r} has times within {nested.type}, which records have as texts or numbers",
            fix="write STRING or BIGINT for them in schema=..., and convert them in a later step",
            place=place,
        )
    keys = column_names(key, "debezium(key=...)", place)
    for each in keys:
        if columns.find(each) is None:
            raise ColumnError(f"debezium(key=...) names {each!r}, and the schema has {', '.join(columns.names)}", fix=_KEY_FIX, place=place)
    found = source_schema(spec)
    if found is None or found.find("value") is None:
        has = "columns that are not known" if found is None else f"the columns {', '.join(found.names)}"
        raise DefinitionError(
            f"source {name!r} has no column 'value' with the records of Debezium; it has {has}",
            fix="read them from Kafka, from files(format='text'), or from another source with the columns key STRING, value STRING",
            place=place,
        )
    if getattr(spec, "decoding", None) is not None:
        raise DefinitionError(
            f"debezium reads the records of {name!r} as JSON, and the source decodes them",
            fix="write tm.kafka_source(...) without format= and schema=",
            place=place,
        )
    exact = tuple(column.name for each in keys if (column := columns.find(each)) is not None)
    return Envelope(Schema(columns.columns), exact, found)


def _check_arguments(
    envelope: Envelope,
    metadata: Mapping[str, str],
    *,
    outdated_to: OutputTag | None,
    incomplete_to: OutputTag | None,
    sequence: str | None,
    uid: str | None,
    place: str,
) -> None:
    if outdated_to is not None and sequence is None:
        raise DefinitionError(
            "debezium(outdated_to=...) takes records with a lesser sequence, and there is no sequence",
            fix="write sequence='CAST(source.lsn AS BIGINT)', or leave outdated_to out",
            place=place,
        )
    if envelope.placeholder is not None and is_blank(envelope.placeholder):
        raise DefinitionError(
            f"debezium(placeholder={envelope.placeholder!r}) stands for no value",
            fix="give the connector's unavailable.value.placeholder, or None where the database sends all values",
            place=place,
        )
    if incomplete_to is not None and envelope.keeps_rows and not envelope.unavailable:
        raise DefinitionError(
            "debezium(incomplete_to=...) takes rows with a placeholder, and no column of the schema can have one",
            fix="leave incomplete_to out",
            place=place,
        )
    if envelope.full_before and envelope.keeps_rows:
        raise DefinitionError(
            "debezium(full_before=True) describes the row before in records, which is not read where rows are kept",
            fix="leave full_before out, or write keep_rows=False",
            place=place,
        )
    tags = (("outdated_to", outdated_to), ("incomplete_to", incomplete_to))
    given = [name for name, value in (("metadata", metadata), *tags, ("uid", uid)) if value]
    if given and not envelope.keeps_rows:
        raise DefinitionError(
            f"debezium(keep_rows=False, {given[0]}=...) keeps no rows: the row before a change has no metadata of the record it came from, "
            "no record is outdated, and there is no operator to name",
            fix=f"leave {given[0]} out, or keep_rows=False",
            place=place,
        )
    check_column_names([*envelope.columns.names, *metadata], "debezium(metadata=...)", place)


def _timed(name: str, envelope: Envelope, watermarks: WatermarkStrategy, place: str) -> WatermarkStrategy:
    timestamp = getattr(watermarks, "timestamp", None)
    if not isinstance(timestamp, str):
        raise DefinitionError(
            f"debezium source {name!r} has no timestamp by which its records are timed",
            fix="write watermarks=tm.bounded_out_of_orderness('1 minute', timestamp='source.ts_ms')",
            place=place,
        )
    return replace(watermarks, timestamp=envelope.time(timestamp, Site(f"timestamp of source {name!r}", place)))


def _reasons(envelope: Envelope, watermarks: WatermarkStrategy) -> RecordReasons:
    timestamp = str(watermarks.timestamp)
    return RecordReasons(timestamp, envelope.reason(timestamp), envelope.origin)


def _over(envelope: Envelope, expression: str, what: str, place: str) -> str:
    return envelope.over_envelope(expression, Site(what, place))[0]
