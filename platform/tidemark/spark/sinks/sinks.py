"""Sinks: rows are staged as Parquet before the epoch's record is put, and published from the record after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import CorruptStoreError, SinkError, StoreError
from tidemark.graph.model.nodes import ConsoleSpec, DeltaSpec, MemorySpec, Output, ParquetSpec
from tidemark.graph.operators.window.columns import REPLACES
from tidemark.locations import Location
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.delta.result_tables import has_written_to
from tidemark.spark.columns.expressions import visible_of
from tidemark.spark.columns.replaced_sessions import LISTED, starts_of
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.local_sinks import ConsoleSink, MemorySink
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SINK_COMPRESSION = "snappy"


class Sink(Protocol):
    """Where an output's rows go. Publishing is idempotent: an epoch published twice is there once (see each sink)."""

    @property
    def kind(self) -> str:
        """``delta``, ``parquet``, ``console`` or ``memory``."""
        ...

    @property
    def location(self) -> str | None:
        """Where readers find the rows, None where they are nowhere but here."""
        ...

    @property
    def staging(self) -> JobStore:
        """The store that files are staged in; their paths in a record are relative to it."""
        ...

    @property
    def starts_only(self) -> bool:
        """Whether an earlier release made the place, so that its ``replaces`` takes starts alone; known once ``check`` was called."""
        ...

    def check(self, schema: T.StructType) -> None:
        """Raise SinkError when rows of this type cannot go here. Called before anything is staged."""
        ...

    def staging_folder(self, name: str) -> str:
        """Return the folder for one staging, under a name that readers do not take for data."""
        ...

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Make the staged rows of a committed epoch visible, once."""
        ...

    @property
    def position(self) -> SinkPosition | None:
        """Where the place stood when it was last looked at, None before that or where nothing is kept."""
        ...

    def expect(self, expected: Expected) -> None:
        """Say what the job's log knows of the place; called at the start, before anything else."""
        ...

    def require_whole(self) -> None:
        """Raise MissingEpochsError when the place no longer holds what was published to it. Called before anything is staged."""
        ...

    def adopt(self) -> None:
        """Take the place as it is for what it should be: a gap was accepted."""
        ...

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        """Return those of some epochs that the place does not hold, as far as it tells."""
        ...

    def require_republishable(self, retained: Retained) -> None:
        """Raise MissingEpochsError when what the place no longer holds of some epochs cannot be published again; nothing is changed."""
        ...

    def republish(self, retained: Retained) -> tuple[int, ...]:
        """Publish again what the place no longer holds of some epochs, and return the numbers of all that were since it was whole.

        Of a place that a start before this one made whole that is learnt, and nothing is published. Raises as ``require_republishable``.
        """
        ...

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that readers can see, None where there is none or it cannot be known."""
        ...

    def visible_files(self) -> frozenset[str]:
        """Return the staged files that readers are shown now, relative to ``staging``; a sweep leaves them alone in any case."""
        ...


@dataclass(frozen=True)
class BoundSink:
    """An output's name and its sink."""

    name: str
    sink: Sink

    def accepts(self, record: OutputRecord) -> bool:
        """Whether a record's files were staged for this sink: of the same kind, and at the same place."""
        return record.sink == self.sink.kind and record.location == self.sink.location

    def stage(self, rows: DataFrame, lineage: str, epoch: int) -> OutputRecord:
        """Write an epoch's rows where they will lie, without anything that refers to them; one Spark job.

        Args:
            rows: of the output; columns of the engine's own order the rows of an upsert, and are not written.
            lineage: the job's.
            epoch: the epoch at hand.
        """
        visible = rows.drop(*(name for name in rows.columns if name not in visible_of(rows.columns)))
        schema = nullable(visible.schema)
        self.sink.require_whole()
        self.sink.check(schema)
        folder = self.sink.staging_folder(new_staging(lineage, epoch))
        upsert = self.sink.upsert if isinstance(self.sink, DeltaSink) else None
        if self.sink.starts_only:
            if upsert is not None:
                rows, upsert = rows.withColumn(LISTED, F.col(REPLACES)), replace(upsert, listed=LISTED)
            rows, visible = (frame.withColumn(REPLACES, F.expr(starts_of(REPLACES))) for frame in (rows, visible))
            schema = nullable(visible.schema)
        newest = upsert.newest(rows) if upsert else None
        files = write_folder(newest.rows if newest else visible, self.sink.staging, folder, compression=SINK_COMPRESSION)
        return OutputRecord(
            sink=self.sink.kind,
            location=self.sink.location,
            schema=schema.json(),
            files=tuple(file.as_staged_file() for file in files),
            rows=newest.emitted(files, self.name) if newest else sum(file.rows for file in files),
            options=newest.options if newest else {},
        )

    def empty_record(self) -> OutputRecord:
        """Return the record of an epoch without rows for this output."""
        return OutputRecord(sink=self.sink.kind, location=self.sink.location)

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Make the rows visible, if there are any."""
        if record.files:
            self.sink.publish(record, lineage, epoch)


def require_not_ahead(sinks: Mapping[str, BoundSink], lineage: str, epoch: int) -> None:
    """Make sure that no output has epochs that the job's log does not know.

    Args:
        sinks: of the job's outputs, by name.
        lineage: the job's.
        epoch: the newest one in the log, published already; -1 before the first.

    Raises:
        CorruptStoreError: an output is ahead. Its sink would take the epochs that come next for those it has, and drop their rows.
        SinkError: a place cannot be read.
    """
    for name, bound in sinks.items():
        newest = bound.sink.newest(lineage)
        if newest is not None and newest > epoch:
            known = f"ends at epoch {epoch}" if epoch >= 0 else "has no epoch"
            raise CorruptStoreError(
                f"output {name!r} at {bound.sink.location} holds epoch {newest} of this job, and the job's log {known}: records are "
                "lost, or an old copy of the job store was put back",
                fix=f"put back the job store as it was after epoch {newest}, or give the job another name and its outputs other paths, "
                "which reads all input again; nothing was changed",
                uid=name,
                place=bound.sink.location,
            )


def bind_sinks(outputs: Mapping[str, Output], job: JobStore) -> dict[str, BoundSink]:
    """Return the sinks of a job's outputs. ``job`` is the store at the job's folder.

    Raises:
        SinkError: a sink's place cannot be reached.
    """
    return {name: BoundSink(name, _opened(name, output, job)) for name, output in outputs.items()}


def sink_for(name: str, record: OutputRecord, sinks: Mapping[str, BoundSink], job: str) -> BoundSink | None:
    """Return the sink that an epoch's rows of an output go to: the job's, or a former one where they were staged for that.

    Args:
        name: of the output.
        record: of it, in the epoch.
        sinks: of the job's outputs, by name.
        job: whose epoch it is.
    """
    bound = sinks.get(name)
    return bound if bound is not None and bound.accepts(record) else sink_of_record(name, record, job)


def sink_of_record(name: str, record: OutputRecord, job: str, *, maintained: bool = True) -> BoundSink | None:
    """Return the sink of an output that the job no longer has, so that a committed epoch of it can still be published.

    None for outputs that live within one process: there is nobody left to show them to.

    Args:
        name: of the output.
        record: of it, in an epoch.
        job: whose it is.
        maintained: as for ``DeltaSink``.
    """
    if record.location is None:
        return None
    if record.sink != "delta":
        # Whether its readers move files, nobody says any more.
        return BoundSink(name, ParquetSink(name, record.location, job=job, readers_move_files=True))
    return BoundSink(name, DeltaSink(name, record.location, job=job, maintained=maintained))


def nullable(schema: T.StructType) -> T.StructType:
    """Return the schema with every column, and all within, nullable: rows of a later epoch may have nulls where those of this have none."""
    return T.StructType([T.StructField(field.name, _nullable(field.dataType), nullable=True) for field in schema])


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return nullable(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), containsNull=True)
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType), valueContainsNull=True)
    return kind


def _was_written_to(job: JobStore, name: str, place: str) -> bool:
    """Whether an epoch of the job has a place for an output; ``job`` is the store at the job's folder."""
    return has_written_to(JobLog(job, _name_of(job)).load().epoch, name, place)


def _name_of(job: JobStore) -> str:
    return job.prefix.rpartition("/")[2]


def _opened(name: str, output: Output, job: JobStore) -> Sink:
    try:
        return _sink(name, output, job)
    except StoreError as error:
        raise SinkError(
            f"the place of output {name!r} cannot be opened: {error.what}",
            fix="give the path of a folder that can be made and written to",
            uid=name,
            place=output.place,
        ) from error


def _sink(name: str, output: Output, job: JobStore) -> Sink:
    match output.sink:
        case DeltaSpec(path, mode, keys):
            place = str(Location.parse(path))
            own = partial(_was_written_to, job, name, place)
            return DeltaSink(name, path, Upsert(keys) if mode == "upsert" else None, own=own, job=_name_of(job))
        case ParquetSpec(path, readers_move_files):
            return ParquetSink(name, path, job=_name_of(job), readers_move_files=readers_move_files)
        case ConsoleSpec(rows):
            return ConsoleSink(name, rows, job)
        case MemorySpec(table):
            return MemorySink(name, table, job)
    raise SinkError(
        f"output {name!r} has no sink that this engine knows", fix="use tm.delta, tm.parquet, tm.console or tm.memory", uid=name
    )
