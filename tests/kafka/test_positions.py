"""Where a source begins and what it finds later: starts, patterns, transactions, topics that are made again, and consumer lag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.kafka.broker import NEEDS_JARS, Broker, Topics
from tests.kafka.fares import MINUTE, START, millis
from tests.kafka.readers import TIMED, Reader, fill, make_again, places, require_failure, without_ids
from tests.seeds import only_long
from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.loop.driver import JobDriver
from tidemark.spark.sources.backlog import by_metrics
from tidemark.spark.sources.planning.offset_planner import OffsetPlanner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.state.status.driver_load import Backlog

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]


def test_starts(topics: Topics, read: Callable[..., Reader]) -> None:
    topics.create("starts", 2, {"message.timestamp.type": "CreateTime"})
    for minute in range(4):
        topics.send("starts", 0, f"v{minute}", key="k", at=START + minute * MINUTE, headers={"n": str(minute)})
    topics.send("starts", 1, None, at=START)
    topics.flush()
    first = read("earliest", topics="starts", headers=True)
    assert first.run() == [*places("starts", 0, 0, 1, 2, 3), *places("starts", 1, 0)]
    row = first.found["starts", 0, 2]
    assert (row["key"], row["value"], row["timestampType"]) == (b"k", b"v2", 0)
    assert millis(row["timestamp"]) == START + 2 * MINUTE
    assert row["headers"] == [{"key": "n", "value": b"2"}]
    assert first.found["starts", 1, 0]["value"] is None
    since = datetime.fromtimestamp((START + MINUTE + 1) / 1000, UTC).isoformat()
    assert read("timestamp", topics="starts", from_timestamp=since).run() == places("starts", 0, 2, 3)
    assert read("offsets", topics="starts", from_offsets={"starts": {0: 3, 1: -2}}).run() == [("starts", 0, 3), ("starts", 1, 0)]
    assert read("partitions", partitions={"starts": [1]}).run() == places("starts", 1, 0)
    latest = read("latest", topics="starts", start="latest")
    assert latest.run() == []
    topics.send("starts", 1, "new", at=START)
    topics.flush()
    # The job's first epoch, which has no rows, has recorded where it begins.
    assert latest.run() == places("starts", 1, 1)


def test_a_pattern_finds_topics_and_partitions(topics: Topics, read: Callable[..., Reader]) -> None:
    topics.create("pattern.east", 1)
    topics.create("pattern.other-kind", 1)
    for name in ("pattern.east", "pattern.other-kind"):
        topics.send(name, 0, "x", at=START)
    topics.flush()
    reader = read(pattern=r"pattern\.(east|west)")
    assert reader.run() == places("pattern.east", 0, 0)
    topics.create("pattern.west", 2)
    topics.grow("pattern.east", 2)
    for name in ("pattern.east", "pattern.west"):
        topics.send(name, 1, "x", at=START)
    topics.flush()
    assert reader.run() == [*places("pattern.east", 1, 0), *places("pattern.west", 1, 0)]


def test_only_committed_transactions_are_read(topics: Topics, read: Callable[..., Reader]) -> None:
    topics.create("transacted", 2)
    committed, everything = read("committed", topics="transacted"), read("all", topics="transacted", isolation="read_uncommitted")
    with topics.transaction("one") as one:
        one.send("transacted", 0, "a", "b")
        one.commit()
    with topics.transaction("two") as two:
        two.send("transacted", 0, "c", "d")
        two.send("transacted", 1, "e")
        two.abort()
    # Each transaction ends with a record of the broker's, which has an offset, and no row.
    assert committed.run() == places("transacted", 0, 0, 1)
    assert everything.run() == [*places("transacted", 0, 0, 1, 3, 4), *places("transacted", 1, 0)]
    # Only an aborted transaction is new in partition 1, and an open one holds partition 0 back.
    with topics.transaction("three") as three:
        three.send("transacted", 1, "f")
        three.abort()
    with topics.transaction("four") as four:
        four.send("transacted", 0, "g")
        topics.send("transacted", 0, "h")
        topics.flush()
        assert committed.run() == []
        four.commit()
    assert committed.run() == places("transacted", 0, 6, 7)
    assert committed.run() == []


@pytest.mark.parametrize("has_ids", [True, False], ids=["with ids", "without ids"])
def test_a_topic_that_is_made_again_with_fewer_records(
    topics: Topics, read: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch, *, has_ids: bool
) -> None:
    name = f"remade-{has_ids}"
    if not has_ids:
        without_ids(monkeypatch)
    topics.create(name, 3)
    fill(topics, name, "old", 3, 2, 1)
    strict = read(topics=name)
    assert len(strict.run()) == 6
    # The same job, told to do otherwise.
    restarted, skipping = read(topics=name, on_remade="restart"), read(topics=name, on_loss="skip")
    make_again(topics, name, 1, 0)
    for reader in (strict, skipping):
        require_failure(reader, f"topic {name!r} of source 'records' was deleted and made again" if has_ids else f"{name}-0 go from 3 to 1")
    assert restarted.run() == places(name, 0, 0)
    assert restarted.found[name, 0, 0]["value"] == b"new"
    fill(topics, name, "newer", 1, 1)
    assert restarted.run() == [*places(name, 0, 1), *places(name, 1, 0)]


@pytest.mark.parametrize("more", [pytest.param(0, id="as many"), pytest.param(4, id="more", marks=only_long)])
def test_a_topic_that_is_made_again_with_as_many_records_or_more(topics: Topics, read: Callable[..., Reader], more: int) -> None:
    name = f"refilled-{more}"
    topics.create(name, 2)
    fill(topics, name, "old", 3, 2)
    strict = read("strict", topics=name)
    restarted = read("restarted", topics=name, on_remade="restart", max_rows_per_epoch=4)
    for reader in (strict, restarted):
        assert len(reader.run()) == 5
        assert reader.run() == []
    make_again(topics, name, 3 + more, 2)
    require_failure(strict, f"topic {name!r} of source 'records' was deleted and made again")
    epochs: list[int] = []
    assert restarted.run(on_epoch=lambda epoch: epochs.append(epoch.rows_in)) == [
        *places(name, 0, *range(3 + more)),
        *places(name, 1, 0, 1),
    ]
    assert {row["value"] for place, row in restarted.found.items()} == {b"new"}
    assert max(epochs) <= 4, "an epoch of a topic that was made again is bounded, too"
    fill(topics, name, "newer", 1, 0)
    assert restarted.run() == places(name, 0, 3 + more)


def test_a_topic_that_is_made_again_before_it_had_records(topics: Topics, read: Callable[..., Reader]) -> None:
    topics.create("unfilled", 1)
    reader = read(topics="unfilled", start="latest")
    assert reader.run() == []
    make_again(topics, "unfilled", 2)
    assert reader.run() == places("unfilled", 0, 0, 1)
    make_again(topics, "unfilled", 2)
    require_failure(reader, "topic 'unfilled'")


def test_a_topic_that_is_made_again_while_the_job_runs(topics: Topics, read: Callable[..., Reader]) -> None:
    topics.create("renewed", 2)
    fill(topics, "renewed", "old", 3, 1)
    epochs: list[object] = []

    def renew(progress: object) -> None:
        epochs.append(progress)
        make_again(topics, "renewed", 3, 1)

    require_failure(read(topics="renewed"), "topic 'renewed'", trigger="100 ms", on_epoch=renew)
    assert len(epochs) == 1


def test_positions_without_ids_go_on_and_ids_are_compared_across_loops(
    topics: Topics, read: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("moving", 1)
    fill(topics, "moving", "old", 2)
    job, other = read(topics="moving"), read("other", topics="moving")
    with monkeypatch.context() as patch:
        without_ids(patch)
        assert job.run() == places("moving", 0, 0, 1)
        assert other.run() == places("moving", 0, 0, 1)
    # What an earlier build has read goes on, in either loop; from then on ids are known.
    fill(topics, "moving", "old", 1)
    assert job.run() == places("moving", 0, 2)
    with monkeypatch.context() as patch:
        patch.setattr(JobDriver, "plans_epochs", False)
        assert other.run() == places("moving", 0, 2)
        fill(topics, "moving", "old", 1)
        assert job.run() == places("moving", 0, 3)
    assert other.run() == places("moving", 0, 3)
    make_again(topics, "moving", 5)
    for reader in (job, other):
        with monkeypatch.context() as patch:
            patch.setattr(JobDriver, "plans_epochs", False)
            require_failure(reader, "topic 'moving'")
        require_failure(reader, "topic 'moving'")


def test_a_start_is_of_no_use_after_the_first_epoch(
    topics: Topics, read: Callable[..., Reader], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("resumed", 1)
    for _ in range(3):
        topics.send("resumed", 0, "x")
    topics.flush()
    beyond = read("beyond", topics="resumed", from_offsets={"resumed": {0: 9}}, on_remade="restart")
    with pytest.raises(SourceError, match="to begin behind the end of a partition: the offsets of resumed-0 go from 9 to 3") as caught:
        beyond.run()
    assert caught.value.uid == "records"
    # Jobs of Spark's options and of arguments share positions.
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": "resumed", "startingOffsets": '{"resumed": {"0": 1}}'}
    job = replace(beyond, spec=tm.streaming_format("kafka", options=options))
    assert job.run() == places("resumed", 0, 1, 2)
    topics.grow("resumed", 2)
    topics.send("resumed", 1, "x")
    topics.flush()
    # Spark wants a start of each partition, and partition 1 has none.
    job.spec = tm.kafka_source(servers=broker.address, topics="resumed", from_offsets={"resumed": {0: 1}})
    assert job.run() == places("resumed", 1, 0)
    topics.send("resumed", 0, "x")
    topics.flush()
    monkeypatch.setattr(JobDriver, "plans_epochs", False)
    assert job.run() == places("resumed", 0, 3)


def test_consumer_lag_of_each_partition(topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    topics.create("lagging", 3)
    spec = tm.kafka_source(servers=broker.address, topics="lagging", max_rows_per_epoch=3)
    node = tm.source("lagging", spec, watermarks=TIMED).node
    assert isinstance(node, SourceNode)
    planner = OffsetPlanner(spark, spec, None, f"file://{tmp_path}/offsets")

    def lag() -> Backlog | None:
        planner.look()
        return by_metrics(planner.metrics())

    try:
        for partition, count in ((0, 4), (2, 2)):
            for _ in range(count):
                topics.send("lagging", partition, "x")
        topics.flush()
        before = lag()
        assert before is not None
        assert (before.rows, before.splits) == (6, {"lagging-0": 4, "lagging-1": 0, "lagging-2": 2})
        taken = planner.take(node, None)
        assert taken is not None
        after = lag()
        assert after is not None
        assert after.rows == sum(after.splits.values()) == 6 - (taken.rows or 0)
        while planner.take(node, None) is not None:
            pass
        assert lag() is not None
        assert set((lag() or before).splits.values()) == {0}
    finally:
        planner.close()
