"""Declares a topic of Kafka as the sink of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.graph.api.sinks import bind_output
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.output_columns import check_added_columns
from tidemark.graph.checks.output_texts import ColumnTexts, described
from tidemark.graph.checks.upsert_keys import upsert_keys
from tidemark.graph.connectors.kafka.checks import (
    OPTIONS,
    check_columns,
    check_headers,
    check_servers,
    check_settings,
    check_topic,
    key_columns,
)
from tidemark.graph.connectors.kafka.spec import ID_PREFIX, ROWS_PER_TRANSACTION, Format, Guarantee, KafkaSpec, KeyFormat, Mode
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Output

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


def kafka_sink(
    stream: Stream,
    *,
    servers: str | Sequence[str],
    topic: str,
    key: Sequence[str] | None = None,
    format: Format = "json",
    key_format: KeyFormat = "json",
    mode: Mode = "append",
    headers: Mapping[str, str] | None = None,
    guarantee: Guarantee = "exactly_once",
    options: Mapping[str, str | int | bool] | None = None,
    options_env: Mapping[str, str] | None = None,
    rows_per_transaction: int = ROWS_PER_TRANSACTION,
    id_prefix: str = ID_PREFIX,
    description: str = "",
    columns: ColumnTexts | None = None,
) -> Output:
    """Write a stream to a topic of Kafka, which has to exist; needs the extra ``kafka`` where the job runs.

    Guarantee: exactly once for readers with ``isolation.level=read_committed``. An epoch's records are published in transactions, each with
    a marker of the epoch, so that a repeated publication adds nothing. Records cannot be taken back: a rewind publishes the rows again.

    Records with one key go to one partition, by the rule of Java's clients (``murmur2``), in the order of the epochs. Within an epoch
    records of a stream that is only added to are in order of event time where there is a key.

    A changelog is appended as its history, with the columns ``operation`` and ``epoch``; upserted, each changed key has a record with its
    row after the epoch, or without a value if it is deleted (a tombstone); as ``debezium-json`` each change is an envelope.

    Args:
        stream: the stream to write.
        servers: brokers to start from, ``host:port``.
        topic: its name.
        key: columns of a record's key; without them records have none, and are spread over the partitions. Upserts and changelogs have
            default keys, as for ``delta``.
        format: of the value. ``json`` is an object of all columns, with nulls; ``debezium-json`` an envelope with ``before``, ``after``,
            ``op``, ``ts_ms`` and ``source``; ``raw`` is the column ``value``, STRING or BINARY, as it is.
        key_format: ``json`` is an object of the key's columns; ``text`` a single column as text, or as it is if it is BINARY; null is no
            key.
        mode: ``append`` writes a record for every row; ``upsert`` the newest row of each key in the epoch, and tombstones.
        headers: columns by header; a null is a header without a value.
        guarantee: ``at_least_once`` publishes without transactions and markers, faster: after a crash an epoch may be published twice.
        options: of librdkafka's producer, such as ``compression.type`` and ``security.protocol``.
        options_env: options whose values are secret, each with the name of the environment variable that holds it.
        rows_per_transaction: greatest number of rows of a transaction; a larger epoch takes several, which appear one after the other.
        id_prefix: begins the transactional id, which goes on with the names of the job and the output. Give another one where two job
            stores have jobs of one name for one cluster.
        description: what the records are, for readers: the description of the asset in Dagster.
        columns: what the columns are, by name, likewise.

    Raises:
        DefinitionError: an argument is not of these; the message repeats no secret.
        ColumnError: the stream lacks a column of the key, or of a header.
    """
    place = call_site()
    check_settings(
        format=format,
        key_format=key_format,
        mode=mode,
        guarantee=guarantee,
        rows_per_transaction=rows_per_transaction,
        id_prefix=id_prefix,
        place=place,
    )
    spec = KafkaSpec(
        servers=check_servers(servers, place),
        topic=check_topic(topic, place),
        key=key_columns(key, place) or (),
        format=format,
        key_format=key_format,
        mode=mode,
        headers=check_headers(headers, place),
        delivery=guarantee,
        options=OPTIONS.plain(options, place),
        environment=OPTIONS.variables(options_env, place),
        rows_per_transaction=rows_per_transaction,
        id_prefix=id_prefix,
    )
    output = bind_output("kafka_sink", stream, spec)
    own = changelog_keys(output.node)
    if mode == "upsert" or (own is not None and format == "debezium-json"):
        keys = upsert_keys(output.node, key, place, sink="kafka_sink")
        output = replace(output, sink=replace(spec, key=keys))
    elif own is not None and key is None:
        output = replace(output, sink=replace(spec, key=own))
    check_added_columns(output)
    if isinstance(output.sink, KafkaSpec):
        check_columns(output.node, output.sink, place)
    return described(output, description, columns)
