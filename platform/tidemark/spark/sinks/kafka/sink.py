"""A topic of Kafka as a sink: exactly once by transactions with a marker, or at least once without."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar, Self

from tidemark.crashpoints import crash_point
from tidemark.errors import MissingEpochsError, SinkError
from tidemark.graph.connectors.kafka.spec import KafkaSpec
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.delta.table_position import NO_TABLE
from tidemark.spark.columns.expressions import visible_part
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.sinks.delta.delta_changes import Changes
from tidemark.spark.sinks.kafka.client import Access
from tidemark.spark.sinks.kafka.plain_producer import PlainProducer
from tidemark.spark.sinks.kafka.staged_records import StagedRecords
from tidemark.spark.sinks.kafka.transactions import Transactions
from tidemark.spark.sinks.staging.connector_sink import ConnectorSink
from tidemark.spark.sinks.staging.missing import Expected, staged_files_lost
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import SINK_COMPRESSION, Occupancy, folder_of
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition, StagedFile, row_keys_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

_ACCESS = "kafka"


class KafkaSink(ConnectorSink):
    """One topic.

    Args:
        name: of the output.
        spec: of the topic.
        owner: whose output it is.
        former: whether the job no longer has it: then it connects only to publish.
    """

    kind: ClassVar[str] = KafkaSpec.kind

    def __init__(self, name: str, spec: KafkaSpec, owner: SinkOwner, *, former: bool = False) -> None:
        super().__init__(name, spec.location, owner)
        self.upserts = spec.mode == "upsert"
        self._spec = spec
        self._position: SinkPosition | None = None
        identity = f"{spec.id_prefix}/{owner.job}/{name}"
        self._access = Access(name, spec.servers, spec.topic, identity, spec.options, spec.environment)
        self._transactions = Transactions(self._access, spec.rows_per_transaction, owner.confirm)
        self._plain = PlainProducer(self._access, owner.confirm)
        self._former = former

    @classmethod
    def of_record(cls, name: str, record: OutputRecord, owner: SinkOwner) -> Self:
        """Return the sink of a record whose output the job no longer has, or has at another place."""
        stored = json.loads(record.options.get(_ACCESS, "{}"))
        servers, _, topic = str(record.location).removeprefix(f"{KafkaSpec.kind}://").rpartition("/")
        return cls(name, KafkaSpec(servers=servers, topic=topic, **stored), owner, former=True)

    @property
    def position(self) -> SinkPosition | None:
        """The newest epoch by the marker when it was last read, None before that."""
        return self._position

    def expect(self, expected: Expected) -> None:
        """Set what the job's log knows of the topic."""
        super().expect(expected)
        self._position = self._position if self._position is not None else expected.position

    def stage(self, rows: DataFrame, changes: Changes | None, staging: str, *, epoch: int, processing_time: int) -> OutputRecord:
        """Stage an epoch's rows as records: keys and values."""
        from tidemark.spark.sinks.kafka.rows import Envelope, record_rows

        self.require_whole()
        self.renew_marker()
        self.check(nullable(visible_part(rows).schema))
        staged = record_rows(rows, self._spec, changes, Envelope(self.owner.job, self.name, epoch, processing_time))
        files = write_folder(staged.rows, self.staging, self.staging_folder(staging), compression=SINK_COMPRESSION)
        given, options = staged.counted(files)
        return OutputRecord(
            sink=self.kind,
            location=self.location,
            schema=staged.schema.json(),
            # Statistics of keys and values are of no use.
            files=tuple(StagedFile(file.path, file.rows, file.bytes) for file in files),
            rows=given,
            options={**self.record_options, **options},
        )

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The key of an upsert."""
        return self._spec.row_keys

    @property
    def record_options(self) -> dict[str, str]:
        """How the topic is accessed, without secrets, and the key of an upsert."""
        spec = self._spec
        stored = {
            "delivery": spec.delivery,
            "options": dict(spec.options),
            "environment": dict(spec.environment),
            "rows_per_transaction": spec.rows_per_transaction,
            "id_prefix": spec.id_prefix,
        }
        return {_ACCESS: json.dumps(stored, sort_keys=True), **row_keys_option(spec.row_keys)}

    def check(self, schema: T.StructType) -> None:
        """Make sure that the rows have the columns of the key and of headers, which the graph may not know beforehand."""
        wanted = [*self._spec.key, *self._spec.headers.values(), *(["value"] if self._spec.format == "raw" else [])]
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise SinkError(
                f"output {self.name!r} cannot be published to the topic {self._spec.topic!r}: its rows have no column {missing[0]!r}",
                fix=f"name other columns in key= or headers=; there are {', '.join(schema.names)}",
                uid=self.name,
                place=self.location,
            )

    def renew_marker(self) -> None:
        """Make sure that a marker shows, for the next week, that the epoch which is staged now was not published yet."""
        position = self._position
        if self._spec.delivery == "exactly_once" and position is not None and position.epoch >= 0:
            self._transactions.renew(position.lineage, position.epoch)

    def accepts(self, record: OutputRecord) -> bool:
        """Whether an epoch was staged for the same transactional id; else a producer with the former one publishes it."""
        stored = json.loads(record.options.get(_ACCESS, "{}"))
        return not record.files or stored.get("id_prefix", self._spec.id_prefix) == self._spec.id_prefix

    @property
    def occupancy(self) -> Occupancy:
        """Nothing is said of the records of others: a topic may have several writers."""
        return "empty"

    def create(self, schema: T.StructType) -> None:
        """Check the columns; the topic has to exist."""
        self.check(schema)

    def adopt(self) -> None:
        """Accept the topic as it is."""
        self.expected = Expected(self._position)

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:  # noqa: ARG002 - the protocol's
        """Return nothing: brokers delete records by the topic's retention."""
        return ()

    def require_whole(self) -> None:
        """Connect: fence older drivers, end their transaction, and read the marker."""
        if not self._former:
            self._connect()

    def _connect(self) -> None:
        if self._spec.delivery == "at_least_once":
            self._plain.open()
            self._position = self._position if self._position is not None else NO_TABLE
            return
        self._transactions.open()
        marker = self._transactions.marker
        if marker is not None:
            self._position = SinkPosition(lineage=marker.lineage, epoch=marker.epoch)
        elif self._position is None:
            newest = self.expected.newest
            self._position = SinkPosition(lineage=newest[0], epoch=newest[1]) if newest is not None else NO_TABLE

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage by the marker."""
        self._connect()
        marker = self._transactions.marker
        return marker.epoch if marker is not None and marker.lineage == lineage else None

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Publish the records of a committed epoch, unless its staged files were deleted, which follows the publication.

        Raises:
            MissingEpochsError: whether it was published is not known any more.
            SinkError: the topic does not take the records.
            PublishError: they cannot be published now.
            FencedError: a newer driver has begun.
        """
        if not self._is_staged(record):
            self._require_published(lineage, epoch)
            self._position = SinkPosition(lineage=lineage, epoch=epoch)
            self.staging.remove_folder(folder_of(record))
            return
        self._connect()
        rows = sum(file.rows for file in record.files)
        with closing(StagedRecords(self.staging, record.files)) as records:
            if self._spec.delivery == "at_least_once":
                self._plain.publish(records.between(0, rows), epoch)
            else:
                self._require_known(record, epoch)
                self._transactions.publish(records.between, rows, lineage, epoch)
        self._position = SinkPosition(lineage=lineage, epoch=epoch)
        self.staging.remove_folder(folder_of(record))
        crash_point("staged-rows-deleted")

    def _is_staged(self, record: OutputRecord) -> bool:
        """Return whether an epoch's staged files are all there; they are deleted after its publication."""
        there = {file.path for file in self.staging.list(folder_of(record))}
        return all(file.path in there for file in record.files)

    def _require_published(self, lineage: str, epoch: int) -> None:
        """Make sure that files which are gone were published; where there is no marker any more, they were deleted after that."""
        if self._former or self._spec.delivery == "at_least_once":
            return
        newest = self.newest(lineage)
        if newest is not None and newest < epoch:
            raise staged_files_lost(self.name, self.owner.job, self.location, epoch)

    def _require_known(self, record: OutputRecord, epoch: int) -> None:
        """Make sure that the marker shows whether an epoch was published: an earlier epoch's is there, or there was none."""
        earlier = record.before is not None and record.before.epoch >= 0
        if self._transactions.marker is not None or not earlier:
            return
        job = self.owner.job
        raise MissingEpochsError(
            f"the marker of output {self.name!r} is gone from the topic {self._spec.topic!r}, so whether epoch {epoch}, "
            "which is committed, was published is not known: the topic was recreated, or the group's offsets expired while the job was "
            "stopped (offsets.retention.minutes of the brokers, 7 days)",
            fix="look into the topic: if the epoch's records are there, or are not needed, continue without publishing it "
            f"(`--missing-epochs accept` of `tidemark start {job}` and `tidemark run`); else start the job once with "
            "guarantee='at_least_once' of this output, which publishes it; nothing was changed",
            job=job or None,
            uid=self.name,
            epoch=epoch,
            place=self.location,
        )
