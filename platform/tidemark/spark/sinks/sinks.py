"""Sinks: rows are staged as Parquet before the epoch's record is put, and published from the record after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import CorruptStoreError, SinkError, StoreError
from tidemark.graph.checks.changelogs import changelog_keys, is_net
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import ConsoleSpec, DeltaSpec, MemorySpec, Output, ParquetSpec
from tidemark.graph.operators.window.columns import REPLACES
from tidemark.locations import Location
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.delta.result_tables import has_written_to
from tidemark.spark.columns.expressions import visible_part
from tidemark.spark.columns.replaced_sessions import LISTED, starts_of
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.prepared.prepared_pass import Frame
from tidemark.spark.prepared.prepared_plan import PassRows, WrittenRows
from tidemark.spark.sinks.connectors import open_connector, reopen_connector
from tidemark.spark.sinks.delta.delta_changes import Changes, changes_options, staged_history, staged_upsert, staged_versions
from tidemark.spark.sinks.delta.delta_descriptions import TableTexts
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.few_rows import stage_few, stage_written
from tidemark.spark.sinks.local_sinks import ConsoleSink, MemorySink
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.staging.connector_sink import ConnectorSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import SINK_COMPRESSION, new_staging, record_of
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import FOLDER_SINKS, EpochRecord, OutputRecord, SinkPosition, row_keys_option
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sink(Protocol):
    """The destination of an output's rows. Publishing is idempotent: an epoch published twice appears once (see each sink)."""

    @property
    def kind(self) -> str:
        """``delta``, ``parquet``, ``console``, ``memory``, or that of a connector."""
        ...

    @property
    def location(self) -> str | None:
        """Where readers find the rows, None where they stay within this process."""
        ...

    @property
    def staging(self) -> JobStore:
        """The store that files are staged in; their paths in a record are relative to it."""
        ...

    @property
    def starts_only(self) -> bool:
        """Whether an earlier release created the place, so that its ``replaces`` has starts only; known once ``check`` was called."""
        ...

    def check(self, schema: T.StructType) -> None:
        """Raise SinkError when rows of this type cannot go here. Called before anything is staged."""
        ...

    def staging_folder(self, name: str) -> str:
        """Return the folder for one staging, under a name that readers ignore."""
        ...

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Make the staged rows of a committed epoch visible, once."""
        ...

    @property
    def position(self) -> SinkPosition | None:
        """The place's position when it was last checked, None before that or where nothing is kept."""
        ...

    def expect(self, expected: Expected) -> None:
        """Set what the job's log knows of the place; called at the start, before anything else."""
        ...

    def require_whole(self) -> None:
        """Raise MissingEpochsError when the place no longer holds what was published to it. Called before anything is staged."""
        ...

    def adopt(self) -> None:
        """Accept the place as it is, with its missing epochs."""
        ...

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        """Return the retained epochs that the place does not hold, as far as it shows."""
        ...

    def require_republishable(self, retained: Retained) -> None:
        """Raise MissingEpochsError when retained epochs that the place no longer holds cannot be published again; nothing is changed."""
        ...

    def republish(self, retained: Retained) -> tuple[int, ...]:
        """Publish again the retained epochs that the place no longer holds; returns the numbers of all that were since it was whole.

        Where an earlier start did so already, nothing is published, but the numbers are returned. Raises as ``require_republishable``.
        """
        ...

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that readers can see, None where there is none or it cannot be known."""
        ...

    def visible_files(self) -> frozenset[str]:
        """Return the staged files that readers see now, relative to ``staging``; a sweep always leaves them alone."""
        ...


@dataclass(frozen=True)
class BoundSink:
    """An output's name and its sink.

    ``changes`` says how rows of a changelog are identified; None for streams that are added to. ``sequence`` is the column with the time
    from which a version is valid, None for that of the epoch.
    """

    name: str
    sink: Sink
    changes: Changes | None = None
    sequence: str | None = None

    def accepts(self, record: OutputRecord) -> bool:
        """Whether a record's files were staged for this sink: same kind, same place, and of connectors what they ask for beside."""
        same = record.sink == self.sink.kind and record.location == self.sink.location
        return same and (not isinstance(self.sink, ConnectorSink) or self.sink.accepts(record))

    def stage(self, rows: DataFrame, lineage: str, epoch: int, processing_time: int) -> OutputRecord:
        """Stage an epoch's rows, with nothing that refers to them yet; one Spark job.

        Args:
            rows: of the output; the engine's own columns order the rows of an upsert, and are not written.
            lineage: the job's.
            epoch: the current epoch.
            processing_time: of the epoch, milliseconds.
        """
        if isinstance(self.sink, ConnectorSink):
            return self.sink.stage(rows, self.changes, new_staging(lineage, epoch), epoch=epoch, processing_time=processing_time)
        if self.changes is not None or (self._upsert is not None and self._upsert.versions):
            return self._stage_changes(rows, new_staging(lineage, epoch), epoch, processing_time)
        visible = visible_part(rows)
        schema = nullable(visible.schema)
        self.sink.require_whole()
        self.sink.check(schema)
        folder = self.sink.staging_folder(new_staging(lineage, epoch))
        upsert = self._upsert
        if self.sink.starts_only:
            if upsert is not None:
                rows, upsert = rows.withColumn(LISTED, F.col(REPLACES)), replace(upsert, listed=LISTED)
            rows, visible = (frame.withColumn(REPLACES, F.expr(starts_of(REPLACES))) for frame in (rows, visible))
            schema = nullable(visible.schema)
        newest = upsert.newest(rows) if upsert else None
        files = write_folder(newest.rows if newest else visible, self.sink.staging, folder, compression=SINK_COMPRESSION)
        count = newest.emitted(files, self.name) if newest else None
        return record_of(self.sink, schema, files, newest.options if newest else {}, rows=count)

    def _stage_changes(self, rows: DataFrame, staging: str, epoch: int, processing_time: int) -> OutputRecord:
        """Stage the changes of a changelog, or versions of rows."""
        upsert = self._upsert
        if upsert is not None and upsert.versions:
            upsert = replace(upsert, follows=self.changes is not None)
            staged = staged_versions(rows, self.changes, upsert.keys, self.sequence, processing_time)
        elif self.changes is None:
            raise ValueError(f"output {self.name!r} has no changelog")
        else:
            staged = staged_history(rows, self.changes, epoch) if upsert is None else staged_upsert(rows, self.changes)
        schema = nullable(staged.rows.drop(*staged.apart).schema)
        self.sink.require_whole()
        self.sink.check(schema)
        folder = self.sink.staging_folder(staging)
        files = write_folder(staged.rows, self.sink.staging, folder, compression=SINK_COMPRESSION, apart=staged.apart)
        counts = changes_options(staged.emitted(files, self.name), staged.counts)
        return record_of(self.sink, schema, files, {**(upsert.options if upsert is not None else {}), **counts})

    @property
    def _upsert(self) -> Upsert | None:
        """How rows of a Delta table replace older ones, None where all are added."""
        return self.sink.upsert if isinstance(self.sink, DeltaSink) else None

    @property
    def takes_rows(self) -> bool:
        """Whether ``stage_rows`` can be called: rows are appended, or are changes that are appended as a history or upserted."""
        if isinstance(self.sink, ConnectorSink) or self.sink.starts_only:
            return False
        upsert = self._upsert
        return upsert is None or (self.changes is not None and not upsert.versions)

    def few_rows(self, rows: DataFrame, epoch: int) -> Frame:
        """Return the rows of an output as ``stage_rows`` takes them, and the observation whose values it reads, if any.

        Args:
            rows: of the output.
            epoch: the current one, which a history has in each row.
        """
        if self.changes is None:
            return visible_part(rows), ()
        staged = staged_history(rows, self.changes, epoch) if self._upsert is None else staged_upsert(rows, self.changes)
        return staged.rows, (staged.observation,)

    def stage_rows(self, rows: PassRows, lineage: str, epoch: int) -> OutputRecord:
        """Stage an epoch's rows that were read already, where the sink ``takes_rows``.

        Args:
            rows: of the frame that ``few_rows`` returned; the values of its observation are the last ones.
            lineage: the job's.
            epoch: the current epoch.
        """
        return stage_few(self.name, self.sink, self._upsert, rows, new_staging(lineage, epoch), changes=self.changes is not None)

    @property
    def takes_written(self) -> bool:
        """Whether ``stage_written`` can be called: rows are changes that are appended as a history."""
        return self.takes_rows and self.changes is not None and self._upsert is None

    def stage_written(self, rows: WrittenRows, lineage: str, epoch: int) -> OutputRecord | None:
        """Stage an epoch's rows, of the frame that ``few_rows`` returned, by several tasks; None where that failed."""
        return stage_written(self.name, self.sink, rows, new_staging(lineage, epoch))

    def empty_record(self) -> OutputRecord:
        """Return the record of an epoch without rows for this output; it still says by which keys the place was written."""
        keys = self.sink.row_keys if isinstance(self.sink, ConnectorSink) else self._upsert.keys if self._upsert is not None else ()
        return OutputRecord(sink=self.sink.kind, location=self.sink.location, options=row_keys_option(keys))

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
        CorruptStoreError: an output is ahead. Its sink would take the next epochs for those that it has, and drop their rows.
        SinkError: a place cannot be read.
    """
    for name, bound in sinks.items():
        newest = bound.sink.newest(lineage)
        if newest is not None and newest > epoch:
            known = f"ends at epoch {epoch}" if epoch >= 0 else "has no epoch"
            raise CorruptStoreError(
                f"output {name!r} at {bound.sink.location} holds epoch {newest} of this job, and the job's log {known}: records are "
                "lost, or an old copy of the job store was restored",
                fix=f"restore the job store as it was after epoch {newest}, or give the job another name and its outputs other paths, "
                "which reads all input again; nothing was changed",
                uid=name,
                place=bound.sink.location,
            )


def bind_sinks(outputs: Mapping[str, Output], owner: SinkOwner) -> dict[str, BoundSink]:
    """Return the sinks of a job's outputs.

    Args:
        outputs: by name.
        owner: whose they are.

    Raises:
        SinkError: a sink's place cannot be reached.
    """
    return {
        name: BoundSink(name, _opened(name, output, owner), _changes_of(output), _sequence_of(output)) for name, output in outputs.items()
    }


def _changes_of(output: Output) -> Changes | None:
    keys = changelog_keys(output.node)
    return None if keys is None else Changes(keys, is_net(output.node))


def _sequence_of(output: Output) -> str | None:
    return output.sink.sequence if isinstance(output.sink, DeltaSpec) else None


def sink_for(
    name: str, record: OutputRecord, sinks: Mapping[str, BoundSink], job: str, *, owner: SinkOwner | None = None
) -> BoundSink | None:
    """Return the sink of an epoch's rows of an output: the job's, or a former one where they were staged for that.

    Args:
        name: of the output.
        record: of it, in the epoch.
        sinks: of the job's outputs, by name.
        job: whose epoch it is.
        owner: as for ``sink_of_record``.
    """
    bound = sinks.get(name)
    return bound if bound is not None and bound.accepts(record) else sink_of_record(name, record, job, owner=owner)


def sink_of_record(
    name: str, record: OutputRecord, job: str, *, maintained: bool = True, owner: SinkOwner | None = None, former: bool = True
) -> BoundSink | None:
    """Return the sink of an output that the job no longer has, so that its committed epoch can still be published.

    None for outputs that live within one process, which has ended.

    Args:
        name: of the output.
        record: of it, in an epoch.
        job: whose it is.
        maintained: as for ``DeltaSink``.
        owner: the job's store and the driver's term, for connectors, which stage in that store.
        former: as for ``reopen_connector``.
    """
    if record.location is None:
        return None
    if record.sink not in FOLDER_SINKS:
        if owner is None:
            raise TypeError(f"output {name!r} of kind {record.sink!r} is staged in the job's store, which is not given")
        connector = reopen_connector(name, record, owner, former=former)
        if connector is None:
            raise SinkError(
                f"an epoch has rows for output {name!r} of kind {record.sink!r}, which this release does not have",
                fix="run the job with the release that wrote them",
                uid=name,
            )
        return BoundSink(name, connector)
    if record.sink != "delta":
        # The job no longer says whether its readers move files.
        return BoundSink(name, ParquetSink(name, record.location, job=job, readers_move_files=True))
    return BoundSink(name, DeltaSink(name, record.location, job=job, maintained=maintained))


def _was_written_to(job: JobStore, name: str, place: str) -> bool:
    """Whether an epoch of the job wrote an output to a place; ``job`` is the store at the job's folder."""
    return has_written_to(JobLog(job, _name_of(job)).load().epoch, name, place)


def _name_of(job: JobStore) -> str:
    return job.prefix.rpartition("/")[2]


def _opened(name: str, output: Output, owner: SinkOwner) -> Sink:
    try:
        return _sink(name, output, owner)
    except StoreError as error:
        raise SinkError(
            f"the place of output {name!r} cannot be opened: {error.what}",
            fix="give the path of a folder that can be created and written to",
            uid=name,
            place=output.place,
        ) from error


def _sink(name: str, output: Output, owner: SinkOwner) -> Sink:
    job = owner.store
    match output.sink:
        case DeltaSpec(path, mode, keys):
            place = str(Location.parse(path))
            own = partial(_was_written_to, job, name, place)
            upsert = Upsert(keys, versions=mode == "scd2") if mode != "append" else None
            texts = TableTexts(output.description, dict(output.column_texts))
            return DeltaSink(name, path, upsert, own=own, job=owner.job, texts=texts)
        case ParquetSpec(path, readers_move_files):
            return ParquetSink(name, path, job=owner.job, readers_move_files=readers_move_files)
        case ConsoleSpec(rows):
            return ConsoleSink(name, rows, job)
        case MemorySpec(table):
            return MemorySink(name, table, job)
        case ConnectorSpec() as spec:
            return open_connector(name, output, spec, owner)
    raise SinkError(
        f"output {name!r} has no sink that this engine knows", fix="use tm.delta, tm.parquet, tm.console or tm.memory", uid=name
    )
