"""Exporting a savepoint: all its files into one folder, which can be moved, kept elsewhere, and imported into another store."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from tidemark.crashpoints import crash_point
from tidemark.errors import DefinitionError
from tidemark.locations import Location
from tidemark.savepoints.export.export_format import (
    INDEX,
    PARTIAL,
    RECORD,
    CopyProgress,
    ExportedFile,
    ExportIndex,
    OnCopy,
    copy_all,
    encode_record,
    read_index,
    with_paths,
    write_index,
)
from tidemark.savepoints.model.savepoint import Savepoint, SavepointInfo
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope, sha256
from tidemark.state.gc.state_file_check import owner_store
from tidemark.state.log.records import EpochRecord, StateFile
from tidemark.state.store.store import JobStore

NOTE: Final = "export-note"


def export_savepoint(folder: JobStore, savepoint: Savepoint, to: str, *, on_copy: OnCopy | None = None) -> ExportIndex:
    """Export a savepoint into a folder, and return the index; an interrupted export resumes where it stopped.

    Args:
        folder: the store at the savepoint's job's folder.
        savepoint: to export.
        to: the folder, local or of an object store.
        on_copy: called after each file.

    Raises:
        DefinitionError: the folder holds something else.
        CorruptStoreError: a file of the savepoint's is missing, or of another length.
    """
    target = JobStore.open(Location.parse(to))
    there = read_index(target)
    if there is not None:
        # A savepoint that was changed and imported is of the same epoch, and has another state.
        whose = savepoint.job, savepoint.taken_at, savepoint.record.lineage, savepoint.record.epoch
        if (there.job, there.taken_at, there.lineage, there.epoch) != whose:
            raise _other(target, f"savepoint {there.name!r} of job {there.job!r}")
        return there
    known = _notes(target, savepoint)
    record, wanted = _relocated(folder, savepoint)
    reporter = _ProgressReporter(wanted, on_copy)
    sizes = {file.path: file.size for file in target.list() if file.path in known}
    copies = []
    for home, path, file in wanted:
        noted = known.get(file.path)
        if noted is not None and sizes.get(file.path) == noted.bytes:
            reporter(noted)
        else:
            copies.append((home, path, file))

    def done(file: ExportedFile) -> None:
        target.put(_note_path(file.path), encode_envelope(NOTE, to_jsonable(file)))
        crash_point("export-copied")
        reporter(file)

    copied = {file.path: file for file in copy_all(copies, target, done=done)}
    files = [copied.get(file.path) or known[file.path] for _, _, file in wanted]
    return _finish(target, record, savepoint.info, files, job=savepoint.job, name=savepoint.name, at=savepoint.taken_at)


def finish_export(target: JobStore, record: EpochRecord, info: SavepointInfo, *, job: str, name: str, at: int) -> ExportIndex:
    """Make an export of a folder whose state files were written in place.

    Args:
        target: the folder.
        record: names the files by their paths in the folder, and no other job's.
        info: the savepoint's metadata.
        job: the job that owns the savepoint.
        name: its name.
        at: when it was made, milliseconds.
    """
    paths = [file.path for operator in record.operators.values() for file in operator.files]
    paths += [file.path for log in record.source_logs.values() for file in log.files]
    return _finish(target, record, info, [_summed(target, path) for path in paths], job=job, name=name, at=at)


class _ProgressReporter:
    """Adds up the files that are copied and reports the progress."""

    def __init__(self, wanted: Iterable[tuple[JobStore, str, ExportedFile]], on_copy: OnCopy | None) -> None:
        files = [file for _, _, file in wanted]
        self._of_files, self._of_bytes = len(files), sum(file.bytes for file in files)
        self._files = self._bytes = 0
        self._on_copy = on_copy
        self._lock = threading.Lock()

    def __call__(self, file: ExportedFile) -> None:
        with self._lock:
            self._files, self._bytes = self._files + 1, self._bytes + file.bytes
            if self._on_copy is not None:
                self._on_copy(CopyProgress(self._files, self._of_files, self._bytes, self._of_bytes))


def _relocated(folder: JobStore, savepoint: Savepoint) -> tuple[EpochRecord, list[tuple[JobStore, str, ExportedFile]]]:
    """Return the record as it will be in the export, and the files to copy."""
    stored = savepoint.record
    files = [file for operator in stored.operators.values() for file in operator.files]
    state = {(file.owner, file.path): _path_of(file) for file in files}
    wanted = [(owner_store(folder, file), file.path, ExportedFile(_path_of(file), file.bytes, "")) for file in files]
    logs = [file for log in stored.source_logs.values() for file in log.files]
    wanted += [(folder, file.path, ExportedFile(file.path, file.bytes, file.sha256)) for file in logs]
    return with_paths(stored, state, {file.path: file.path for file in logs}), wanted


def _path_of(file: StateFile) -> str:
    """Return the path of a state file in an export; files of two jobs may have the same path in their folders."""
    return f"state/of-{file.owner}/{file.path.partition('/')[2]}" if file.owner else file.path


def _finish(
    target: JobStore, record: EpochRecord, info: SavepointInfo, files: list[ExportedFile], *, job: str, name: str, at: int
) -> ExportIndex:
    data, segments = encode_record(record)
    small = {**segments, RECORD: data}
    for path, content in small.items():
        target.put(path, content)
    listed = [*files, *(ExportedFile(path, len(content), sha256(content)) for path, content in small.items())]
    index = ExportIndex(job, name, at, record.lineage, record.epoch, info, tuple(sorted(listed, key=lambda file: file.path)))
    crash_point("export-copied")
    write_index(target, index)
    target.remove_folder(PARTIAL)
    return index


def _notes(target: JobStore, savepoint: Savepoint) -> dict[str, ExportedFile]:
    """Return the files that an interrupted export has copied; the first note names its savepoint."""
    record = savepoint.record
    whose = {"job": savepoint.job, "lineage": record.lineage, "epoch": record.epoch, "taken_at": savepoint.taken_at}
    first = f"{PARTIAL}/savepoint.json"
    listed = [file.path for file in target.list()]
    if not listed:
        target.put(first, encode_envelope(NOTE, whose))
        return {}
    if first not in listed:
        raise _other(target, "other files")
    _, found = decode_envelope(target.get(first), kind=NOTE, path=first)
    # Older releases did not record when it was taken.
    if found != {key: whose.get(key) for key in found}:
        raise _other(target, f"an unfinished export of job {found.get('job')!r}, epoch {found.get('epoch')}")
    notes = [path for path in listed if path.startswith(f"{PARTIAL}/") and path != first]
    files = [from_jsonable(ExportedFile, decode_envelope(target.get(path), kind=NOTE, path=path)[1], path=path) for path in notes]
    return {file.path: file for file in files}


def _note_path(path: str) -> str:
    return f"{PARTIAL}/{sha256(path.encode())[:32]}.json"


def _summed(target: JobStore, path: str) -> ExportedFile:
    data = target.get(path)
    return ExportedFile(path, len(data), sha256(data))


def _other(target: JobStore, what: str) -> DefinitionError:
    return DefinitionError(f"the folder {target.location} holds {what}", fix=f"export to an empty folder (an export has an {INDEX})")
