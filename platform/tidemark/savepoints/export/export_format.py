"""The format of an exported savepoint: one self-contained folder, and an index with checksums, written last.

================  ============================================================================================
``index.json``    the savepoint's metadata, and every file with its length and SHA-256; without it, it is no export
``record.json``   the epoch's record, with paths inside this folder
``segments/``     lists of files that the record refers to
``state/``        the operators' state
``sources/``      copies of the sources' own logs
``partial/``      notes on the files copied so far, deleted once the index is written
================  ============================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256 as new_sha256
from typing import Final

from tidemark.errors import CorruptStoreError
from tidemark.savepoints.model.savepoint import SavepointInfo
from tidemark.state.encoding.envelope import damaged, sha256
from tidemark.state.log.epoch_codec import SegmentRef, decode_epoch, encode_epoch
from tidemark.state.log.records import EpochRecord, OperatorState, SourceLogRef
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import SOURCES, STATE, is_source_log, segment_path
from tidemark.state.store.store import JobStore

KIND: Final = "savepoint-export"
INDEX: Final = "index.json"
RECORD: Final = "record.json"
PARTIAL: Final = "partial"
THREADS: Final = 8

BAD_EXPORT: Final = "export the savepoint again; nothing was changed"


@dataclass(frozen=True)
class ExportedFile:
    """A file of an export, by its path in the folder."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ExportIndex:
    """The contents of an export; ``job`` and ``name`` are those of the exported savepoint, ``taken_at`` is in milliseconds."""

    job: str
    name: str
    taken_at: int
    lineage: str
    epoch: int
    info: SavepointInfo
    files: tuple[ExportedFile, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class CopyProgress:
    """The progress of a copy: files and bytes copied, and how many there are in all."""

    files: int
    of_files: int
    bytes: int
    of_bytes: int


OnCopy = Callable[[CopyProgress], None]


def with_paths(record: EpochRecord, state: Mapping[tuple[str, str], str], sources: Mapping[str, str]) -> EpochRecord:
    """Return a record with other paths, all in the job's own folder; outputs are left out, since they were published.

    Args:
        record: the record.
        state: new paths of state files, by owner and path.
        sources: new paths of the sources' log files, by path.
    """

    def moved(operator: OperatorState) -> OperatorState:
        return replace(operator, files=tuple(replace(file, path=state[file.owner, file.path], owner="") for file in operator.files))

    return replace(
        record,
        operators={uid: moved(operator) for uid, operator in record.operators.items()},
        source_logs={
            name: SourceLogRef(tuple(replace(file, path=sources[file.path]) for file in log.files))
            for name, log in record.source_logs.items()
        },
        outputs={},
    )


def encode_record(record: EpochRecord) -> tuple[bytes, dict[str, bytes]]:
    """Return a record's bytes, and those of its segments by path."""
    segments: dict[str, bytes] = {}

    def write(data: bytes) -> SegmentRef:
        ref = SegmentRef(segment_path(0, sha256(data)), sha256(data))
        segments[ref.path] = data
        return ref

    return encode_epoch(record, {}, write)[0], segments


def copy_all(
    copies: Iterable[tuple[JobStore, str, ExportedFile]], target: JobStore, *, done: Callable[[ExportedFile], None]
) -> list[ExportedFile]:
    """Copy files, several at a time and piece by piece.

    Args:
        copies: the source of each file, by store and path, and its entry in the target; an empty checksum is computed, another is
            compared with the bytes read.
        target: the folder to copy to.
        done: called after each file, by one thread at a time, in any order.

    Raises:
        CorruptStoreError: a file is missing, or differs from its entry.
    """
    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(_copy, store, path, target, wanted) for store, path, wanted in copies]
        found = []
        try:
            for copy in running:
                found.append(copy.result())
                done(found[-1])
        except BaseException:
            for copy in running:
                copy.cancel()
            raise
    return found


def write_index(target: JobStore, index: ExportIndex) -> None:
    """Write the index, which makes the folder an export."""
    write_document(target, INDEX, kind=KIND, value=index)


def read_index(source: JobStore) -> ExportIndex | None:
    """Return the index of an export, None if there is none: the folder is no export, or an unfinished one.

    Raises:
        CorruptStoreError: it is damaged.
        FormatError: a newer release wrote it.
    """
    return read_document(source, INDEX, kind=KIND, form=ExportIndex)


def require_index(source: JobStore) -> ExportIndex:
    """Return the index of an export.

    Raises:
        CorruptStoreError: there is none, or it is damaged.
    """
    found = read_index(source)
    if found is None:
        half = bool(source.list(PARTIAL))
        what = "holds an unfinished export" if half else "holds no exported savepoint"
        raise CorruptStoreError(
            f"{source.location} {what} ({INDEX} is missing)",
            fix="export again to the same folder, which resumes where it stopped" if half else "name the folder that was exported to",
            place=str(source.location),
        )
    return found


def read_record(source: JobStore, index: ExportIndex) -> EpochRecord:
    """Return the record of an export, with paths inside its folder.

    Raises:
        CorruptStoreError: it, or one of its segments, does not match the index; or it names files that no export has.
    """
    stated = {file.path: file for file in index.files}

    def read(path: str) -> bytes:
        try:
            data = source.get(path)
        except FileNotFoundError as error:
            raise damaged("is missing", source.spark_uri(path), fix=BAD_EXPORT) from error
        if path not in stated or sha256(data) != stated[path].sha256:
            raise damaged("does not match the export's index", source.spark_uri(path), fix=BAD_EXPORT)
        return data

    record = decode_epoch(read(RECORD), path=source.spark_uri(RECORD), read_segment=lambda ref: read(ref.path)).record
    _require_own(record, source.spark_uri(RECORD))
    return record


def _require_own(record: EpochRecord, place: str) -> None:
    """Make sure that a record from elsewhere names its own files, each once: a job that resumes from it reads and writes these paths."""
    state = [file for operator in record.operators.values() for file in operator.files]
    logs = [file for log in record.source_logs.values() for file in log.files]
    paths = [*((file.path, STATE) for file in state), *((file.path, SOURCES) for file in logs)]
    odd = [path for path, folder in paths if not _is_within(path, folder)]
    odd += [f"{file.owner}:{file.path}" for file in state if file.owner]
    odd += [file.name for file in logs if not is_source_log(file.name)]
    odd += [path for path, count in Counter(path for path, _ in paths).items() if count > 1]
    if odd:
        raise damaged(f"names {odd[0]!r}, which no export of Tidemark's does", place, fix="import only what Tidemark exported")


def _is_within(path: str, folder: str) -> bool:
    first, *rest = path.split("/")
    return first == folder and bool(rest) and all(part not in ("", ".", "..") and "\\" not in part for part in rest)


def _copy(store: JobStore, path: str, target: JobStore, wanted: ExportedFile) -> ExportedFile:
    digest, length = new_sha256(), 0

    def pieces() -> Iterator[bytes]:
        nonlocal length
        for piece in store.chunks(path):
            digest.update(piece)
            length += len(piece)
            yield piece
        if length != wanted.bytes or wanted.sha256 not in ("", digest.hexdigest()):
            raise damaged(f"has changed: {length:,} bytes of {wanted.bytes:,}, or other contents", store.spark_uri(path))

    try:
        target.put_chunks(wanted.path, pieces())
    except FileNotFoundError as error:
        raise damaged("is missing", store.spark_uri(path)) from error
    except CorruptStoreError:
        target.delete([wanted.path])
        raise
    return ExportedFile(wanted.path, length, digest.hexdigest())
