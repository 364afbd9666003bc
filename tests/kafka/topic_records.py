"""Topics of the tests' broker through librdkafka, without Spark: made, and read as consumers do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.control.drivers import until

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka.admin import AdminClient

kafka = pytest.importorskip("confluent_kafka")

_SECONDS: Final = 30.0


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


def read(address: str, topic: str, isolation: str = "read_committed") -> list[Read]:
    """Return all records of a topic that a consumer can see now, partition by partition."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "tests",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = kafka.Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        consumer.assign([kafka.TopicPartition(topic, number, 0) for number in partitions])
        found: list[Read] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(_SECONDS)
            assert message is not None, f"{topic} could not be read to its end"
            error = message.error()
            if error is None:
                found.append(_read(message))
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition())
            else:
                raise kafka.KafkaException(error)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record.partition)


def _read(message: Message) -> Read:
    key, value = message.key(), message.value()
    headers = tuple((str(header[0]), _bytes(header[1])) for header in message.headers() or ())
    return Read(message.partition() or 0, _text(key), _text(value), headers)


def _text(data: str | bytes | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
