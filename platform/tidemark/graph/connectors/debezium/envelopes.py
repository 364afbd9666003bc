"""SQL over the records of Debezium: the decoded envelope, the row and its key, the event time, and why a record is malformed.

A record is a source's row with the columns ``value`` and, where the source has them, ``key``, ``partition`` and ``offset``. It is decoded
once in each expression, by ``from_json`` within a lambda whose variable is ``debezium``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.errors import ColumnError
from tidemark.graph.connectors.debezium.texts import is_unavailable, literal, quoted, time_of, wire_type
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
_PARTS: Final = frozenset({"before", "after", *_ENVELOPE})
_PREFIXED: Final = f"{PREFIX}_"
"""Parts of an envelope beside the rows. What is in ``source`` differs between connectors, so its values are texts."""


@dataclass(frozen=True)
class Envelope:
    """SQL over the records of a table.

    Args:
        columns: of the table's rows, with their types.
        keys: the names of those that identify a row.
        source: the columns of the source that has the records.
        placeholder: Debezium's value for one that it does not have, None where none stands for that.
        full_before: whether the row before has all columns, so that its nulls are values.
        keeps_rows: whether rows are kept, from which values come that a record does not have.
    """

    columns: Schema
    keys: Sequence[str]
    source: Schema
    placeholder: str | None = None
    full_before: bool = False
    keeps_rows: bool = True

    @property
    def decoded(self) -> str:
        """The record: ``corrupt``, its text where it cannot be parsed, ``envelope``, with or without the schema around it, and ``key``."""
        if not self._times:
            return self._parsed
        envelope = [f"'{name}', {self._typed(f'wire.envelope.{name}', self.columns.names)}" for name in ("before", "after")]
        envelope += [f"'{name}', wire.envelope.{name}" for name in _ENVELOPE]
        texts = [f"wire.envelope.{row}.{quoted(name)}" for row in ("before", "after") for name in self._times]
        wrong = " OR ".join(f"({text} IS NOT NULL AND {time_of(text)} IS NULL)" for text in texts)
        corrupt = f"coalesce(wire.corrupt, if({wrong}, CAST(value AS STRING), NULL))"
        parts = f"'corrupt', {corrupt}, 'envelope', named_struct({', '.join(envelope)}), 'key', {self._typed('wire.key', self.keys)}"
        return f"transform(array({self._parsed}), wire -> named_struct({parts}))[0]"

    @property
    def _times(self) -> list[str]:
        """The names of columns that are times."""
        return [column.name for column in self.columns.columns if column.type == "TIMESTAMP"]

    def _typed(self, row: str, names: Sequence[str]) -> str:
        """Return SQL of a row with times for the texts that it has."""
        values = {name: f"{row}.{quoted(name)}" for name in names}
        fields = (f"{literal(name)}, {time_of(value) if name in self._times else value}" for name, value in values.items())
        return f"if({row} IS NULL, NULL, named_struct({', '.join(fields)}))"

    @property
    def _parsed(self) -> str:
        """The record, with texts for times."""
        parts = [("before", self._wire_type), ("after", self._wire_type), *_ENVELOPE.items()]
        fields = ", ".join(f"{name}: {kind}" for name, kind in parts)
        schema = f"payload STRUCT<{fields}>, {', '.join(f'{name} {kind}' for name, kind in parts)}, {_CORRUPT} STRING"
        plain = ", ".join(f"'{name}', record.{name}" for name, _ in parts)
        options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_CORRUPT}')"
        return (
            f"transform(array(from_json(CAST(value AS STRING), {literal(schema)}, {options})), record -> "
            f"named_struct('corrupt', record.{_CORRUPT}, 'envelope', coalesce(record.payload, named_struct({plain})), "
            f"'key', {self._decoded_key}))[0]"
        )

    @property
    def _decoded_key(self) -> str:
        """The columns of the key in the record's own key, as a struct; null where the source has none."""
        fields = [f"{quoted(name)}: {wire_type(self.type_of(name))}" for name in self.keys]
        if self.source.find("key") is None:
            return f"CAST(NULL AS STRUCT<{', '.join(fields)}>)"
        schema = f"payload STRUCT<{', '.join(fields)}>, {', '.join(field.replace(': ', ' ', 1) for field in fields)}"
        plain = ", ".join(f"{literal(name)}, named.{quoted(name)}" for name in self.keys)
        return (
            f"transform(array(from_json(CAST(`key` AS STRING), {literal(schema)})), named -> "
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
    def unavailable(self) -> Mapping[str, str]:
        """Of each column that may have the placeholder, SQL of whether it does; over the columns of the row."""
        key = {name.lower() for name in self.keys}
        found = {}
        for column in self.columns.columns:
            condition = self._is_unavailable(quoted(column.name), column)
            if condition is not None and column.name.lower() not in key:
                found[column.name] = condition
        return found

    def _is_unavailable(self, value: str, column: SchemaColumn) -> str | None:
        return None if self.placeholder is None or column.type is None else is_unavailable(value, column.type, self.placeholder)

    @property
    def deletes(self) -> str:
        """Whether the record deletes its key: a delete, or a tombstone."""
        return f"(value IS NULL OR coalesce({RECORD}.envelope.op = 'd', false))"

    def over_envelope(self, expression: str, site: Site) -> tuple[str, str | None]:
        """Return an expression over the envelope's parts, the row and the source's columns as SQL over ``RECORD``, and its type if known.

        Raises:
            ColumnError: there is no such part or column, or a name is that of a part and of a column.
            ExpressionError: it is no expression.
        """
        kinds = self._kinds
        parsed = parse_row_expression(expression, site)
        with_columns_replaced(expression, lambda name: self._require_one(name, expression, site), site)
        check_columns(parsed, expression, kinds, site)
        return with_columns_replaced(expression, self._part, site), type_of(parsed, kinds)

    def time(self, expression: str, site: Site) -> str:
        """Return SQL of the event time in milliseconds: null for malformed records, and 1970 for tombstones, which move no watermark.

        A delete whose row has no such time has that of the change in the database.

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
        # Of a deleted row often only the key is known.
        sent = f"coalesce(try_cast({RECORD}.envelope.source['ts_ms'] AS BIGINT), {RECORD}.envelope.ts_ms)"
        milliseconds = f"coalesce({milliseconds}, if({RECORD}.envelope.op = 'd', {sent}, NULL))"
        return self._over_record(f"CASE WHEN {self._why_not} IS NULL THEN if(value IS NULL, 0, {milliseconds}) END")

    def reason(self, timestamp: str) -> str:
        """Return SQL of why a record without an event time is malformed."""
        no_time = literal(f"event time '{timestamp}' is null or no time")
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
        missing = " OR ".join(filter(None, (f"{what}.before IS NULL", "" if self.full_before else self._has_nulls(what))))
        message = (
            "debezium(keep_rows=False) takes the row before an update or a delete from the record, and this one has none, or one with "
            "nulls, as where the database sends the key alone. Fix: ALTER TABLE ... REPLICA IDENTITY FULL, or keep_rows=True; for a table "
            "that has it and nulls in its rows, full_before=True"
        )
        gone = f"WHEN {what}.op IN ('u', 'd') AND ({missing}) THEN raise_error({literal(message)})"
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
    def _wire_type(self) -> str:
        fields = (f"{quoted(column.name)}: {wire_type(str(column.type))}" for column in self.columns.columns)
        return f"STRUCT<{', '.join(fields)}>"

    @property
    def _kinds(self) -> Schema:
        """The parts that expressions over the envelope may name, with their types."""
        rows = [SchemaColumn("before", self._row_type), SchemaColumn("after", self._row_type)]
        parts = [SchemaColumn(name, kind) for name, kind in _ENVELOPE.items()]
        prefixed = [SchemaColumn(f"{_PREFIXED}{each.name}", each.type) for each in (*self.source.columns, *rows, *parts)]
        named = Schema(self.source.columns).with_columns([*rows, *parts]).with_columns(self.columns.columns)
        return named.with_columns(prefixed)

    def _require_one(self, name: str, expression: str, site: Site) -> None:
        """Refuse a name that is both a column of the table and a part of the envelope or a column of the source."""
        column = self.columns.find(name)
        of_envelope = name.lower() in _PARTS
        if column is None or not (of_envelope or self.source.find(name) is not None):
            return
        other = "a part of Debezium's envelope" if of_envelope else "a column of the source of the records"
        raise ColumnError(
            f"{site.of(expression)} names {name!r}, which is a column of the table and {other}",
            fix=f"write {_PREFIXED}{name} for {other}, and {_PREFIXED}after.{name} or {_PREFIXED}before.{name} for the column",
            place=site.place,
        )

    def _part(self, name: str) -> str | None:
        if name.lower().startswith(_PREFIXED):
            name = name[len(_PREFIXED) :]
            return f"{RECORD}.envelope.{name.lower()}" if name.lower() in _PARTS else quoted(name)
        column = self.columns.find(name)
        if column is not None:
            return f"({self._value(column.name, RECORD)})"
        if name.lower() in _PARTS:
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
            (f"value IS NULL AND ({' OR '.join(of_key)})", literal(f"a tombstone without a key: {columns}")),
            ("value IS NULL", "NULL"),
            (f"{RECORD}.corrupt IS NOT NULL", literal("record cannot be parsed as a change of Debezium with the columns of the schema")),
            (f"{what}.op IS NULL", literal("record is no change of Debezium: it has no op")),
            (f"{what}.op NOT IN ('c', 'r', 'u', 'd')", f"concat('operation ', {what}.op, ' cannot be applied to rows')"),
            (f"{what}.op <> 'd' AND {what}.after IS NULL", f"concat('operation ', {what}.op, ' has no row after it')"),
            (" OR ".join(row), literal(f"column of the key is null: {columns}")),
            *([] if self.keeps_rows else self._unsent(what)),
        )
        return f"CASE {' '.join(f'WHEN {condition} THEN {reason}' for condition, reason in cases)} END"

    def _unsent(self, what: str) -> Iterator[tuple[str, str]]:
        """Yield for each column the condition under which a record does not have it, and the reason."""
        for column in self.columns.columns:
            values = [f"{what}.{row}.{quoted(column.name)}" for row in ("before", "after")]
            conditions = [self._is_unavailable(value, column) for value in values]
            if all(conditions):
                reason = f"column {column.name!r} has no value: the database did not send it, since it was unchanged"
                yield " OR ".join(map(str, conditions)), literal(reason)

    def _over_record(self, expression: str) -> str:
        return f"transform(array({self.decoded}), {RECORD} -> {expression})[0]"

    def _value(self, name: str, record: str) -> str:
        what = f"{record}.envelope"
        return f"if({what}.op = 'd', {what}.before.{quoted(name)}, {what}.after.{quoted(name)})"

    def _has_nulls(self, what: str) -> str:
        """Return SQL of whether a column of the row before is null, as those that are not in the table's replica identity are."""
        key = {name.lower() for name in self.keys}
        others = [f"{what}.before.{quoted(column.name)} IS NULL" for column in self.columns.columns if column.name.lower() not in key]
        return f"({' OR '.join(others)})" if others else ""
