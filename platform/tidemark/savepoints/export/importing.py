"""Importing an exported savepoint into a job's folder, where it is a savepoint like any other."""

from __future__ import annotations

import secrets
from dataclasses import replace

from tidemark.crashpoints import crash_point
from tidemark.errors import TakenNameError
from tidemark.locations import Location
from tidemark.names import validate_name
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.export_format import (
    CopyProgress,
    ExportedFile,
    OnCopy,
    copy_all,
    encode_record,
    read_record,
    require_index,
    with_paths,
)
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.encoding.envelope import damaged
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.gc.file_references import FileReference, FileReferences
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import pin_path, source_folder
from tidemark.state.store.store import JobStore


def import_savepoint(
    savepoints: SavepointStore, source: str, *, name: str | None = None, by: str = "", on_copy: OnCopy | None = None
) -> Savepoint:
    """Copy an exported savepoint into a job's folder, and return it; every file's checksum is verified.

    The job need not have run yet. An unfinished import is no savepoint, and a later sweep deletes it.

    Args:
        savepoints: the savepoints of the job that imports it.
        source: the folder that was exported to.
        name: the savepoint's new name; by default the one it had.
        by: the user who imports it.
        on_copy: called after each file.

    Raises:
        InvalidNameError: the job has a savepoint of that name.
        DefinitionError: a text holds a secret.
        CorruptStoreError: the folder holds no complete export, or a file in it is damaged; nothing was imported.
    """
    require_no_secret(savepoints.job, by=by, name=name or "")
    origin = JobStore.open(Location.parse(source), make=False)
    index = require_index(origin)
    chosen = validate_name("savepoint", name or index.name)
    folder = savepoints.folder
    if folder.exists(pin_path(chosen)):
        raise TakenNameError(
            f"job {savepoints.job!r} has a savepoint {chosen!r} already", fix="import it under another name", job=savepoints.job
        )
    stored = read_record(origin, index)
    record, copies = _relocated(stored, {file.path: file for file in index.files}, secrets.token_hex(6), origin)
    data, segments = encode_record(record)
    reference = FileReference(
        f"import-{secrets.token_hex(8)}",
        savepoints.job,
        savepoints.clock.now_ms(),
        chosen,
        (*(file.path for _, file in copies), *segments),
        lasting=False,
    )
    FileReferences(folder).put(reference)
    try:
        copied = [0, 0]

        def done(file: ExportedFile) -> None:
            copied[0], copied[1] = copied[0] + 1, copied[1] + file.bytes
            crash_point("import-copied")
            if on_copy is not None:
                on_copy(CopyProgress(copied[0], len(copies), copied[1], sum(item.bytes for _, item in copies)))

        copy_all(((origin, path, file) for path, file in copies), folder, done=done)
        for path, content in segments.items():
            folder.put(path, content)
        # The versions are of the exporting job's tables.
        info = replace(index.info, kind="imported", by=by, imported_from=str(origin.location), tables={})
        savepoints.pins.adopt(chosen, data, about=to_jsonable(info))
    finally:
        FileReferences(folder).remove(reference.name)
    return savepoints.get(chosen)


def _relocated(
    stored: EpochRecord, listed: dict[str, ExportedFile], token: str, origin: JobStore
) -> tuple[EpochRecord, list[tuple[str, ExportedFile]]]:
    """Return the record as it will be in the job's folder, and the files to copy."""

    def stated(path: str) -> ExportedFile:
        found = listed.get(path)
        if found is None:
            raise damaged("is not in the export's index", origin.spark_uri(path))
        return found

    # Separate folders, so that no existing file, which may be about to be swept, is mistaken for a file of the import.
    files = [file for operator in stored.operators.values() for file in operator.files]
    state = {(file.owner, file.path): f"state/imported-{token}/{file.path.partition('/')[2]}" for file in files}
    logs = {
        file.path: f"{source_folder(name)}/{file.name}-{token}-{file.sha256[:16]}"
        for name, log in stored.source_logs.items()
        for file in log.files
    }
    moves = {path: to for (_, path), to in state.items()} | logs
    copies = [(path, replace(stated(path), path=to)) for path, to in moves.items()]
    return with_paths(stored, state, logs), copies
