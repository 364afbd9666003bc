"""How fast staged rows are published to a topic: in transactions with markers, without, and by the bare client.

    python -m benchmarks.operation.kafka_sink --servers 127.0.0.1:9092 --topic bench --rows 2000000

The topic has to exist. Rows are 100 bytes of JSON with a key; staging, which Spark does, is not part of the figures.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import uuid
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.sinks.kafka.client import Access
from tidemark.spark.sinks.kafka.plain_producer import PlainProducer
from tidemark.spark.sinks.kafka.staged_records import StagedRecords
from tidemark.spark.sinks.kafka.transactions import Transactions
from tidemark.state.log.records import StagedFile
from tidemark.state.store.store import JobStore

FILE_ROWS = 250_000
EXACTLY_ONCE = "exactly once"
AT_LEAST_ONCE = "at least once"
BARE = "the client alone, from memory"
FEW = "an epoch of 10 rows"


def stage(store: JobStore, rows: int) -> list[StagedFile]:
    """Write rows as the engine stages them."""
    files = []
    for first in range(0, rows, FILE_ROWS):
        numbers = range(first, min(first + FILE_ROWS, rows))
        keys = [f'{{"zone":{n % 1000}}}'.encode() for n in numbers]
        values = [f'{{"zone":{n % 1000},"n":{n},"note":"{"x" * 70}"}}'.encode() for n in numbers]
        buffer = io.BytesIO()
        pq.write_table(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}), buffer)
        path = f"staged/part-{first:09d}.parquet"
        store.put(path, buffer.getvalue())
        files.append(StagedFile(path, len(numbers), len(buffer.getvalue())))
    return files


def seconds(run: Callable[[], object]) -> float:
    """Return how long something takes."""
    begun = SYSTEM_CLOCK.monotonic()
    run()
    return SYSTEM_CLOCK.monotonic() - begun


def bare(access: Access, records: Callable[[], list[tuple[bytes, bytes]]]) -> None:
    """Send records by the client alone, all in memory."""
    import confluent_kafka

    producer = confluent_kafka.Producer(access.producer_settings(transactional=False))
    for key, value in records():
        while True:
            try:
                producer.produce(access.topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def measure(servers: str, topic: str, rows: int) -> dict[str, float]:
    """Return seconds by what was done; of an epoch of 10 rows the mean of many."""
    with tempfile.TemporaryDirectory() as folder:
        store = JobStore.open(folder)
        staged = StagedRecords(store, stage(store, rows))
        records = staged.between
        access = Access("bench", servers, topic, f"bench-{uuid.uuid4().hex}")
        transactions, plain = Transactions(access, 1_000_000, lambda: None), PlainProducer(access, lambda: None)
        transactions.open()
        plain.open()
        found = {
            EXACTLY_ONCE: seconds(lambda: transactions.publish(records, rows, "a1", 0)),
            AT_LEAST_ONCE: seconds(lambda: plain.publish(records(0, rows), 0)),
        }
        held = [(key or b"", value or b"") for batch in records(0, rows) for key, value, _ in batch]
        found[BARE] = seconds(lambda: bare(access, lambda: held))
        empty = 200

        def publish_few() -> None:
            for epoch in range(1, empty + 1):
                transactions.publish(records, 10, "a1", epoch)

        found[FEW] = seconds(publish_few) / empty
        staged.close()
    return found


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    took = measure(given.servers, given.topic, given.rows)
    for name in (EXACTLY_ONCE, AT_LEAST_ONCE, BARE):
        print(f"{name}: {given.rows / took[name]:,.0f} rows/s ({took[name]:.2f} s)")
    print(f"{FEW}: {took[FEW] * 1000:.1f} ms")


if __name__ == "__main__":
    main()
