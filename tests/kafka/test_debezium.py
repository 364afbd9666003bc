"""Records of Debezium from a broker: keys, tombstones, and malformed records with their partition and offset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, contents_of
from tests.debezium.records import SCHEMA, TIMED, change, row, tombstone
from tests.kafka.broker import NEEDS_JARS, Broker, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]

MALFORMED = tm.OutputTag("malformed")


def test_changes_from_a_topic(topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    topics.create("shop.orders", 2)
    first = [change("r", None, row(key)) for key in range(4)]
    then = [
        change("u", None, row(0, "paid")),
        change("d", {"id": 1, "status": None, "amount": None}, None),
        tombstone(1),
        tombstone(2),
        change("u", None, row(3, "sent"), wrapped=True),
        change("r", None, row(0, "paid")),
    ]

    def send(records: list[tuple[str | None, str | None]]) -> None:
        for key, value in records:
            topics.send("shop.orders", int(str(key)[-2]) % 2, value, key=key)
        topics.flush()

    options = {"kafka.bootstrap.servers": broker.address, "subscribe": "shop.orders", "startingOffsets": "earliest"}
    orders = tm.debezium(
        "orders",
        tm.streaming_format("kafka", options=options),
        schema=SCHEMA,
        key=["id"],
        watermarks=TIMED,
        malformed_to=MALFORMED,
        metadata={"part": "partition"},
    )
    streams = {"orders": orders, "malformed": orders.side_output(MALFORMED)}
    histories = Histories(spark, tmp_path)
    send(first)
    history = histories.run(streams)["orders"]
    # The key of a record with a schema around it ends otherwise.
    send([each for each in then if "schema" not in str(each[0])])
    topics.send("shop.orders", 1, then[4][1], key=then[4][0])
    topics.send("shop.orders", 1, b"\xff\xfe", key="{}")
    topics.flush()
    found = histories.run(streams)
    last = contents_of([*history, *found["orders"]], ["id"])[-1]
    assert [(each["id"], each["status"], each["part"]) for each in last] == [(0, "paid", 0), (3, "sent", 1)]
    ((malformed,),) = found["malformed"]
    assert malformed["split"] == "shop.orders-1"
    assert malformed["reason"].endswith("(partition 1, offset 5)")
