"""What is made of the rows of Kafka's records, and of its connector's errors; a frame stands in for the records, no broker is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import tidemark as tm
from tests.kafka.broker import jars
from tidemark.errors import EngineError, SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.columns.expressions import POSITION, SPLIT
from tidemark.spark.loop.error_translation import translate
from tidemark.spark.sources.intake import SourceRows, prepare_batch
from tidemark.spark.sources.sources import open_source
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOSS = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: [KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED] Some data may have been lost "
    "because they are not available in Kafka any more;\neither the data was aged out.\nReason:\n"
    "Partition rides-0 offset was changed from 10 to 3.\nThis could be either\nJVM stacktrace: password=hunter2"
)
GONE = "[STREAM_FAILED] Query terminated: UnknownTopicOrPartitionException: This server does not host this topic-partition."


def kafka(name: str, topics: str, format: str = "kafka", option: str = "subscribe") -> SourceNode:
    spec = tm.streaming_format(format, options={option: topics})
    node = tm.source(name, spec, watermarks=tm.ascending(timestamp="timestamp")).node
    assert isinstance(node, SourceNode)
    return node


@pytest.mark.skipif(jars() is not None, reason="the session of the tests has the connector")
def test_a_session_without_the_connector_is_told_which_jars_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"Fix: .*spark\.jars\.packages=org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.\d.*spark\.jars"):
        open_source(spark, kafka("fares", "fares"), JobStore.open(str(tmp_path)), ordered=False, read=0)


class Reader:
    """As much of a session as a source's reader needs, with a frame for what it loads."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def __getattr__(self, name: str) -> object:
        return self if name == "readStream" else lambda *_: self._frame if name == "load" else self

    def options(self, **_: str) -> Reader:
        return self


@pytest.mark.spark
@pytest.mark.parametrize("format", ["kafka", "Kafka", "KAFKA"])
def test_partitions_are_splits_and_positions_however_the_format_is_written(format: str, spark: SparkSession, tmp_path: Path) -> None:
    records = spark.sql(
        "SELECT 'rides' AS topic, p AS partition, 5L AS offset, timestamp_millis(0) AS timestamp FROM VALUES (10), (2) AS t(p)"
    )
    node, reader = kafka("rides", "rides", format), cast("SparkSession", Reader(records))
    frame = open_source(reader, node, JobStore.open(str(tmp_path)), ordered=True, read=0)
    rows = prepare_batch(node, SourceRows(lambda: frame), 0, ordered=True, strict=False).rows
    # By number: in the order of their text, partition 10 would come before 2.
    assert [row[SPLIT] for row in rows.orderBy(POSITION).collect()] == ["rides-2", "rides-10"]


def test_records_that_are_gone() -> None:
    rides = kafka("rides_in", "rides")
    found = translate(RuntimeError(LOSS), job="j", epoch=3, state="/x", nodes=[rides])
    assert isinstance(found, SourceError)
    assert (found.job, found.uid, found.epoch, found.place, found.transient) == ("j", "rides_in", 3, rides.place, False)
    assert found.what.endswith("Partition rides-0 offset was changed from 10 to 3")
    assert "failOnDataLoss" in found.fix
    assert "hunter2" not in str(found)


def test_the_source_that_is_meant() -> None:
    zones, alike = kafka("zones_in", "zones"), kafka("alike_in", "my-rides,ride")
    pattern = kafka("more", "rid.*", option="subscribePattern")
    cases = [
        ([zones, alike, kafka("rides_in", "trips, rides", option="Subscribe")], "rides_in"),
        ([zones, kafka("rides_in", '{"rides": [0, 1], "trips": [0]}', option="assign")], "rides_in"),
        ([zones, pattern], None),
        ([pattern], "more"),
    ]
    assert [translate(RuntimeError(LOSS), job="j", epoch=3, state="/x", nodes=found).uid for found, _ in cases] == [uid for _, uid in cases]


def test_a_topic_that_is_gone() -> None:
    found = translate(RuntimeError(GONE), job="j", epoch=0, state="/x", nodes=[kafka("rides_in", "rides")])
    assert isinstance(found, SourceError)
    assert found.uid == "rides_in"
    assert found.what == "Kafka has no such topic or partition: rides"


NO_CLIENT = "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer\nCaused by: "
ERRORS = "org.apache.kafka.common.errors."


@pytest.mark.parametrize(
    "text",
    [
        f"{NO_CLIENT}org.apache.kafka.common.config.ConfigException: Unknown protocol SASL",
        f"{NO_CLIENT}java.nio.file.NoSuchFileException: /keys/store.jks",
        f"{ERRORS}SaslAuthenticationException: Authentication failed during authentication due to invalid credentials",
        f"{ERRORS}TopicAuthorizationException: Not authorized to access topics: [rides]",
    ],
)
def test_a_login_that_is_refused_is_not_tried_again(text: str) -> None:
    found = translate(RuntimeError(text), job="j", epoch=0, state="/x", nodes=[kafka("rides_in", "rides")])
    assert isinstance(found, SourceError)
    assert (found.uid, found.transient) == ("rides_in", False)


@pytest.mark.parametrize(
    "text",
    [
        f"{NO_CLIENT}org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
        f"{NO_CLIENT}java.io.IOException: Too many open files",
        # The server that gives tokens for OAUTHBEARER, and that of Kerberos.
        f"{NO_CLIENT}javax.security.auth.login.LoginException\nCaused by: java.net.ConnectException: Connection refused",
        f"{NO_CLIENT}javax.security.auth.login.LoginException: Cannot locate KDC",
        f"{ERRORS}SaslAuthenticationException: An error: (GSS initiate failed [GSSException: (Mechanism level: Receive timed out)])",
        f"{ERRORS}AuthorizerNotReadyException",
        f"{ERRORS}TimeoutException: Timed out waiting for a node assignment",
    ],
)
def test_what_may_pass_is_tried_again(text: str) -> None:
    assert translate(RuntimeError(text), job="j", epoch=0, state="/x", nodes=[kafka("rides_in", "rides")]).transient


def test_what_other_sources_say_is_not_kafkas() -> None:
    assert isinstance(translate(RuntimeError(GONE), job="j", epoch=0, state="/x"), EngineError)
    assert isinstance(translate(RuntimeError("lost"), job="j", epoch=0, state="/x", nodes=[kafka("a", "a")]), EngineError)
