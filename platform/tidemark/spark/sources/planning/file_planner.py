"""Plans a source of files: the files of a folder, or the elements of the program, of which each batch is a file.

It keeps the log of files read in the format of Spark's file source, so that a query can resume where it stopped, and the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import ElementsSpec, FilesSpec
from tidemark.spark.env.file_systems import readable
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.intake_limits import DEFAULT_BYTES_PER_EPOCH
from tidemark.spark.sources.planning.folder_listing import FolderListing, ListedFile, is_listable
from tidemark.spark.sources.planning.source_planner import Taken
from tidemark.state.log.offset_log import log_offset
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_files(spec: object) -> bool:
    """Whether a source is elements of the program, or a folder whose files can be listed."""
    return isinstance(spec, ElementsSpec) or (isinstance(spec, FilesSpec) and is_listable(spec))


def written_by_query(spark: SparkSession, sources: Sequence[SourceNode]) -> bool:
    """Whether a query of Spark's writes a source's folder: then its log says which files to read. Also where that cannot be known."""
    try:
        specs = [source.spec for source in sources if isinstance(source.spec, FilesSpec)]
        return any(_folder(spark, spec).written_by_query for spec in specs)
    except Py4JError:
        return True


class FilePlanner:
    """Plans one source.

    A listing is used until all of its files are read, as in Spark's file source: the next one follows then.

    Args:
        spark: the session.
        source: that ``has_files``.
        elements: the store of elements given in the program.
        checkpoint: with the log of the files read.
    """

    def __init__(self, spark: SparkSession, source: SourceNode, elements: JobStore, checkpoint: SparkCheckpoint) -> None:
        self._name = source.name
        self._is_elements = isinstance(source.spec, ElementsSpec)
        self._checkpoint = checkpoint
        self._listing = _listing(spark, source, elements)
        self._read = set(checkpoint.files_read(source.name))
        self._unread: Sequence[ListedFile] = ()

    @property
    def has_unread(self) -> bool:
        """Whether a file of the last listing is not read yet."""
        return bool(self._unread)

    def look(self) -> None:
        """List the folder, if the last listing is used up."""
        if not self._unread:
            unread = [file for file in self._listing.files() if file.address not in self._read]
            # The names of elements say their order; on an object store their times need not.
            self._unread = sorted(unread, key=lambda file: file.address) if self._is_elements else unread

    def fix_end(self) -> None:
        """Do nothing: a listing ends where it was made."""

    def take(self, source: SourceNode, before: object) -> Taken | None:
        """Return the files of the next epoch, and note them in the log of files read."""
        files = self._unread[: _count(source, self._unread)]
        if not files:
            return None
        self._unread = self._unread[len(files) :]
        self._read.update(file.address for file in files)
        number = log_offset(before) + 1
        self._checkpoint.log_files(self._name, number, [self._line(number, file) for file in files])
        caught_up = None if self._is_elements else not self._unread
        addresses, size = [file.address for file in files], sum(file.bytes for file in files)
        return Taken({"logOffset": number}, addresses, size, caught_up=caught_up)

    def committed(self, position: object) -> None:
        """Do nothing."""

    def metrics(self) -> Mapping[str, object]:
        """Return nothing: unread files are counted in the folder."""
        return {}

    def close(self) -> None:
        """Do nothing."""

    def _line(self, number: int, file: ListedFile) -> str:
        entry = {"path": self._listing.encoded(file.address), "timestamp": file.modified_ms, "batchId": number}
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
