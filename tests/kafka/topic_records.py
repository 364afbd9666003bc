"""Topics of the tests' broker through librdkafka, without Spark: made, and read as consumers do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import pytest

from tests.control.drivers import until

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka.admin import AdminClient

kafka = pytest.importorskip("confluent_kafka")
administration = pytest.importorskip("confluent_kafka.admin")

_SECONDS: Final = 30.0

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True)
class Read:
    """A record as a consumer sees it."""

    partition: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def create_topic(address: str, name: str, *, partitions: int = 3, settings: Mapping[str, str] | None = None) -> str:
    """Create a topic and return its name, once its partitions have leaders."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
    admin.create_topics([topic])[name].result(_SECONDS)
    until(lambda: _is_led(admin, name, partitions), f"leaders of {name}")
    return name


def _is_led(admin: AdminClient, name: str, partitions: int) -> bool:
    found = admin.list_topics(name, timeout=_SECONDS).topics[name]
    return found.error is None and len(found.partitions) == partitions and all(each.leader >= 0 for each in found.partitions.values())


def delete_group(address: str, group: str) -> None:
    """Delete a consumer group with its offsets, as their expiry does."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_consumer_groups([group])[group].result(_SECONDS)


def read(address: str, topic: str, isolation: Isolation = "read_committed", *, has_open_transaction: bool = False) -> list[Read]:
    """Return all records of a topic that a consumer can see now, partition by partition.

    Args:
        address: of the broker.
        topic: its name.
        isolation: of the consumer.
        has_open_transaction: whether a transaction was left open, whose records and those after it are not seen. Otherwise a consumer of
            committed records waits for the markers of all transactions: the broker writes them after it has answered a commit.
    """
    ends = _ends(address, topic, isolation)
    if isolation == "read_committed" and not has_open_transaction:
        written = _ends(address, topic, "read_uncommitted")
        until(lambda: _ends(address, topic, isolation) == written, f"the end of all transactions of {topic}", seconds=_SECONDS)
        ends = written
    settings = {
        "bootstrap.servers": address,
        "group.id": "tests",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }
    consumer = kafka.Consumer(settings)
    try:
        consumer.assign([kafka.TopicPartition(topic, number, 0) for number in ends])
        found: list[Read] = []
        left = {number for number, end in ends.items() if end > 0}
        while left:
            message = consumer.poll(_SECONDS)
            assert message is not None, f"{topic} could not be read to its end"
            error = message.error()
            if error is None:
                found.append(_read(message))
            elif error.name() != "_PARTITION_EOF":
                raise kafka.KafkaException(error)
            elif (message.offset() or 0) >= ends[message.partition()]:
                # Behind markers and aborted records, too, which no message has.
                left.discard(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record.partition)


def _ends(address: str, topic: str, isolation: Isolation) -> dict[int, int]:
    """Return the offset behind the last record of each partition that a consumer can see now."""
    # Below the level of warnings: a client that is gone says what it leaves.
    admin = administration.AdminClient({"bootstrap.servers": address, "log_level": 4})
    places = [kafka.TopicPartition(topic, number) for number in admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions]
    level = kafka.IsolationLevel.READ_COMMITTED if isolation == "read_committed" else kafka.IsolationLevel.READ_UNCOMMITTED
    asked = admin.list_offsets(dict.fromkeys(places, administration.OffsetSpec.latest()), isolation_level=level)
    return {place.partition: int(future.result(_SECONDS).offset) for place, future in asked.items()}


def _read(message: Message) -> Read:
    key, value = message.key(), message.value()
    headers = tuple((str(header[0]), _bytes(header[1])) for header in message.headers() or ())
    return Read(message.partition() or 0, _text(key), _text(value), headers)


def _text(data: str | bytes | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
