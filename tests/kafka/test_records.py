"""What stands in records beside JSON: nothing at all, headers, Kafka's own time."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.kafka.broker import NEEDS_JARS, Broker, Topics
from tests.kafka.fares import MINUTE, START, FareJob, Fares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]

TOMBSTONES = tm.OutputTag("tombstones")
MALFORMED = tm.OutputTag("malformed")


def rows(name: str) -> list[dict[str, object]]:
    table = tm.memory_table(name)
    tm.clear_memory(name)
    return [] if table is None else table.to_pylist()


def test_malformed_records_can_be_read_again(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    fares.send_raw(1, '{"at": "soon", "zone": 7', None)
    fares.send_raw(2, b"\xff\xfe")
    job.run(spark)
    found = job.rows("malformed")
    assert {row["split"] for row in found} == {f"{fares.topic}-1", f"{fares.topic}-2"}
    assert all(re.fullmatch(r"event time '.*' (is null|cannot be read as TIMESTAMP: '.*')", str(row["reason"])) for row in found)
    texts = {str(row["raw"]) for row in found}
    assert '{"at": "soon", "zone": 7' in texts
    # What has no value, or none that is text, is JSON of the whole record, with the value in base64.
    values = [json.loads(text)["value"] for text in texts - {'{"at": "soon", "zone": 7'}]
    assert {None if value is None else base64.b64decode(value) for value in values} == {None, b"\xff\xfe"}


def test_tombstones_with_the_time_of_the_record(topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    topics.create("profiles", 1)
    for key, value, minute in (("ada", "1", 0), ("bob", "2", 1), ("ada", None, 2), ("bob", "3", 30)):
        topics.send("profiles", 0, value, key=key, at=START + minute * MINUTE)
    topics.flush()
    spec = tm.streaming_format(
        "kafka", options={"kafka.bootstrap.servers": broker.address, "subscribe": "profiles", "startingOffsets": "earliest"}
    )
    profiles = tm.source("profiles", spec, watermarks=tm.ascending(timestamp="timestamp"))
    alive = profiles.filter("value IS NOT NULL", rejects_to=TOMBSTONES)
    counted = alive.key_by(who="CAST(key AS STRING)").window(tm.tumbling("10 minutes")).aggregate(n=tm.count()).uid("changes")
    outputs = {
        "changes": tm.memory(counted, "changes"),
        "gone": tm.memory(alive.side_output(TOMBSTONES), "gone"),
    }
    tm.run(tm.Job("profiles", outputs=outputs, store=str(tmp_path)), spark=spark, handle_signals=False)
    assert sorted((row["who"], row["n"]) for row in rows("changes")) == [("ada", 1), ("bob", 1)]
    assert [row["key"] for row in rows("gone")] == [b"ada"]


def test_time_in_a_header(topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    topics.create("stamped", 1)
    for minute in (0, 3, 30):
        topics.send("stamped", 0, "x", headers={"kind": "ride", "at": str(START + minute * MINUTE)})
    topics.send("stamped", 0, "x", headers={"kind": "ride"})
    topics.send("stamped", 0, "x")
    topics.flush()
    options = {
        "kafka.bootstrap.servers": broker.address,
        "subscribe": "stamped",
        "startingOffsets": "earliest",
        "includeheaders": "true",
    }
    at = "try_cast(CAST(try_element_at(filter(headers, h -> h.key = 'at'), 1).value AS STRING) AS BIGINT)"
    stamped = tm.source(
        "stamped", tm.streaming_format("kafka", options=options), watermarks=tm.ascending(timestamp=at), malformed_to=MALFORMED
    )
    counted = stamped.window_all(tm.tumbling("10 minutes")).aggregate(n=tm.count()).uid("stamps")
    outputs = {"stamps": tm.memory(counted, "stamps"), "malformed": tm.memory(stamped.side_output(MALFORMED), "unstamped")}
    tm.run(tm.Job("stamped", outputs=outputs, store=str(tmp_path)), spark=spark, handle_signals=False)
    assert [row["n"] for row in rows("stamps")] == [2]
    assert len(rows("unstamped")) == 2


def test_several_topics_and_several_sources(topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    for name, minutes in (("east", (0, 30)), ("west", (5,)), ("north", (1, 31))):
        topics.create(name, 1)
        for minute in minutes:
            topics.send(name, 0, name, at=START + minute * MINUTE)
    topics.flush()

    def source(name: str, subscribe: str) -> tm.Stream:
        options = {"kafka.bootstrap.servers": broker.address, "subscribe": subscribe, "startingOffsets": "earliest"}
        return tm.source(name, tm.streaming_format("kafka", options=options), watermarks=tm.ascending(timestamp="timestamp"))

    both = source("sides", "east,west").union(source("poles", "north"))
    counted = both.key_by("topic").window(tm.tumbling("10 minutes")).aggregate(n=tm.count()).uid("counts")
    job = tm.Job("directions", outputs={"counts": tm.memory(counted, "counts")}, store=str(tmp_path))
    head = tm.run(job, spark=spark, handle_signals=False).head
    assert head is not None
    assert set(head.sources["sides"].splits) == {"east-0", "west-0"}
    assert head.sources["sides"].held_by == "west-0"
    assert rows("counts") == []
    topics.send("west", 0, "west", at=START + 40 * MINUTE)
    topics.flush()
    tm.run(job, spark=spark, handle_signals=False)
    assert sorted((row["topic"], row["n"]) for row in rows("counts")) == [("east", 1), ("north", 1), ("west", 1)]
