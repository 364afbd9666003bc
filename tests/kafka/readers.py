"""Jobs that show which records of a topic they read, and topics that are deleted and made again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

import tidemark as tm
from tests.control.drivers import until
from tests.engine.lab import require_conservation
from tests.kafka.broker import Topics
from tests.kafka.fares import START
from tidemark.errors import SourceError
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.sources.kafka.topic_ids import TopicIds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMED = tm.bounded_out_of_orderness("1 minute", timestamp="timestamp")
Place = tuple[str, int, int]


@dataclass
class Reader:
    """A job that shows the records of a source, by topic, partition and offset."""

    spec: FormatSpec
    folder: Path
    spark: SparkSession
    found: dict[Place, dict[str, Any]] = field(default_factory=dict)

    @property
    def source(self) -> tm.Stream:
        return tm.source("records", self.spec, watermarks=TIMED)

    def run(self, **options: Any) -> list[Place]:
        """Run, to the end if the options say nothing else, and return the places of the records that came."""
        name = str(self.folder)
        job = tm.Job("records", outputs={"rows": tm.memory(self.source, name)}, store=str(self.folder / "store"))
        tm.clear_memory(name)
        for epoch in tm.run(job, spark=self.spark, handle_signals=False, **options).epochs:
            require_conservation(epoch)
        table = tm.memory_table(name)
        rows = [] if table is None else table.to_pylist()
        new = {(row["topic"], row["partition"], row["offset"]): row for row in rows}
        assert len(new) == len(rows)
        self.found |= new
        return sorted(new)


def places(topic: str, partition: int, *offsets: int) -> list[Place]:
    return [(topic, partition, offset) for offset in offsets]


def make_again(topics: Topics, name: str, *counts: int) -> None:
    """Delete a topic and make it again, with so many records in each partition."""
    topics.delete(name)

    def made() -> bool:
        try:
            topics.create(name, len(counts))
        except Py4JJavaError:  # the old one still exists for a moment
            return False
        return True

    until(made, "a topic")
    fill(topics, name, "new", *counts)


def fill(topics: Topics, name: str, value: str, *counts: int) -> None:
    """Send so many records to each partition."""
    for partition, count in enumerate(counts):
        for _ in range(count):
            topics.send(name, partition, value, at=START)
    topics.flush()


def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let brokers have no ids of topics, as before Kafka 2.8; records of epochs are then as those of earlier builds."""
    monkeypatch.setattr(TopicIds, "of", lambda _ids, _topics: {})


def require_failure(reader: Reader, what: str, **options: Any) -> None:
    with pytest.raises(SourceError) as caught:
        reader.run(**options)
    assert (caught.value.transient, caught.value.job, caught.value.uid) == (False, "records", "records")
    assert what in caught.value.what
    assert "on_remade='restart'" in caught.value.fix
