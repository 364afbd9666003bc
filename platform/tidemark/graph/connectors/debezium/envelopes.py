"""SQL over the records of Debezium: the decoded envelope, the row and its key, the event time, and why a record is malformed.

A record is a source's row with the columns ``value`` and, where the source has them, ``key``, ``partition`` and ``offset``. It is decoded
once in each expression, by ``from_json`` within a lambda whose variable is ``debezium``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.expressions.substitution import with_columns_replaced
from tidemark.graph.model.schema import Schema, SchemaColumn

PREFIX: Final = "debezium"
"""The names of columns that decoding adds begin so."""

RECORD: Final = PREFIX
"""The column of a decoded record, and the variable that stands for it in lambdas."""

_CORRUPT: Final = f"{PREFIX}_corrupt"
_TEXTS: Final = "MAP<STRING, STRING>"
_ENVELOPE: Final = {"source": _TEXTS, "op": "STRING", "ts_ms": "BIGINT", "transaction": _TEXTS}
"""Parts of an envelope beside the rows. What is in ``source`` differs between connectors, so its values are texts."""


@dataclass(frozen=True)
class Envelope:
    """SQL over the records of a table.

    Args:
        columns: of the table's rows, with their types.
        keys: the names of those that identify a row.
        source: the columns of the source that has the records.
    """

    columns: Schema
    keys: Sequence[str]
    source: Schema

    @property
    def decoded(self) -> str:
        """The record: ``corrupt``, its text where it cannot be parsed, ``envelope``, with or without the schema around it, and ``key``."""
        parts = [("before", self._row_type), ("after", self._row_type), *_ENVELOPE.items()]
        fields = ", ".join(f"{name}: {kind}" for name, kind in parts)
        schema = f"payload STRUCT<{fields}>, {', '.join(f'{name} {kind}' for name, kind in parts)}, {_CORRUPT} STRING"
        plain = ", ".join(f"'{name}', record.{name}" for name, _ in parts)
        options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_CORRUPT}')"
        return (
            f"transform(array(from_json(CAST(value AS STRING), {_text(schema)}, {options})), record -> "
            f"named_struct('corrupt', record.{_CORRUPT}, 'envelope', coalesce(record.payload, named_struct({plain})), "
            f"'key', {self._decoded_key}))[0]"
        )

    @property
    def _decoded_key(self) -> str:
        """The columns of the key in the record's own key, as a struct; null where the source has none."""
        fields = [f"{quoted(name)}: {self.type_of(name)}" for name in self.keys]
        if self.source.find("key") is None:
            return f"CAST(NULL AS STRUCT<{', '.join(fields)}>)"
        schema = f"payload STRUCT<{', '.join(fields)}>, {', '.join(field.replace(': ', ' ', 1) for field in fields)}"
        plain = ", ".join(f"{_text(name)}, named.{quoted(name)}" for name in self.keys)
        return (
            f"transform(array(from_json(CAST(`key` AS STRING), {_text(schema)})), named -> "
            f"coalesce(named.payload, named_struct({plain})))[0]"
        )

    @property
    def row(self) -> Mapping[str, str]:
        """The columns of the row: as it is after the change, or as it was before its deletion; of its key also where only that is known."""
        key = {name.lower() for name in self.keys}
        found = {}
        for column in self.columns.columns:
            value = self._value(column.name, RECORD)
            if column.name.lower() in key:
                value = f"coalesce({value}, {RECORD}.key.{quoted(column.name)})"
            found[column.name] = f"CAST({value} AS {column.type})"
        return found

    @property
    def deletes(self) -> str:
        """Whether the record deletes its key: a delete, or a tombstone."""
        return f"(value IS NULL OR coalesce({RECORD}.envelope.op = 'd', false))"

    def over_envelope(self, expression: str, site: Site) -> tuple[str, str | None]:
        """Return an expression over the envelope's parts, the row and the source's columns as SQL over ``RECORD``, and its type if known.

        Raises:
            ColumnError: there is no such part or column.
            ExpressionError: it is no expression.
        """
        kinds = self._kinds
        parsed = parse_row_expression(expression, site)
        check_columns(parsed, expression, kinds, site)
        return with_columns_replaced(expression, self._part, site), type_of(parsed, kinds)

    def time(self, expression: str, site: Site) -> str:
        """Return SQL of the event time in milliseconds: null for malformed records, and 1970 for tombstones, which move no watermark.

        Args:
            expression: over the envelope, a TIMESTAMP, a DATE, a BIGINT of milliseconds, or a text of one of these.
            site: of the expression, for errors.

        Raises:
            ColumnError, ExpressionError: as ``over_envelope`` does.
        """
        value, kind = self.over_envelope(expression, site)
        if kind in {"BIGINT", "INT"}:
            milliseconds = f"CAST({value} AS BIGINT)"
        elif kind in {"TIMESTAMP", "DATE"}:
            milliseconds = f"unix_millis(CAST({value} AS TIMESTAMP))"
        else:
            text = f"CAST({value} AS STRING)"
            milliseconds = f"coalesce(try_cast({text} AS BIGINT), unix_millis(try_cast({text} AS TIMESTAMP)))"
        return self._over_record(f"CASE WHEN {self._why_not} IS NULL THEN if(value IS NULL, 0, {milliseconds}) END")

    def reason(self, timestamp: str) -> str:
        """Return SQL of why a record without an event time is malformed."""
        no_time = _text(f"event time '{timestamp}' is null or no time")
        return self._over_record(f"coalesce({self._why_not}, {no_time})")

    @property
    def origin(self) -> str:
        """SQL of a text that says where a record is; empty where the source does not know that."""
        if any(self.source.find(name) is None for name in ("partition", "offset")):
            return "''"
        return "coalesce(concat(' (partition ', `partition`, ', offset ', `offset`, ')'), '')"

    @property
    def changes(self) -> str:
        """The rows of a record as an array of operations and rows: an update is two, and fails where its row before is missing."""
        what = f"{RECORD}.envelope"
        missing = " OR ".join(filter(None, (f"{what}.before IS NULL", self._only_key(what))))
        message = (
            "debezium(keep_rows=False) takes the row before an update or a delete from the record, and this one has none. Fix: "
            "ALTER TABLE ... REPLICA IDENTITY FULL, or keep_rows=True"
        )
        gone = f"WHEN {what}.op IN ('u', 'd') AND ({missing}) THEN raise_error({_text(message)})"
        before = f"CASE {gone} WHEN {what}.op = 'u' THEN 'update_before' WHEN {what}.op = 'd' THEN 'delete' END"
        after = f"CASE WHEN {what}.op = 'u' THEN 'update_after' WHEN {what}.op IN ('c', 'r') THEN 'insert' END"
        rows = ", ".join(
            f"named_struct('operation', {kind}, 'row', {what}.{name})" for name, kind in (("before", before), ("after", after))
        )
        return f"filter(array({rows}), change -> change.operation IS NOT NULL)"

    def type_of(self, name: str) -> str:
        """Return the type of a column of the row."""
        column = self.columns.find(name)
        if column is None or column.type is None:
            raise ValueError(name)
        return column.type

    @property
    def _row_type(self) -> str:
        return f"STRUCT<{', '.join(f'{quoted(column.name)}: {column.type}' for column in self.columns.columns)}>"

    @property
    def _kinds(self) -> Schema:
        """The parts that expressions over the envelope may name, with their types."""
        rows = [SchemaColumn("before", self._row_type), SchemaColumn("after", self._row_type)]
        parts = [SchemaColumn(name, kind) for name, kind in _ENVELOPE.items()]
        return Schema(self.source.columns).with_columns([*rows, *parts]).with_columns(self.columns.columns)

    def _part(self, name: str) -> str | None:
        column = self.columns.find(name)
        if column is not None:
            return f"({self._value(column.name, RECORD)})"
        if name.lower() in {"before", "after", *_ENVELOPE}:
            return f"{RECORD}.envelope.{name.lower()}"
        return None

    @property
    def _why_not(self) -> str:
        """SQL of why a record is no change of the table, null for one that is; over the variable ``debezium``."""
        what = f"{RECORD}.envelope"
        row = [f"coalesce({self._value(name, RECORD)}, {RECORD}.key.{quoted(name)}) IS NULL" for name in self.keys]
        of_key = [f"{RECORD}.key.{quoted(name)} IS NULL" for name in self.keys]
        columns = ", ".join(self.keys)
        cases = (
            (f"value IS NULL AND ({' OR '.join(of_key)})", _text(f"a tombstone without a key: {columns}")),
            ("value IS NULL", "NULL"),
            (f"{RECORD}.corrupt IS NOT NULL", _text("record cannot be parsed as a change of Debezium with the columns of the schema")),
            (f"{what}.op IS NULL", _text("record is no change of Debezium: it has no op")),
            (f"{what}.op NOT IN ('c', 'r', 'u', 'd')", f"concat('operation ', {what}.op, ' cannot be applied to rows')"),
            (f"{what}.op <> 'd' AND {what}.after IS NULL", f"concat('operation ', {what}.op, ' has no row after it')"),
            (" OR ".join(row), _text(f"column of the key is null: {columns}")),
        )
        return f"CASE {' '.join(f'WHEN {condition} THEN {reason}' for condition, reason in cases)} END"

    def _over_record(self, expression: str) -> str:
        return f"transform(array({self.decoded}), {RECORD} -> {expression})[0]"

    def _value(self, name: str, record: str) -> str:
        what = f"{record}.envelope"
        return f"if({what}.op = 'd', {what}.before.{quoted(name)}, {what}.after.{quoted(name)})"

    def _only_key(self, what: str) -> str:
        """Return SQL of whether the row before has nothing but its key, as with the default replica identity."""
        key = {name.lower() for name in self.keys}
        others = [f"{what}.before.{quoted(column.name)} IS NULL" for column in self.columns.columns if column.name.lower() not in key]
        return f"({' AND '.join(others)})" if others else ""


def quoted(name: str) -> str:
    """Return a column's name as SQL."""
    return f"`{name.replace('`', '``')}`"


def _text(text: str) -> str:
    """Return a text as an SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
