"""Publishes an epoch's records in transactions, each with a marker of how many rows there are by then, so that each row appears once.

Starting a producer with the output's transactional id ends what an earlier one left open, and fences it. Only then the job's term is
confirmed and the marker is read: a driver that was taken over before cannot go further, one that is taken over after that is fenced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.crashpoints import crash_point
from tidemark.errors import SinkError
from tidemark.spark.sinks.kafka.client import Access, library
from tidemark.spark.sinks.kafka.connection import WAIT_S, bounded, committed_offset, end, require_topic, send
from tidemark.spark.sinks.kafka.marker import Marker, rows_done
from tidemark.spark.sinks.kafka.staged_records import Record

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

logger = logging.getLogger("tidemark")

ATTEMPTS: Final = 4

RENEWED_S: Final = 86_400.0
"""How old a marker may be when an epoch is staged, seconds."""

Records = Callable[[int, int], Iterator[Iterable[Record]]]
"""Returns the records of the rows from one number to another."""


class Transactions:
    """The transactions of one output.

    Args:
        access: to its topic.
        rows: the greatest number of rows of a transaction.
        confirm: raises FencedError when a newer driver has begun.
    """

    def __init__(self, access: Access, rows: int, confirm: Callable[[], None]) -> None:
        self._access = access
        self._rows = rows
        self._confirm = confirm
        self._producer: Producer | None = None
        self._reader: Consumer | None = None
        self.marker: Marker | None = None
        self._marked_at: float | None = None

    def open(self) -> None:
        """Start the producer and read the marker, unless that is done.

        Raises:
            SinkError: there is no such topic, the user is refused, or the group's offset is of another program.
            PublishError: the brokers cannot be reached.
            FencedError: a newer driver has begun.
        """
        if self._producer is not None:
            return
        kafka = library(self._access.output)
        try:
            self._start()
        except kafka.KafkaException as error:
            self._drop()
            raise self._access.error(error.args[0], committed=False) from None
        except BaseException:
            self._drop()
            raise

    def renew(self, lineage: str, epoch: int) -> None:
        """Write the marker of the newest epoch once more, unless this process did so within a day: brokers delete it a week later.

        Args:
            lineage: of the newest epoch, all rows of which are published.
            epoch: its number.

        Raises:
            SinkError: the user is refused.
            PublishError: it cannot be written now.
        """
        self.open()
        if self._marked_at is None or SYSTEM_CLOCK.monotonic() - self._marked_at >= RENEWED_S:
            self._repeated(lambda: self._send(iter(()), self.marker or Marker(lineage, epoch, 0, 0)))

    def publish(self, records: Records, rows: int, lineage: str, epoch: int) -> None:
        """Publish the rows of an epoch that the topic does not have yet.

        Args:
            records: returns those of some of the epoch's rows.
            rows: how many there are.
            lineage: the epoch's.
            epoch: its number.

        Raises:
            SinkError: the topic does not take them.
            PublishError: they cannot be published now; what was not committed is not seen by readers of committed records.
            FencedError: a newer driver has begun.
        """

        def send_rest() -> None:
            for start in range(rows_done(self.marker, lineage, epoch, rows), rows, self._rows):
                stop = min(start + self._rows, rows)
                self._send(records(start, stop), Marker(lineage, epoch, stop, rows))

        self._repeated(send_rest, epoch)

    def _repeated(self, send: Callable[[], None], epoch: int | None = None) -> None:
        """Run transactions, and again with another producer where that may help; each time it sends what the marker does not have."""
        kafka = library(self._access.output)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._producer is None:
                    self._start()
                send()
            except kafka.KafkaException as error:
                self._drop()
                failure = self._access.error(error.args[0], committed=epoch is not None, epoch=epoch)
                if attempt == ATTEMPTS or not failure.transient:
                    raise failure from None
                # Another driver's producer fences this one, which goes on only if the job is still its own.
                self._confirm()
                logger.info("output %r: the transaction is repeated: %s", self._access.output, failure.what)
                SYSTEM_CLOCK.sleep(attempt)
            except BaseException:
                self._drop()
                raise
            else:
                return

    def _start(self) -> None:
        kafka = library(self._access.output)
        self._reader = kafka.Consumer(self._access.consumer_settings())
        require_topic(self._reader, self._access)
        self._producer = kafka.Producer(self._access.producer_settings(transactional=True))
        self._producer.init_transactions(WAIT_S)
        self._confirm()
        found = committed_offset(self._reader, self._access)
        try:
            self.marker = Marker.parse(found.metadata if found.offset >= 0 else None)
        except ValueError as error:
            raise SinkError(
                f"the consumer group {self._access.identity!r} of output {self._access.output!r} was used by another program: {error}",
                fix="give the output another id_prefix=",
                uid=self._access.output,
            ) from None

    def _send(self, batches: Iterator[Iterable[Record]], marker: Marker) -> None:
        if self._producer is None or self._reader is None:
            raise RuntimeError("the producer is not started")
        kafka = library(self._access.output)
        producer = self._producer
        producer.begin_transaction()
        crash_point("transaction-begun")
        for batch in batches:
            send(producer, self._access.topic, batch)
        producer.flush()
        crash_point("records-sent")
        offset = kafka.TopicPartition(self._access.topic, 0, marker.epoch, marker.text)
        group = self._reader.consumer_group_metadata()
        bounded(self._access.output, lambda: producer.send_offsets_to_transaction([offset], group, WAIT_S))
        crash_point("marker-sent")
        bounded(self._access.output, lambda: producer.commit_transaction(WAIT_S))
        self.marker, self._marked_at = marker, SYSTEM_CLOCK.monotonic()
        crash_point("transaction-committed")

    def _drop(self) -> None:
        """End the producer: the next one ends its transaction, and the marker shows whether it was committed."""
        end(self._producer, self._reader)
        self._producer = self._reader = None
