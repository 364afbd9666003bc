"""The input of a Spark batch: which files and offsets it reads of each source, and a digest that identifies it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError

from tidemark.errors import OffsetMismatchError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec, ElementsSpec, FilesSpec, FormatSpec
from tidemark.semantics.watermarks.watermarks import SourceEnd
from tidemark.spark.columns.few_rows import FEW_BYTES, FEW_ROWS, local_path
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.delta_tables.positions import is_in_snapshot
from tidemark.spark.sources.source_ends import elements_end, files_end, format_end, may_have_unseen_rows
from tidemark.state.encoding.envelope import canonical
from tidemark.state.log.offset_log import files_of, log_offset, positions
from tidemark.state.log.records import EpochRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_CALLS: Final = 100


@dataclass(frozen=True)
class EpochInput:
    """The input of an epoch.

    ``offsets`` is the text of Spark's offset log, ``before`` and ``now`` the sources' positions, ``files`` the new files of file
    sources, ``polled_at`` the processing time at which Spark polled the sources (None: when the batch came).
    ``batch`` is false for an epoch without input. ``sizes`` are the bytes of a source's files together, where a listing has them. Of other
    sources that are read without a query, ``reads`` return the rows, and ``rows`` are their numbers, where these are known;
    ``caught_up`` says of some of them whether nothing is left to read. ``topics`` are the ids of Kafka's topics, by source, where they were
    asked for. A source whose topic was made again, and is read from its beginning, has that as its position ``before``. ``listed_at`` are
    the processing times at which folders were listed: a listing may be read by several epochs.
    """

    offsets: str = ""
    before: Mapping[str, object] = field(default_factory=dict)
    now: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    polled_at: int | None = None
    batch: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, Callable[[], DataFrame]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    caught_up: Mapping[str, bool] = field(default_factory=dict)
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    listed_at: Mapping[str, int] = field(default_factory=dict)

    def has_new_data(self, source: str) -> bool:
        """Whether a source may have rows in this epoch."""
        return self.batch and source in self.now and self.now[source] != self.before.get(source)

    def moved(self, source: str) -> tuple[object, object]:
        """Return a source's positions before and after the epoch, None for none."""
        return self.before.get(source), self.now.get(source)

    def topics_after(self, before: EpochRecord | None) -> dict[str, Mapping[str, str]]:
        """Return the ids of topics, by source, to which the positions after the epoch belong; ``before`` is the epoch before."""
        known = {**(before.topics if before is not None else {}), **self.topics}
        return {name: ids for name, ids in known.items() if ids and name in self.now}

    def has_few_bytes(self, source: str) -> bool:
        """Whether a source's rows come from files that are small together; False where that is not known."""
        addresses = self.files.get(source, ())
        if not 0 < len(addresses) <= _MAX_CALLS:
            return False
        if source in self.sizes:
            return self.sizes[source] <= FEW_BYTES
        paths = [path for path in map(local_path, addresses) if path is not None]
        try:
            return len(paths) == len(addresses) and sum(path.stat().st_size for path in paths) <= FEW_BYTES
        except OSError:
            return False

    def has_few_rows(self, source: str) -> bool:
        """Whether a source that is no folder has few rows; False where that is not known."""
        return self.rows.get(source, FEW_ROWS + 1) <= FEW_ROWS

    @property
    def copied(self) -> dict[str, object]:
        """The positions, by source, of sources whose rows were copied to the job's folder for this epoch."""
        return {name: position for name, position in self.now.items() if self.has_new_data(name) and files_of(position)}

    def digest(self, *, end_of_input: bool) -> str:
        """Return a checksum that two epochs share only when they read the same input."""
        what = [self.batch, end_of_input, dict(self.now), {name: list(files) for name, files in self.files.items()}]
        return hashlib.sha256(canonical(what)).hexdigest()

    def end(self, spark: SparkSession, source: SourceNode, *, anyway: bool = False) -> SourceEnd:
        """Return how far this epoch reads a source.

        Args:
            spark: used to get the sizes of files.
            source: with the bounds that it was opened with.
            anyway: determine it also for a source that cannot become idle, unless that takes long; then it is unknown.
        """
        spec = source.spec
        # The files of a snapshot are in no order of their rows' times.
        holds = isinstance(spec, DeltaTableSpec) and source.watermarks.timestamp is not None and is_in_snapshot(self.now.get(source.name))
        if not self.batch:
            return SourceEnd(caught_up=not may_have_unseen_rows(spec), polled_at=self.polled_at, holds_watermark=holds)
        if isinstance(spec, ElementsSpec):
            return elements_end(len(spec.batches), log_offset(self.now.get(source.name)) + 1)
        if source.name in self.caught_up:
            polled_at = self.listed_at.get(source.name, self.polled_at)
            return SourceEnd(caught_up=self.caught_up[source.name], polled_at=polled_at, holds_watermark=holds)
        end = SourceEnd()
        # Only idleness and adaptive intake need it.
        if anyway or source.watermarks.idle_after_ms is not None:
            files = self.files.get(source.name, ())
            if isinstance(spec, FilesSpec) and source.watermarks.idle_after_ms is None and _slow_to_measure(spec, files):
                end = SourceEnd(known=False)
            elif isinstance(spec, FilesSpec):
                end = files_end(spec, len(files), self._size(spark, source.name) if spec.max_files_per_epoch is None else None)
            elif isinstance(spec, FormatSpec):
                end = format_end(spec, self.before.get(source.name), self.now.get(source.name))
        return replace(end, polled_at=self.polled_at, holds_watermark=holds)

    def _size(self, spark: SparkSession, source: str) -> int | None:
        """Return the bytes of a source's files together; None where one cannot be read."""
        if source in self.sizes:
            return self.sizes[source]
        try:
            return sum(_bytes_of(spark, address) for address in self.files.get(source, ()))
        except (OSError, Py4JJavaError):
            return None


def input_of_batch(
    checkpoint: SparkCheckpoint, sources: Sequence[SourceNode], *, offsets: str, before: str, polled_at: int | None
) -> EpochInput:
    """Return the input of a batch.

    Args:
        checkpoint: Spark's.
        sources: of the job.
        offsets: of the batch.
        before: of the epoch before, empty for none.
        polled_at: the processing time at which Spark polled the sources, None for now.
    """
    earlier, now = positions(before), positions(offsets)
    files = {
        source.name: checkpoint.files(source.name, log_offset(earlier.get(source.name)), log_offset(now.get(source.name)))
        for source in sources
        if isinstance(source.spec, ElementsSpec | FilesSpec) and now.get(source.name) != earlier.get(source.name)
    }
    return EpochInput(offsets, earlier, now, files, polled_at, batch=True)


def _slow_to_measure(spec: FilesSpec, addresses: Sequence[str]) -> bool:
    """Whether the sizes of files are needed and each takes a call over the network."""
    return spec.max_files_per_epoch is None and len(addresses) > _MAX_CALLS and not addresses[0].startswith("file:")


def _bytes_of(spark: SparkSession, address: str) -> int:
    local = local_path(address)
    if local is not None:
        return local.stat().st_size
    # PySpark has no API for a file's size.
    context = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(address)  # type: ignore[union-attr]  # noqa: SLF001
    return int(path.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(path).getLen())  # noqa: SLF001


def committed_batch(head: EpochRecord | None, epoch: int, offsets: str, *, job: str) -> EpochRecord:
    """Return the record of a batch that Spark runs again after its epoch was committed.

    Args:
        head: the newest record.
        epoch: that the batch is.
        offsets: that the batch comes with.
        job: the job's name.

    Raises:
        OffsetMismatchError: the epoch was committed with other offsets.
    """
    if head is None or head.epoch != epoch or positions(head.offsets) != positions(offsets):
        raise OffsetMismatchError(
            "the epoch is committed with other source offsets than its batch has now",
            fix="start the job again; it continues from its own log, not from Spark's checkpoint",
            job=job,
            epoch=epoch,
        )
    return head
