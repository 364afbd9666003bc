"""The note in a folder of Parquet files about a job's publications: a small file beside the stagings, updated by each publication."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tidemark.errors import TidemarkError, UnknownStoreError
from tidemark.savepoints.delta.table_position import LostEpochs
from tidemark.state.encoding.codec import added_field
from tidemark.state.log.records import EpochRecord, OutputRecord, ParentRef, SinkPosition
from tidemark.state.store.documents import read_document
from tidemark.state.store.store import JobStore

KIND: Final = "published"
STAGED: Final = "_tidemark"
"""The folder of stagings and notes in a folder of Parquet files; readers skip it."""

GONE: Final = "gone"
"""Instead of a log entry's checksum: it was accepted that the files of the position's epoch are missing."""


@dataclass(frozen=True)
class FolderNote:
    """The folder's id, how many epochs were published to it, and lineage and number of the newest.

    ``moving`` is the epoch whose files are being moved, or were when the driver was killed; a folder that had none before counts 0.
    """

    folder: str
    count: int
    lineage: str
    epoch: int
    moving: ParentRef | None = added_field(None)  # noqa: RUF009 - it returns a field

    @property
    def epochs(self) -> tuple[tuple[str, int], ...]:
        """Lineage and number of the epochs whose files may exist: the newest, and the one whose files are being moved."""
        newest = ((self.lineage, self.epoch),) if self.count else ()
        return (*newest, (self.moving.lineage, self.moving.epoch)) if self.moving is not None else newest

    @property
    def position(self) -> SinkPosition:
        """The position in the form of the job's log."""
        return SinkPosition(self.folder, self.count, "", self.lineage, self.epoch, self.count)


def note_path(job: str, output: str) -> str:
    """Return where the note of a job's output lies in the output's folder. No name has a ``=``, so no two outputs have one note."""
    return f"{STAGED}/published-{job}={output}.json"


def read_note(
    store: JobStore, job: str, output: str, known: SinkPosition | None = None, lineages: Collection[str] = ()
) -> FolderNote | None:
    """Return the note of a job's output, None if there is none.

    Until this build has written a note, one of an earlier build is read. That may be another output's: the note of job ``a`` and output
    ``b-c`` had the same name as that of job ``a-b`` and output ``c``.

    Args:
        store: at the folder.
        job: the job's name.
        output: the output's.
        known: the folder's position in the job's log; it and the lineages identify the owner of a note.
        lineages: the job's, as far as they are known.

    Raises:
        CorruptStoreError: it is damaged.
        StoreError: it cannot be read.
    """
    note = read_document(store, note_path(job, output), kind=KIND, form=FolderNote)
    if note is not None:
        return note
    former = read_document(store, f"{STAGED}/published-{job}-{output}.json", kind=KIND, form=FolderNote)
    if former is None or "-" not in f"{job}{output}":
        return former
    ours = former.lineage in lineages or (known is not None and (former.folder == known.table or former.lineage == known.lineage))
    return former if ours else None


def position_after(record: EpochRecord, output: str) -> SinkPosition | None:
    """Return the position of an output's folder once an epoch is published; None if the log of an earlier release does not say."""
    stored = record.outputs.get(output)
    before = stored.before if stored is not None else None
    if stored is None or before is None or not stored.files:
        return before
    count = max(before.version, 0) + 1
    return SinkPosition(before.table, count, "", record.lineage, record.epoch, count)


def lost_since(known: SinkPosition, note: FolderNote | None) -> LostEpochs | None:
    """Return which epochs a folder has lost since a position in the job's log, by its note; None if none."""
    if note is None:
        return LostEpochs(-1, "it has no note of its publications; it was deleted, emptied or replaced")
    if known.table and note.folder != known.table:
        return LostEpochs(note.count, "it is another folder", other=True)
    if note.count < known.version:
        return LostEpochs(note.count, "an older copy of it was restored")
    return None


def kept_position(record: EpochRecord, output: str, stored: OutputRecord) -> OutputRecord:
    """Return an output as of an epoch, with the position that its folder must have then: the next start checks it."""
    position = position_after(record, output)
    if stored.sink != "parquet" or position is None or record.outputs[output].location != stored.location:
        return stored
    return replace(stored, before=position)


def folder_lost(record: EpochRecord, output: str, *, published: bool = True) -> LostEpochs | None:
    """Return what an output's folder has lost of an epoch and those before it, by its note; None if nothing, or if unknown.

    Args:
        record: of the epoch, with the positions of before.
        output: its name.
        published: whether the epoch itself has to be there; else only those before it.
    """
    stored = record.outputs.get(output)
    known = stored.before if stored is not None and not published else position_after(record, output)
    if stored is None or stored.sink != "parquet" or stored.location is None or known is None or known.epoch < 0:
        return None
    try:
        note = read_note(JobStore.open(stored.location, make=False), record.job, output, known)
    except UnknownStoreError:
        return LostEpochs(-1, "the folder does not exist any more")
    except TidemarkError as error:
        return LostEpochs(-1, error.what)
    return lost_since(known, note)
