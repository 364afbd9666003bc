"""What each connector's sink does: how it stages an epoch's rows, how it publishes them, and what it knows of its place.

Rows are staged in the job's own folder, in a shape of the connector's, and deleted once they are published. So staged files that are gone
were published; where they are there, the connector decides by a marker that it keeps at the place together with the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tidemark.savepoints.delta.missing_records import Retained
from tidemark.spark.sinks.delta.delta_changes import Changes
from tidemark.spark.sinks.delta.delta_republish import cannot_republish
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.staging import folder_of
from tidemark.state.log.joblog import Driver
from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.layout import STAGING
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


@dataclass(frozen=True)
class SinkOwner:
    """Whose output it is.

    Args:
        job: the job's name.
        store: at the job's folder.
        confirm: raises FencedError when a newer driver has begun. A connector that fences older drivers calls it after it has done so: then
            a driver that was taken over before cannot publish any more, and one that is taken over later is fenced.
    """

    job: str
    store: JobStore
    confirm: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, driver: Driver) -> SinkOwner:
        """Return a driver as the owner."""
        return cls(driver.log.job, driver.log.store, driver.confirm)


@dataclass(frozen=True)
class StagedRows:
    """The rows of an epoch to stage.

    Args:
        rows: as they are written to files, which are published in the order of their names.
        schema: of the rows that the job gave the output.
        counted: returns, once the files are written, how many rows these were, and the options of the epoch's record.
    """

    rows: DataFrame
    schema: T.StructType
    counted: Callable[[Sequence[ParquetSummary]], tuple[int, dict[str, str]]] = field(
        default=lambda files: (sum(file.rows for file in files), {})
    )


class ConnectorSink(ABC):
    """The sink of one output; see ``tidemark.spark.sinks.sinks.Sink`` for what its methods are called for.

    Args:
        name: of the output.
        owner: whose it is.

    ``newest_staging`` is the folder that this process staged rows in last: their epoch cannot have been published before.
    """

    kind: ClassVar[str]
    starts_only = False

    def __init__(self, name: str, owner: SinkOwner) -> None:
        self.name = name
        self.owner = owner
        self.staging = owner.store
        self.expected = Expected()
        self.known: SinkPosition | None = None
        self.newest_staging = ""

    @property
    @abstractmethod
    def location(self) -> str:
        """Where readers find the rows, without credentials."""

    @abstractmethod
    def staged(self, rows: DataFrame, changes: Changes | None, *, epoch: int, processing_time: int) -> StagedRows:
        """Return an epoch's rows as they are to be staged; runs nothing.

        Args:
            rows: with the engine's own columns.
            changes: how rows of a changelog are identified, None for a stream that is only added to.
            epoch: the current one.
            processing_time: of it, milliseconds.
        """

    @abstractmethod
    def check(self, schema: T.StructType) -> None:
        """Raise SinkError when rows of this type cannot go there."""

    @abstractmethod
    def require_whole(self) -> None:
        """Make sure that the place can be published to; the first call connects, and ends what an earlier driver left unfinished.

        Raises:
            SinkError: it cannot, and trying again does not help.
            PublishError: it cannot be reached now.
            FencedError: a newer driver has begun.
        """

    @abstractmethod
    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Make the staged rows of a committed epoch visible, and delete the staged files."""

    @abstractmethod
    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that the place has a marker of."""

    @property
    def record_options(self) -> Mapping[str, str]:
        """What a record needs for publishing it after the job has lost this output; without secrets."""
        return {}

    @property
    def position(self) -> SinkPosition | None:
        """The place's position when it was last checked, None before that."""
        return self.known

    def expect(self, expected: Expected) -> None:
        """Set what the job's log knows of the place."""
        self.expected = expected
        self.known = self.known if self.known is not None else expected.position

    def staging_folder(self, name: str) -> str:
        """Return a folder below the job's."""
        return f"{STAGING}/{self.name}/{name}"

    def is_staged(self, record: OutputRecord) -> bool:
        """Return whether an epoch's staged files are all there; they are deleted after its publication."""
        there = {file.path for file in self.staging.list(folder_of(record))}
        return all(file.path in there for file in record.files)

    def discard(self, record: OutputRecord) -> None:
        """Delete an epoch's staged files."""
        self.staging.remove_folder(folder_of(record))

    def adopt(self) -> None:
        """Accept the place as it is."""
        self.expected = Expected(self.known)

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:  # noqa: ARG002 - the protocol's
        """Return nothing: readers of the place may have removed what was published."""
        return ()

    def require_republishable(self, retained: Retained) -> None:  # noqa: ARG002 - the protocol's
        """Raise MissingEpochsError: staged files are deleted after publication."""
        raise cannot_republish(self.name, self.owner.job, self.location, "their staged files were deleted after publication")

    def republish(self, retained: Retained) -> tuple[int, ...]:
        """Raise as ``require_republishable``."""
        self.require_republishable(retained)
        return ()

    def visible_files(self) -> frozenset[str]:
        """Return nothing: readers see records, not the staged files."""
        return frozenset()
