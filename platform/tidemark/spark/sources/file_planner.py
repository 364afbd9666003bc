"""Plans the epochs of a job that reads only files: what each reads, without a query of Spark's.

It keeps the log of files read in the format of Spark's file source, so that a query can resume where it stopped, and the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from tidemark.graph.model.nodes import ElementsSpec, FilesSpec, SourceNode
from tidemark.spark.env.file_systems import readable
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.epoch_input import EpochInput
from tidemark.spark.sources.folder_listing import FolderListing, ListedFile, is_listable
from tidemark.spark.sources.intake_limits import DEFAULT_BYTES_PER_EPOCH
from tidemark.state.log.offset_log import log_offset, offset_entry, positions
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reads_only_files(sources: Sequence[SourceNode]) -> bool:
    """Whether all sources are elements of the program, or folders whose files can be listed."""
    return all(
        isinstance(source.spec, ElementsSpec) or (isinstance(source.spec, FilesSpec) and is_listable(source.spec)) for source in sources
    )


def written_by_query(spark: SparkSession, sources: Sequence[SourceNode]) -> bool:
    """Whether a query of Spark's writes a source's folder: then its log says which files to read. Also where that cannot be known."""
    try:
        specs = [source.spec for source in sources if isinstance(source.spec, FilesSpec)]
        return any(_folder(spark, spec).written_by_query for spec in specs)
    except Py4JError:
        return True


class FilePlanner:
    """Plans epochs.

    A listing is used until all of its files are read, as in Spark's file source: the next one follows then.

    Args:
        spark: the session.
        sources: of the job; all of them ``reads_only_files``.
        elements: the store of elements given in the program.
        checkpoint: with the log of the files read.
    """

    def __init__(self, spark: SparkSession, sources: Sequence[SourceNode], elements: JobStore, checkpoint: SparkCheckpoint) -> None:
        self._sources = sources
        self._elements = {source.name for source in sources if isinstance(source.spec, ElementsSpec)}
        self._checkpoint = checkpoint
        self._listings = {source.name: _listing(spark, source, elements) for source in sources}
        self._read = {source.name: set(checkpoint.files_read(source.name)) for source in sources}
        self._unread: dict[str, list[ListedFile]] = {source.name: [] for source in sources}

    @property
    def has_unread(self) -> bool:
        """Whether a file of the last listing is not read yet."""
        return any(self._unread.values())

    def list(self) -> bool:
        """List the folders whose last listing is used up; returns whether any file is unread."""
        for name, listing in self._listings.items():
            if not self._unread[name]:
                unread = [file for file in listing.files() if file.address not in self._read[name]]
                # The names of elements say their order; on an object store their times need not.
                self._unread[name] = sorted(unread, key=lambda file: file.address) if name in self._elements else unread
        return self.has_unread

    def plan(self, before: str, bounded: Sequence[SourceNode], *, polled_at: int | None) -> EpochInput:
        """Return the input of the next epoch, and note it in the log of files read.

        Args:
            before: offsets of the epoch before.
            bounded: the sources with the bounds of an epoch.
            polled_at: the processing time of the listing.
        """
        earlier = positions(before)
        taken = {source.name: self._take(source) for source in bounded}
        now = dict(earlier)
        for name, files in taken.items():
            if files:
                number = log_offset(earlier.get(name)) + 1
                now[name] = {"logOffset": number}
                self._checkpoint.log_files(name, number, [self._line(name, number, file) for file in files])
        addresses = {name: [file.address for file in files] for name, files in taken.items() if files}
        sizes = {name: sum(file.bytes for file in files) for name, files in taken.items() if files}
        offsets = offset_entry(before, {source.name: now.get(source.name) for source in self._sources})
        return EpochInput(offsets, earlier, positions(offsets), addresses, polled_at, batch=True, sizes=sizes)

    def _take(self, source: SourceNode) -> Sequence[ListedFile]:
        unread = self._unread[source.name]
        files = unread[: _count(source, unread)]
        self._unread[source.name] = unread[len(files) :]
        self._read[source.name].update(file.address for file in files)
        return files

    def _line(self, source: str, number: int, file: ListedFile) -> str:
        entry = {"path": self._listings[source].encoded(file.address), "timestamp": file.modified_ms, "batchId": number}
        return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def _count(source: SourceNode, files: Sequence[ListedFile]) -> int:
    """Return how many files an epoch takes, one at least if there is any."""
    spec = source.spec
    if not isinstance(spec, FilesSpec):
        return min(1, len(files))
    if spec.max_files_per_epoch is not None:
        return min(spec.max_files_per_epoch, len(files))
    most, size = spec.max_bytes_per_epoch or DEFAULT_BYTES_PER_EPOCH, 0
    for number, file in enumerate(files):
        size += file.bytes
        if size > most:
            return max(1, number)
    return len(files)


def _listing(spark: SparkSession, source: SourceNode, elements: JobStore) -> FolderListing:
    spec = source.spec
    return _folder(spark, spec) if isinstance(spec, FilesSpec) else FolderListing(spark, elements.spark_uri(source.name), {})


def _folder(spark: SparkSession, spec: FilesSpec) -> FolderListing:
    return FolderListing(spark, readable(spark, spec.path), spec.options)
