"""What both ways to publish to a topic have in common: finding it, handing records to a producer, ending clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.sinks.kafka.client import Access, library
from tidemark.spark.sinks.kafka.staged_records import Record

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

WAIT_S: Final = 30.0
"""How long a request to the brokers may take, seconds."""

FIND_S: Final = 15.0
"""How long a topic is looked for, seconds."""

COORDINATED_S: Final = 15.0
"""How long a group's coordinator may be unknown, seconds: it is chosen when a group is first used, and when its broker restarts."""

_PAUSE_S: Final = 0.2
_FULL_S: Final = 0.1
_GRACE_S: Final = 5.0


def bounded(output: str, call: Callable[[], object]) -> None:
    """Run a request of the client that may never return: where a broker restarts, it can wait for a coordinator beyond its own timeout.

    A request that is still under way then is left to a thread that ends with the process; its producer must not be used any more.

    Raises:
        KafkaException: the request failed, or took too long.
    """
    kafka = library(output)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            failed.append(error)

    thread = threading.Thread(target=run, name=f"kafka {output}", daemon=True)
    thread.start()
    thread.join(WAIT_S + _GRACE_S)
    if thread.is_alive():
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))  # noqa: SLF001 - the client's own name
    if failed:
        raise failed[0]


def require_topic(reader: Consumer, access: Access) -> None:
    """Make sure that a topic exists; a consumer asks for it, since a producer would create it where brokers allow that.

    Raises:
        KafkaException: it does not, or no broker answers.
    """
    topic = reader.list_topics(access.topic, timeout=FIND_S).topics[access.topic]
    if topic.error is not None:
        raise library(access.output).KafkaException(topic.error)


def committed_offset(reader: Consumer, access: Access) -> TopicPartition:
    """Return the group's committed offset of the topic's first partition.

    Raises:
        KafkaException: it cannot be read.
    """
    kafka = library(access.output)
    codes = kafka.KafkaError
    unknown = {codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE, codes.COORDINATOR_LOAD_IN_PROGRESS}
    until = SYSTEM_CLOCK.monotonic() + COORDINATED_S
    while True:
        try:
            (found,) = reader.committed([kafka.TopicPartition(access.topic, 0)], timeout=WAIT_S)
            if found.error is None:
                return found
            error = found.error
        except kafka.KafkaException as failure:
            error = failure.args[0]
        if error.code() not in unknown or SYSTEM_CLOCK.monotonic() > until:
            raise kafka.KafkaException(error)
        SYSTEM_CLOCK.sleep(_PAUSE_S)


def send(producer: Producer, topic: str, batch: Iterable[Record], *, failed: list[KafkaError] | None = None) -> None:
    """Hand records to a producer, and wait while its queue is full.

    Args:
        producer: of the client.
        topic: its name.
        batch: the records.
        failed: gets the errors of records that were not acknowledged; of a transaction, its commit raises instead.
    """
    kept = (lambda error, _: failed.append(error)) if failed is not None else None
    produce = producer.produce
    for key, value, headers in batch:
        while True:
            try:
                produce(topic, value, key, headers=headers, on_delivery=kept)
                break
            except BufferError:
                producer.poll(_FULL_S)
    producer.poll(0)


def end(producer: Producer | None, reader: Consumer | None) -> None:
    """End clients without waiting for what is not sent; what they have to report is noted before."""
    if producer is not None:
        with suppress(Exception):
            producer.purge()
            producer.poll(0)
    if reader is not None:
        with suppress(Exception):
            reader.poll(0)
        with suppress(Exception):
            reader.close()
