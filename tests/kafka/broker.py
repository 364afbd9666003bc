"""A Kafka broker for tests, and what they do to its topics: through the connector's own client, so that no other is needed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from py4j.protocol import Py4JJavaError

from tests.control.drivers import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS: Final = "TIDEMARK_KAFKA_JARS"
"""Names a folder with jars: those of a broker in ``broker/``, those of Spark's connector in ``connector/``."""

DOWNLOADED: Final = Path(__file__).parents[2] / ".jars"
"""Where ``make jars`` puts them."""

HOST: Final = "127.0.0.1"

_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
"""
"""Of its own two topics a broker has fifty partitions each by default, all of which a killed one looks through when it starts."""


_BEFORE: Final = "org.apache.kafka.clients.admin.RecordsToDelete"


def jars() -> Path | None:
    """Return the folder of jars, None where the tests are to be left out."""
    named = os.environ.get(JARS)
    folder = Path(named).resolve() if named else DOWNLOADED
    return folder if folder.is_dir() else None


def connector_settings() -> dict[str, str]:
    """Return what a session needs to read Kafka; nothing where the tests are to be left out."""
    folder = jars()
    return {} if folder is None else {"spark.jars": ",".join(map(str, sorted((folder / "connector").glob("*.jar"))))}


NEEDS_JARS: Final = pytest.mark.skipif(jars() is None, reason="there are no jars of a broker and of Spark's connector: run `make jars`")

NEEDS_AVRO: Final = pytest.mark.skipif(
    not any((jars() or Path(os.devnull)).glob("connector/spark-avro*.jar")),
    reason="Spark's reader of Avro is not among the connector's jars: run `make jars`",
)


@dataclass
class Broker:
    """A broker in a folder, its controller in the same process."""

    folder: Path
    classes: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def restart(self) -> None:
        """Kill the broker and start it again, with its data and at its port."""
        self.process.kill()
        self.process.wait()
        self.process = _run(self.folder, self.classes)
        until(lambda: self.process.poll() is not None or _answers(self.port), "a broker")
        assert self.process.poll() is None, (self.folder / "log").read_text()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder / "data", ignore_errors=True)


def start_broker(folder: Path, classes: Path) -> Broker:
    """Start a broker and wait until it answers."""
    port, controller = _free_port(), _free_port()
    settings = folder / "server.properties"
    settings.write_text(_PROPERTIES.format(host=HOST, port=port, controller=controller, folder=folder), encoding="utf-8")
    tool = [*_java(classes), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(settings)]
    with (folder / "log").open("wb") as log:
        subprocess.run(tool, check=True, stdout=log, stderr=log)
    process = _run(folder, classes)
    broker = Broker(folder, classes, port, process)
    until(lambda: process.poll() is not None or _answers(port), "a broker")
    assert process.poll() is None, (folder / "log").read_text()
    return broker


@dataclass
class Transaction:
    """An open transaction of a producer."""

    producer: Any
    record: Any

    def send(self, name: str, partition: int, *values: str) -> None:
        """Send records, and wait until the broker has them."""
        for value in values:
            self.producer.send(self.record(name, partition, None, None, value.encode())).get()

    def commit(self) -> None:
        self.producer.commitTransaction()

    def abort(self) -> None:
        self.producer.abortTransaction()


class Topics:
    """Makes, fills and changes topics of a broker.

    Args:
        spark: a session with the connector; its Java has a client.
        address: of the broker.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001
        self._jvm = jvm
        self._array: Any = spark.sparkContext._gateway.new_array  # type: ignore[union-attr]  # noqa: SLF001
        settings = jvm.java.util.Properties()
        settings.put("bootstrap.servers", address)
        # In order, and each record by itself: a batch that waits for a partition's place in the metadata may expire.
        settings.put("enable.idempotence", "false")
        settings.put("max.in.flight.requests.per.connection", "1")
        settings.put("batch.size", "0")
        clients = jvm.org.apache.kafka.clients
        self._admin = clients.admin.AdminClient.create(settings)
        plain = jvm.org.apache.kafka.common.serialization
        self._producer = clients.producer.KafkaProducer(settings, plain.ByteArraySerializer(), plain.ByteArraySerializer())
        self._clients, self._plain, self._settings = clients, plain, settings
        self._sent: list[Any] = []

    def close(self) -> None:
        self._producer.close()
        self._admin.close()

    def create(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        topic = self._clients.admin.NewTopic(name, partitions, 1).configs(self._map(settings or {}))
        self._admin.createTopics(self._list(topic)).all().get()
        until(lambda: self._led(name), f"leaders of {name}")

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._admin.createPartitions(self._map({name: self._clients.admin.NewPartitions.increaseTo(partitions)})).all().get()

    def send(
        self,
        name: str,
        partition: int,
        value: str | bytes | None,
        *,
        key: str | None = None,
        at: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a record to a partition; ``flush`` waits until it is there."""
        record = self._clients.producer.ProducerRecord(name, partition, at, _bytes(key), _bytes(value))
        for header, text in (headers or {}).items():
            record.headers().add(header, text.encode())
        self._sent.append(self._producer.send(record))

    def flush(self) -> None:
        self._producer.flush()
        while self._sent:
            self._sent.pop().get()

    @contextmanager
    def transaction(self, id_: str) -> Iterator[Transaction]:
        """Begin a transaction; one that is neither committed nor aborted stays open when the producer is closed without waiting."""
        settings = self._jvm.java.util.Properties()
        settings.putAll(self._map({"bootstrap.servers": self._settings.get("bootstrap.servers"), "transactional.id": id_}))
        producer = self._clients.producer.KafkaProducer(settings, self._plain.ByteArraySerializer(), self._plain.ByteArraySerializer())
        producer.initTransactions()
        producer.beginTransaction()
        try:
            yield Transaction(producer, self._clients.producer.ProducerRecord)
        finally:
            producer.close(self._jvm.java.time.Duration.ZERO)

    def delete_before(self, name: str, partition: int, offset: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        before = self._before_offset(offset)
        self._admin.deleteRecords(self._map({self._partition(name, partition): before})).all().get()

    def delete(self, name: str) -> None:
        self._admin.deleteTopics(self._list(name)).all().get()

    def _led(self, name: str) -> bool:
        """Whether all partitions of a topic have a leader; what is sent before may be held back until it expires."""
        try:
            partitions = self._admin.describeTopics(self._list(name)).allTopicNames().get().get(name).partitions()
        except Py4JJavaError:
            return False
        return all(partition.leader() is not None for partition in partitions)

    def _before_offset(self, offset: int) -> Any:
        """Call a static method that has the name of another, by which py4j does not find it."""
        kind = self._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_BEFORE)
        types, given = self._array(self._jvm.java.lang.Class, 1), self._array(self._jvm.java.lang.Object, 1)
        types[0], given[0] = self._jvm.java.lang.Long.TYPE, offset
        return kind.getMethod("beforeOffset", types).invoke(None, given)

    def _partition(self, name: str, partition: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(name, partition)

    def _list(self, *items: object) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return found

    def _map(self, entries: Mapping[Any, object]) -> Any:
        found = self._jvm.java.util.HashMap()
        for key, value in entries.items():
            found.put(key, value)
        return found


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _java(classes: Path) -> list[str]:
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in os.environ else "java"
    # It ends before the second compiler pays, and one collector thread has enough to do.
    return [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{classes}/*"]


def _run(folder: Path, classes: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([*_java(classes), "kafka.Kafka", str(folder / "server.properties")], stdout=log, stderr=log)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
