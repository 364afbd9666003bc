"""What ``kafka_source`` makes of its arguments, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.api.watermark_strategies import ascending
from tidemark.graph.checks.schema_inference import schema_of, source_schema
from tidemark.graph.job.code_version import code_version
from tidemark.graph.model.source_specs import FormatSpec

MARKER = "hunter2-marker"
AVRO = {"format": "avro", "schema": "zone INT", "registry": "https://registry:8081/"}


def spec(**arguments: Any) -> FormatSpec:
    given = {"servers": "broker:9092", **({} if {"pattern", "partitions"} & arguments.keys() else {"topics": "fares"}), **arguments}
    return tm.kafka_source(**given)


def test_options_of_spark() -> None:
    found = spec()
    assert dict(found.options) == {
        "kafka.bootstrap.servers": "broker:9092",
        "subscribe": "fares",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
    }
    options = spec(
        servers=["a:1", "b:2"], pattern="fares-.*", start="latest", headers=True, on_loss="skip", isolation="read_uncommitted",
        max_rows_per_epoch=7, options={"minPartitions": 4, "kafka.client.id": "me"},
    ).options  # fmt: skip
    assert dict(options) == {
        "minPartitions": "4",
        "kafka.client.id": "me",
        "kafka.bootstrap.servers": "a:1,b:2",
        "subscribePattern": "fares-.*",
        "startingOffsets": "latest",
        "kafka.isolation.level": "read_uncommitted",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "7",
    }
    assert spec(topics=["a", "b"]).options["subscribe"] == "a,b"
    assert json.loads(spec(partitions={"fares": [0, 2]}).options["assign"]) == {"fares": [0, 2]}
    assert json.loads(spec(from_offsets={"fares": {0: 5, 1: -2}}).options["startingOffsets"]) == {"fares": {"0": 5, "1": -2}}
    since = spec(from_timestamp="2026-11-26T09:00:00+01:00").options
    assert (since["startingTimestamp"], since["startingOffsetsByTimestampStrategy"]) == ("1795680000000", "latest")
    # The first record that is not older has the next millisecond.
    assert spec(from_timestamp="2026-11-26T08:00:00.000400+00:00").options["startingTimestamp"] == "1795680000001"


def test_columns_and_identity() -> None:
    plain = source_schema(spec(headers=True))
    assert plain is not None
    assert str(plain).startswith("key BINARY, value BINARY, topic STRING, partition INT")
    assert plain.names[-1] == "headers"
    decoded = spec(format="json", schema="zone int, `at time` timestamp, tags array<string>")
    found = source_schema(decoded)
    assert found is not None
    assert found.columns[1].type == "STRUCT<`zone`: INT, `at time`: TIMESTAMP, `tags`: ARRAY<STRING>>"
    stream = tm.source("fares", decoded, watermarks=ascending(timestamp="value.`at time`")).select(zone="value.zone", first="value.tags[0]")
    columns = schema_of(stream.node)
    assert columns is not None
    assert str(columns) == "zone INT, first STRING"
    with pytest.raises(ColumnError):
        tm.source("fares", decoded, watermarks=ascending(timestamp="at"))

    def version(found: FormatSpec) -> str:
        rows = tm.source("fares", found, watermarks=ascending(timestamp="timestamp")).select("partition")
        return code_version(tm.Job("fares", outputs={"rows": tm.memory(rows, "rows")}))

    avro = spec(**AVRO)
    assert len({version(each) for each in (spec(), decoded, avro, spec(**{**AVRO, "schema": "zone BIGINT"}))}) == 4
    assert version(avro) == version(spec(**{**AVRO, "registry": "https://other"}, registry_env="REGISTRY"))
    assert version(spec()) == version(replace(spec(), options={}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"servers": "broker"}, "kafka_source(servers='broker') is no list of brokers"),
        ({"topics": "a b"}, "kafka_source(topic='a b') is no name of a topic"),
        ({"topics": []}, "names no topic"),
        ({"topics": "a", "pattern": "b"}, "reads topics, a pattern or partitions"),
        ({"partitions": {"fares": []}}, "is no mapping of partitions by topic"),
        ({"partitions": {"fares": [-1]}}, "is no mapping of partitions by topic"),
        ({"from_offsets": {"fares": {0: -3}}}, "is no mapping of offsets by topic and partition"),
        ({"from_offsets": {"fares": {}}}, "is no mapping of offsets by topic and partition"),
        ({"from_offsets": {}}, "is no mapping of offsets by topic and partition"),
        ({"start": "now"}, "kafka_source(start='now') is not one of earliest, latest"),
        ({"start": "latest", "from_offsets": {"fares": {0: 1}}}, "begins at one place"),
        ({"from_timestamp": "2026-11-26T08:00:00"}, "is no time with an offset from UTC"),
        ({"from_timestamp": "1969-12-31T23:59:59.999+00:00"}, "is no time with an offset from UTC, 1970 or later"),
        ({"isolation": "serializable"}, "is not one of read_committed, read_uncommitted"),
        ({"on_remade": "skip"}, "is not one of fail, restart"),
        ({"on_remade": "restart", "options": {"minOffsetsPerTrigger": 5}}, "does not go with the options"),
        ({"options": {"subscribe": "other"}}, "kafka_source takes no option 'subscribe'"),
        ({"options": {"Kafka.Isolation.Level": "x"}}, "takes no option"),
        ({"max_rows_per_epoch": 0}, "max_rows_per_epoch=0"),
        ({"format": "protobuf", "schema": "zone INT"}, "is not one of raw, json, avro"),
        ({"format": "json"}, "kafka_source(format='json') has no schema"),
        ({"schema": "zone INT"}, "leaves values as they are"),
        ({"format": "json", "schema": "zone INT", "registry": "http://registry"}, "reads no schemas of a registry"),
        ({**AVRO, "registry": None}, "is no address of a schema registry"),
        ({**AVRO, "registry": "registry:8081"}, "is no address of a schema registry"),
        ({**AVRO, "registry": f"https://ada:{MARKER}@registry"}, "is no address of a schema registry"),
        ({**AVRO, "registry": f"https://registry?token={MARKER}"}, "is no address of a schema registry"),
        ({**AVRO, "registry_env": MARKER}, "names no environment variable"),
        ({**AVRO, "subjects": "fares-value"}, "is no list of subjects"),
        ({"options": {"kafka.sasl.jaas.config": MARKER}}, "looks as if it holds a secret"),
        ({"options": {"kafka.ssl.key.password": MARKER}}, "looks as if it holds a secret"),
        ({"options_env": {"kafka.sasl.jaas.config": MARKER}}, "names no environment variable"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        spec(**arguments)
    assert says in str(caught.value)
    assert MARKER not in str(caught.value)
    assert caught.value.place is not None
    assert "test_kafka_source.py" in caught.value.place


def test_secrets_are_named_not_kept() -> None:
    found = spec(options_env={"kafka.sasl.jaas.config": "FARES_JAAS"}, **AVRO, registry_env="REGISTRY")
    assert found.environment == {"kafka.sasl.jaas.config": "FARES_JAAS"}
    assert found.decoding is not None
    assert (found.decoding.registry, found.decoding.registry_env) == ("https://registry:8081", "REGISTRY")


def test_debezium_takes_records_that_are_not_decoded() -> None:
    with pytest.raises(DefinitionError, match="reads the records of 'orders' as JSON, and the source decodes them"):
        tm.debezium("orders", spec(format="json", schema="id INT"), schema="id INT", key=["id"], watermarks=ascending(timestamp="ts_ms"))


def test_splits_by_a_column_are_refused() -> None:
    by_key = ascending(timestamp="timestamp", split_by="key")
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "fares"}
    for of_kafka in (spec(), tm.streaming_format("Kafka", options=options)):
        with pytest.raises(DefinitionError, match=r"has split_by='key', and the splits of a Kafka source .*Fix: leave split_by out"):
            tm.source("fares", of_kafka, watermarks=by_key)
