"""Records of Debezium from a broker: keys, tombstones, and malformed records with their partition and offset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

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


def test_a_crash_a_rescale_and_a_rewind(
    topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("shop.items", 1)
    source = tm.kafka_source(servers=broker.address, topics="shop.items")
    items = tm.debezium("items", source, schema=SCHEMA, key=["id"], watermarks=TIMED)
    table = tmp_path / "items"
    job = tm.Job("items", outputs={"items": tm.delta(items, str(table), mode="upsert")}, store=str(tmp_path / "store"))

    def send(*records: tuple[str | None, str | None]) -> None:
        for key, value in records:
            topics.send("shop.items", 0, value, key=key)
        topics.flush()

    def content(parallelism: int) -> list[tuple[Any, Any]]:
        tm.run(job, spark=spark, handle_signals=False, parallelism=lambda: parallelism)
        return sorted((each["id"], each["status"]) for each in DeltaTable(str(table)).to_pyarrow_table().to_pylist())

    def crash(point: str) -> None:
        if point == "before-commit":
            raise RuntimeError("a crash before the commit")

    send(*(change("r", None, row(key)) for key in range(4)))
    before = content(1)
    assert before == [(key, "new") for key in range(4)]
    tm.savepoints_of(job).take("early")
    send(change("u", None, row(0, "paid")), change("d", {"id": 1, "status": None, "amount": None}, None), tombstone(1))
    with monkeypatch.context() as patch:
        patch.setattr("tidemark.spark.loop.driver.crash_point", crash)
        with pytest.raises(tm.TidemarkError, match="a crash before the commit"):
            content(1)
    after = [(0, "paid"), (2, "new"), (3, "new")]
    assert content(3) == after
    tm.rewind(job, "early")
    assert sorted((each["id"], each["status"]) for each in DeltaTable(str(table)).to_pyarrow_table().to_pylist()) == before
    assert content(2) == after
