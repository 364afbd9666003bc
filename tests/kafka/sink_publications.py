"""A driver's publications to a topic, without Spark: it stages an epoch's records, commits the epoch, and publishes it."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.crashpoints import crash_point
from tidemark.graph.connectors.kafka.spec import ID_PREFIX, Guarantee, KafkaSpec
from tidemark.spark.sinks.kafka.sink import KafkaSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.log.records import OutputRecord, SinkPosition, StagedFile
from tidemark.state.store.store import JobStore

LINEAGE: Final = "a1"
ROWS: Final = 250
PER_TRANSACTION: Final = 100
HEAD: Final = "head.json"
JOB, OUTPUT = "fares", "totals"
IDENTITY: Final = f"tidemark/{JOB}/{OUTPUT}"


def values(epoch: int, rows: int = ROWS) -> list[str]:
    """Return the values of an epoch's records."""
    return [f"{epoch}/{number}" for number in range(rows)]


@dataclass
class Publications:
    """The output ``totals`` of the job ``fares``; its log is one file with the newest epoch."""

    folder: Path
    address: str
    topic: str
    delivery: Guarantee = "exactly_once"
    per_transaction: int = PER_TRANSACTION
    prefix: str = ID_PREFIX

    @property
    def store(self) -> JobStore:
        return JobStore.open(str(self.folder)).at(JOB)

    def sink(self, owner: SinkOwner | None = None) -> KafkaSink:
        spec = KafkaSpec(
            self.address,
            self.topic,
            key=("k",),
            delivery=self.delivery,
            rows_per_transaction=self.per_transaction,
            id_prefix=self.prefix,
        )
        return KafkaSink(OUTPUT, spec, owner or SinkOwner(self.store))

    def stage(self, sink: KafkaSink, epoch: int, rows: int = ROWS) -> OutputRecord:
        """Stage an epoch's records in two files."""
        sink.renew_marker()
        folder = sink.staging_folder(new_staging(LINEAGE, epoch))
        texts = values(epoch, rows)
        files = []
        for number, part in enumerate((texts[: rows // 3], texts[rows // 3 :])):
            keys = [None if index % 7 == 0 else f"k{index % 10}".encode() for index in range(len(part))]
            table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([text.encode() for text in part], pa.binary())})
            buffer = io.BytesIO()
            pq.write_table(table, buffer)
            path = f"{folder}/part-{number:05d}.parquet"
            self.store.put(path, buffer.getvalue())
            files.append(StagedFile(path, len(part), len(buffer.getvalue())))
        record = OutputRecord("kafka", sink.location, "{}", tuple(files), rows, sink.record_options)
        return replace(record, before=sink.position)

    def commit(self, record: OutputRecord, epoch: int) -> None:
        before = record.before or SinkPosition()
        head: dict[str, object] = {
            "epoch": epoch,
            "files": [(file.path, file.rows) for file in record.files],
            "before": [before.lineage, before.epoch],
        }
        head["options"] = dict(record.options)
        self.store.put(HEAD, json.dumps(head).encode())

    def head(self, sink: KafkaSink) -> tuple[int, OutputRecord] | None:
        """Return the newest committed epoch."""
        if not self.store.exists(HEAD):
            return None
        head = json.loads(self.store.get(HEAD))
        files = tuple(StagedFile(path, rows, 0) for path, rows in head["files"])
        lineage, before = head["before"]
        record = OutputRecord("kafka", sink.location, "{}", files, ROWS, head["options"], SinkPosition(lineage=lineage, epoch=before))
        return int(head["epoch"]), record

    def run(self, until: int) -> KafkaSink:
        """Publish what was committed, then stage, commit and publish epochs up to a number."""
        sink = self.sink()
        head = self.head(sink)
        first = 0
        if head is not None:
            epoch, record = head
            sink.expect(Expected(record.before))
            sink.require_whole()
            publisher = sink if sink.accepts(record) else KafkaSink.of_record(OUTPUT, record, sink.owner)
            publisher.publish(record, LINEAGE, epoch)
            first = epoch + 1
        for epoch in range(first, until):
            sink.require_whole()
            record = self.stage(sink, epoch)
            crash_point("output-staged")
            self.commit(record, epoch)
            crash_point("after-commit")
            sink.publish(record, LINEAGE, epoch)
            crash_point("output-published")
        return sink


def drive(folder: str, address: str, topic: str, delivery: Guarantee = "exactly_once", epochs: str = "4") -> None:
    """Publish so many epochs in a process of its own."""
    Publications(Path(folder), address, topic, delivery).run(int(epochs))
