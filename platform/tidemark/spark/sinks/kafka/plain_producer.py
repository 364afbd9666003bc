"""Publishes an epoch's records without transactions: at least once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tidemark.crashpoints import crash_point
from tidemark.spark.sinks.kafka.client import Access, library
from tidemark.spark.sinks.kafka.connection import end, require_topic, send
from tidemark.spark.sinks.kafka.staged_records import Record

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer


class PlainProducer:
    """Publishes an epoch's records without transactions: at least once.

    Args:
        access: to the topic.
        confirm: raises FencedError when a newer driver has begun.
    """

    def __init__(self, access: Access, confirm: Callable[[], None]) -> None:
        self._access = access
        self._confirm = confirm
        self._producer: Producer | None = None
        self._failed: list[KafkaError] = []

    def open(self) -> None:
        """Start the producer, unless that is done.

        Raises:
            SinkError: there is no such topic, or the user is refused.
            PublishError: the brokers cannot be reached.
        """
        if self._producer is not None:
            return
        kafka = library(self._access.output)
        try:
            reader = kafka.Consumer(self._access.consumer_settings())
            try:
                require_topic(reader, self._access)
            finally:
                end(None, reader)
            self._producer = kafka.Producer(self._access.producer_settings(transactional=False))
        except kafka.KafkaException as error:
            raise self._access.error(error.args[0], committed=False) from None

    def publish(self, batches: Iterator[Iterable[Record]], epoch: int) -> None:
        """Publish an epoch's records, and wait until all are acknowledged.

        Raises:
            SinkError: the topic does not take them.
            PublishError: some were not acknowledged; the next attempt publishes all again.
            FencedError: a newer driver has begun.
        """
        self.open()
        kafka = library(self._access.output)
        producer = self._producer
        if producer is None:
            raise RuntimeError("the producer is not started")
        self._failed.clear()
        try:
            for batch in batches:
                # No transaction fences a driver that was taken over.
                self._confirm()
                send(producer, self._access.topic, batch, failed=self._failed)
            crash_point("records-sent")
            producer.flush()
        except kafka.KafkaException as error:
            self._failed.append(error.args[0])
        except BaseException:
            self._end()
            raise
        if self._failed:
            self._end()
            raise self._access.error(self._failed[0], committed=True, epoch=epoch)

    def _end(self) -> None:
        end(self._producer, None)
        self._producer = None
