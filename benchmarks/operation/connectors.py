"""How fast Kafka and Postgres are read and written: jobs beside stock Spark's, and sinks beside what the servers' own clients do.

``python -m benchmarks.operation.connectors [--rows 2000000] [--rounds 3]`` starts a broker and a server of Postgres on loopback, as the
tests do, and writes ``docs/reference/connectors-performance.md``. `make jars` and Debian's ``postgresql`` are needed.

Both jobs count fares by driver and hour: from a topic with JSON to another topic, and to files. Stock Spark 4.3 has no Delta sink, so it
writes Parquet files there, without a transaction log.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from confluent_kafka import Producer
from deltalake import DeltaTable

import tidemark as tm
from benchmarks.checks.verdicts import DisagreementError
from benchmarks.data.fares import FIRST_TIME_MS
from benchmarks.harness.engines import cores
from benchmarks.harness.processes import CHECKOUT, MeasurementError
from benchmarks.operation import kafka_sink, postgres_sink
from tests.kafka.broker import connector_settings, jars, start_broker
from tests.kafka.topic_records import create_topic, read
from tests.postgres.server import Server
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import SetupError
from tidemark.spark.env.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PAGE: Final = Path("docs") / "reference" / "connectors-performance.md"
ROWS: Final = 2_000_000
ROUNDS: Final = 3
EPOCHS: Final = 10
PARTITIONS: Final = 4
DRIVERS: Final = 1_000
HOURS: Final = 24
QUEUED: Final = 100_000
SCHEMA: Final = "driver BIGINT, ts TIMESTAMP, fare DOUBLE"
BOUND: Final = "5 minutes"

TEXT: Final = """\
# Performance of connectors

`python -m benchmarks.operation.connectors --rows {count} --rounds {rounds}` wrote this page: medians of the rounds, after one that is not
counted, on {cores} cores, Python {python}, PySpark {spark}, with broker and server on the same machine. Both engines have their defaults.

## Jobs

{rows} fares as JSON, in four partitions, are counted by driver and hour. Both engines read them in {epochs} epochs (triggers) of the same
rows, which each round checks, and its results have each fare once. Stock Spark 4.3 has no Delta sink, so it writes Parquet files, without a
table's log.

| from Kafka to | Tidemark's guarantee | stock Spark's | Tidemark, rows/s | stock Spark, rows/s | stock Spark's time by Tidemark's |
|---|---|---|---|---|---|"""

To = Literal["kafka", "delta"]
Engine = Literal["tidemark", "tidemark, at least once", "spark"]
RUNS: Final[tuple[tuple[To, Engine], ...]] = (
    ("kafka", "tidemark"),
    ("kafka", "tidemark, at least once"),
    ("kafka", "spark"),
    ("delta", "tidemark"),
    ("delta", "spark"),
)
ROWS_OF_PAGE: Final[tuple[tuple[str, str, str, To, Engine], ...]] = (
    ("Kafka", "exactly once", "at least once", "kafka", "tidemark"),
    ("Kafka", "at least once", "at least once", "kafka", "tidemark, at least once"),
    ("Delta (stock Spark: Parquet)", "exactly once", "exactly once for Spark's readers", "delta", "tidemark"),
)


def fill(address: str, topic: str, rows: int) -> None:
    """Send fares in the order of their times, then one to each partition that is a day later, behind which every window ends."""
    chance = np.random.default_rng(1)
    times = FIRST_TIME_MS + np.arange(rows) * HOURS * 3_600_000 // rows
    drivers, fares = chance.integers(0, DRIVERS, rows), chance.integers(100, 9_000, rows)
    # Without idempotence a batch that the broker refuses at first comes behind later ones: its fares are out of order, and late.
    settings = {"linger.ms": 50, "queue.buffering.max.messages": 2 * QUEUED, "enable.idempotence": True, "log_level": 3}
    producer = Producer({"bootstrap.servers": address, **settings})

    def send(number: int, driver: int, time: int, fare: int) -> None:
        value = json.dumps({"driver": driver, "ts": np.datetime64(time, "ms").item().isoformat() + "Z", "fare": fare / 100})
        while len(producer) >= QUEUED:
            producer.poll(0.1)
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)

    for number in range(rows):
        send(number, int(drivers[number]), int(times[number]), int(fares[number]))
    for number in range(PARTITIONS):
        send(number, 0, FIRST_TIME_MS + 2 * HOURS * 3_600_000, 0)
    if producer.flush(120):
        raise MeasurementError("the broker did not take all fares in two minutes", fix="see the broker's log")


class Flow:
    """One round: the topic is read to its end, and its windows are written to one end.

    Args:
        spark: the session.
        address: of the broker.
        topic: with the fares.
        rows: how many those are.
        folder: a new one.
    """

    def __init__(self, spark: SparkSession, address: str, topic: str, rows: int, folder: Path) -> None:
        self._spark, self._address, self._topic, self._folder = spark, address, topic, folder
        self._most = -(-rows // EPOCHS)
        self._results = create_topic(address, f"results-{folder.name}", partitions=PARTITIONS)
        self.said = "stock Spark says nothing of its rows"
        self.read: list[int] = []
        """The rows of each epoch that had any."""

    def run(self, to: To, engine: Engine) -> float:
        """Return the seconds that an engine takes."""
        return self.stock(to) if engine == "spark" else self.tidemark(to, exactly_once=engine == "tidemark")

    def tidemark(self, to: To, *, exactly_once: bool = True) -> float:
        """Return the seconds that Tidemark takes; what the run says is kept in ``said``."""
        spec = tm.kafka_source(
            servers=self._address, topics=self._topic, format="json", schema=SCHEMA, start="earliest", max_rows_per_epoch=self._most
        )
        fares = tm.source("fares", spec, watermarks=tm.bounded_out_of_orderness(BOUND, timestamp="value.ts")).select(
            driver="value.driver", fare="value.fare"
        )
        windows = fares.key_by("driver").window(tm.tumbling("1 hour")).aggregate(total=tm.sum("fare"), n=tm.count()).uid("windows")
        if to == "kafka":
            guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once" if exactly_once else "at_least_once"
            output = tm.kafka_sink(windows, servers=self._address, topic=self._results, key=["driver"], guarantee=guarantee)
        else:
            output = tm.delta(windows, str(self._folder / "results"))
        job = tm.Job("fares", {"results": output}, store=str(self._folder / "store"))
        results: list[tm.RunResult] = []
        took = kafka_sink.seconds(lambda: results.append(tm.run(job, spark=self._spark)))
        self.said, self.read = _said(results[0]), [epoch.rows_in for epoch in results[0].epochs if epoch.rows_in]
        return took

    def stock(self, to: To) -> float:
        """Return the seconds that stock Spark takes."""
        windows = self._stock_windows()
        if to == "kafka":
            windows = windows.selectExpr("to_json(struct(driver)) AS key", "to_json(struct(*)) AS value")
        writer = windows.writeStream.outputMode("append").option("checkpointLocation", str(self._folder / "checkpoint"))
        if to == "kafka":
            writer = writer.format("kafka").option("kafka.bootstrap.servers", self._address).option("topic", self._results)
        else:
            writer = writer.format("parquet").option("path", str(self._folder / "results"))
        writer = writer.trigger(availableNow=True)
        queries: list[StreamingQuery] = []

        def drain() -> None:
            queries.append(writer.start())
            queries[0].awaitTermination()

        took = kafka_sink.seconds(drain)
        self.read = [rows for progress in queries[0].recentProgress if (rows := progress.numInputRows)]
        return took

    def _stock_windows(self) -> DataFrame:
        from pyspark.sql import functions as F

        reader = self._spark.readStream.name("fares").format("kafka").option("kafka.bootstrap.servers", self._address)
        records = reader.option("subscribe", self._topic).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", self._most)
        fares = records.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("value")).select("value.*")
        counted = (
            fares.withWatermark("ts", BOUND)
            .groupBy("driver", F.window("ts", "1 hour"))
            .agg(F.sum("fare").alias("total"), F.count("*").alias("n"))
        )
        return counted.select("driver", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "total", "n")

    def counted(self, to: To, *, delta: bool) -> int:
        """Return how many fares the results have counted."""
        if to == "kafka":
            return sum(int(json.loads(record.value or "{}")["n"]) for record in read(self._address, self._results))
        path = str(self._folder / "results")
        if delta:
            return int(sum(DeltaTable(path).to_pyarrow_table(columns=["n"])["n"].to_pylist()))
        return int(self._spark.read.parquet(path).groupBy().sum("n").collect()[0][0])


def _said(result: tm.RunResult) -> str:
    """Return what a run says of its rows, for an error."""
    late, written = sum(epoch.rows_late for epoch in result.epochs), sum(epoch.rows_out for epoch in result.epochs)
    head = result.head.operators["windows"] if result.head is not None else None
    left = "nothing" if head is None else f"{head.state_rows} rows, the oldest of the window at {head.oldest_open_window}"
    return f"{result.epochs_run} epochs read {result.rows_in} rows and wrote {written}; {late} rows were late, open windows have {left}"


def flows(spark: SparkSession, address: str, rows: int, rounds: int) -> tuple[dict[tuple[To, Engine], float], int]:
    """Return the median of seconds by end and engine, and the epochs of each; the engines take turns, after a round that is not counted."""
    fill(address, create_topic(address, "fares", partitions=PARTITIONS), rows)
    found: dict[tuple[To, Engine], list[float]] = {}
    read: list[int] = []
    for number in range(rounds + 1):
        for to, engine in RUNS:
            folder = Path(tempfile.mkdtemp(prefix="flow-"))
            flow = Flow(spark, address, "fares", rows, folder)
            took = flow.run(to, engine)
            if (counted := flow.counted(to, delta=engine != "spark")) != rows:
                raise DisagreementError(f"{engine} to {to} has counted {counted} fares, of {rows}: {flow.said}", fix="find out which")
            read = read or flow.read
            if flow.read != read:
                raise DisagreementError(f"{engine} to {to} has read {flow.read} rows by epoch, and others {read}", fix="compare alike")
            print(f"round {number}, Kafka to {to}, {engine}: {took:.1f} s", flush=True)
            if number:
                found.setdefault((to, engine), []).append(took)
            shutil.rmtree(folder)
    return {key: median(each) for key, each in found.items()}, len(read)


@contextmanager
def servers(folder: Path) -> Iterator[tuple[str, Server]]:
    """Run a broker and a server of Postgres."""
    classes = jars()
    if classes is None:
        raise SetupError("there are no jars of a broker", fix="run `make jars`")
    (folder / "broker").mkdir()
    broker = start_broker(folder / "broker", classes / "broker")
    server = Server.make()
    try:
        server.start()
        yield broker.address, server
    finally:
        server.remove()
        broker.stop()


def sinks(address: str, server: Server, rows: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return medians of seconds of the sinks to Kafka and to Postgres, by what was done."""
    os.environ[postgres_sink.VARIABLE] = server.dsn()
    kafka: list[dict[str, float]] = []
    postgres: list[dict[str, float]] = []
    for number in range(rounds):
        kafka.append(kafka_sink.measure(address, create_topic(address, f"sink-{number}", partitions=PARTITIONS), rows))
        with tempfile.TemporaryDirectory() as folder:
            bench = postgres_sink.Bench(folder)
            postgres.append(postgres_sink.measure(bench, rows))
            bench.drop()
    return _medians(kafka), _medians(postgres)


def _medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(each[name] for each in found) for name in found[0]}


def page(
    rows: int,
    rounds: int,
    jobs: tuple[dict[tuple[To, Engine], float], int],
    kafka: dict[str, float],
    postgres: dict[str, float],
) -> str:
    """Return the page of a run."""
    took, epochs = jobs
    versions = {"python": platform.python_version(), "spark": version("pyspark")}
    lines = [TEXT.format(rows=f"{rows:,}", count=rows, rounds=rounds, epochs=epochs, cores=cores(), **versions)]
    for name, guarantee, guarantee_of_stock, to, engine in ROWS_OF_PAGE:
        own, stock = took[to, engine], took[to, "spark"]
        figures = f"{rows / own:,.0f} | {rows / stock:,.0f} | {stock / own:.2f}"
        lines.append(f"| {name} | {guarantee} | {guarantee_of_stock} | {figures} |")
    lines += ["", "## Sinks", "", f"{rows:,} staged rows of about 100 bytes are published, and an epoch of 10 rows."]
    for title, measured in (("Kafka", kafka), ("Postgres", postgres)):
        lines += ["", f"| {title} | rows/s | seconds |", "|---|---|---|"]
        for name, seconds in measured.items():
            lines.append(f"| {name} | {(10 if '10 rows' in name else rows) / seconds:,.0f} | {seconds:.3g} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", type=Path, default=CHECKOUT, help="the folder below which the page is written")
    given = parser.parse_args()
    begun = SYSTEM_CLOCK.monotonic()
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as (address, server):
        spark = build_session(
            f"local[{cores()}]",
            app_name="connectors",
            conf={"spark.sql.shuffle.partitions": str(cores()), "spark.driver.memory": "3g", **connector_settings()},
        )
        jobs = flows(spark, address, given.rows, given.rounds)
        spark.stop()
        kafka, postgres = sinks(address, server, given.rows, given.rounds)
    path = given.output / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(given.rows, given.rounds, jobs, kafka, postgres), encoding="utf-8")
    print(f"{path}: {SYSTEM_CLOCK.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
