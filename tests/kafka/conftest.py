"""The broker that tests of Kafka share; without the jars these tests are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.kafka.broker import JARS, Broker, Topics, jars, start_broker
from tests.kafka.fares import FareJob, Fares
from tests.kafka.readers import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_names = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = jars()
    assert folder is not None, f"{JARS} is not set"
    started = start_broker(tmp_path_factory.mktemp("broker"), folder / "broker")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def topics(broker: Broker, spark: SparkSession) -> Iterator[Topics]:
    found = Topics(spark, broker.address)
    yield found
    found.close()


@pytest.fixture
def fares(topics: Topics) -> Fares:
    """A new topic of three partitions."""
    name = f"fares{next(_names)}"
    topics.create(name, 3)
    return Fares(topics, name)


@pytest.fixture
def job(fares: Fares, broker: Broker, tmp_path: Path) -> FareJob:
    """The job over that topic, which has not run yet."""
    return FareJob(tmp_path, fares.topic, broker.address)


@pytest.fixture
def read(broker: Broker, spark: SparkSession, tmp_path: Path) -> Callable[..., Reader]:
    def reader(name: str = "job", **arguments: Any) -> Reader:
        return Reader(tm.kafka_source(servers=broker.address, **arguments), tmp_path / name, spark)

    return reader
