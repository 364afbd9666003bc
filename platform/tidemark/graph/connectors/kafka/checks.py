"""Checks of what is declared of a topic: names, addresses, options without secrets, keys and headers that the rows have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.connectors.kafka.spec import MAX_TOPIC, Format, Guarantee, KafkaSpec, KeyFormat, Mode
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.nodes import Node
from tidemark.graph.model.schema import SchemaColumn
from tidemark.graph.model.secret_options import OptionChecks

SINK: Final = "kafka_sink"

_SERVER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HEADER: Final = re.compile(r"[\x20-\x7e]{1,200}")
_OWN: Final[Mapping[str, str]] = {
    "bootstrap.servers": "servers=",
    "metadata.broker.list": "servers=",
    "transactional.id": "id_prefix=, which begins it",
    "enable.idempotence": "guarantee=",
    "acks": "guarantee=",
    "request.required.acks": "guarantee=",
    "group.id": "id_prefix=, which begins it",
    "isolation.level": "nothing: markers are read as committed",
    "delivery.report.only.error": "nothing: failures are reported",
}
SECRET: Final = frozenset({"ssl.key.pem", "ssl.keystore.key", "sasl.oauthbearer.config", "sasl.jaas.config"})
"""Options of clients that hold secrets though their names do not say so."""

OPTIONS: Final = OptionChecks(SINK, _OWN, "{'compression.type': 'zstd'}", SECRET)
"""Of what goes to the client."""

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "format": get_args(Format),
    "key_format": get_args(KeyFormat),
    "mode": get_args(Mode),
    "guarantee": get_args(Guarantee),
}


def check_servers(servers: object, place: str, *, caller: str = SINK) -> str:
    """Return the addresses of brokers, with commas between them.

    Raises:
        DefinitionError: not ``host:port``, or several of these.

    >>> check_servers(["a:9092", "b:9092"], "")
    'a:9092,b:9092'
    """
    given = servers.split(",") if isinstance(servers, str) else servers
    parts = [part.strip() if isinstance(part, str) else "" for part in given] if isinstance(given, Sequence) else []
    if not parts or not all(_SERVER.fullmatch(part) for part in parts):
        # An address with a user in it may hold a password.
        shown = "..." if "@" in str(servers) else shortened(repr(servers))
        raise DefinitionError(
            f"{caller}(servers={shown}) is no list of brokers, each as host:port",
            fix="write servers='broker-1:9092,broker-2:9092'; users and passwords go to options= and options_env=",
            place=place,
        )
    return ",".join(parts)


def check_topic(topic: object, place: str, *, caller: str = SINK) -> str:
    """Return the topic's name.

    Raises:
        DefinitionError: Kafka does not allow it.
    """
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or len(topic) > MAX_TOPIC or topic in {".", ".."}:
        raise DefinitionError(
            f"{caller}(topic={shortened(repr(topic))}) is no name of a topic",
            fix=f"use 1 to {MAX_TOPIC} letters, digits, '.', '_' or '-'",
            place=place,
        )
    return topic


def check_settings(
    *, format: object, key_format: object, mode: object, guarantee: object, rows_per_transaction: object, id_prefix: object, place: str
) -> None:
    """Check the settings that are one of a few values, a number, or a part of a name.

    Raises:
        DefinitionError: one is not; or the mode and the format do not go together.
    """
    given = {"format": format, "key_format": key_format, "mode": mode, "guarantee": guarantee}
    for name, value in given.items():
        if value not in _CHOICES[name]:
            raise DefinitionError(
                f"kafka_sink({name}={shortened(repr(value))}) is not one of {', '.join(_CHOICES[name])}",
                fix=f"write {name}={_CHOICES[name][0]!r}",
                place=place,
            )
    if mode == "upsert" and format == "debezium-json":
        raise DefinitionError(
            "kafka_sink(mode='upsert', format='debezium-json') writes either the newest row of each key, or envelopes of changes",
            fix="leave mode out for envelopes, or write format='json' for upserts with tombstones",
            place=place,
        )
    if type(rows_per_transaction) is not int or rows_per_transaction < 1:
        raise DefinitionError(
            f"kafka_sink(rows_per_transaction={shortened(repr(rows_per_transaction))}) is not a whole number of 1 or more",
            fix="give 1 or more, or leave it out",
            place=place,
        )
    if not isinstance(id_prefix, str) or not _PREFIX.fullmatch(id_prefix):
        raise DefinitionError(
            f"kafka_sink(id_prefix={shortened(repr(id_prefix))}) cannot begin a transactional id",
            fix="use 1 to 100 letters, digits, '.', '_' or '-', or leave it out",
            place=place,
        )


def check_columns(node: Node, spec: KafkaSpec, place: str) -> None:
    """Check that the rows have the columns that the key, the headers and the format need.

    Raises:
        ColumnError: there is no such column.
        DefinitionError: a key of text has several columns, or of a type without a text, or the format cannot hold the rows.
    """
    if spec.key_format == "text" and len(spec.key) > 1:
        raise DefinitionError(
            f"kafka_sink(key_format='text') writes one column as the key, and there are {len(spec.key)}: {', '.join(spec.key)}",
            fix="leave key_format out for a JSON object, or make one column of them: .with_columns(key=\"concat(a, '/', b)\")",
            place=place,
        )
    if spec.format == "raw":
        if spec.mode == "append" and changelog_keys(node) is not None:
            raise DefinitionError(
                "kafka_sink(format='raw') of a changelog would not say which rows are gone",
                fix="write mode='upsert', format='json' or format='debezium-json'",
                place=place,
            )
        value = _column(node, "value", "format='raw'", place)
        if value is not None and value.type not in {None, "STRING", "BINARY"}:
            raise ColumnError(
                f"kafka_sink(format='raw') writes the column 'value' as it is, and its type is {value.type}",
                fix="make it STRING or BINARY, or write format='json'",
                place=place,
            )
    for column in spec.key:
        found = _column(node, column, "key=", place)
        if found is not None and spec.key_format == "text" and _has_no_text(found):
            raise ColumnError(
                f"kafka_sink(key_format='text') cannot write {column!r} of type {found.type} as text",
                fix="leave key_format out for a JSON object",
                place=place,
            )
    for column in spec.headers.values():
        _column(node, column, "headers=", place)


def check_headers(headers: object, place: str) -> dict[str, str]:
    """Return the columns of headers, by header.

    Raises:
        DefinitionError: no mapping of columns by header.
    """
    given = {} if headers is None else headers
    pairs = list(given.items()) if isinstance(given, Mapping) else [(None, None)]
    found = {name: column for name, column in pairs if isinstance(name, str) and isinstance(column, str) and column}
    if len(found) < len(pairs) or not all(map(_HEADER.fullmatch, found)):
        raise DefinitionError(
            f"kafka_sink(headers={shortened(repr(headers))}) is no mapping of columns by header",
            fix="write headers={'trace-id': 'trace_id'}",
            place=place,
        )
    return found


def key_columns(key: object, place: str) -> tuple[str, ...] | None:
    """Return the columns of the key, None where none are given.

    Raises:
        DefinitionError: no list of columns.
    """
    if key is None:
        return None
    if isinstance(key, str) or not isinstance(key, Sequence) or not all(isinstance(column, str) and column for column in key):
        raise DefinitionError(f"kafka_sink(key={shortened(repr(key))}) is not a list of columns", fix="write key=['zone']", place=place)
    return tuple(key)


def _has_no_text(column: SchemaColumn) -> bool:
    return column.type is not None and column.type.startswith(("MAP<", "STRUCT<", "ARRAY<", "VARIANT"))


def _column(node: Node, name: str, argument: str, place: str) -> SchemaColumn | None:
    schema = schema_of(node)
    if schema is None:
        return None
    found = schema.find(name)
    if found is None:
        near = schema.nearest(name)
        raise ColumnError(
            f"kafka_sink({argument}) needs column {name!r}, which the stream does not have; the columns are: {', '.join(schema.names)}",
            fix=f"write {near!r}" if near else "name columns of the stream",
            place=place,
        )
    return found
