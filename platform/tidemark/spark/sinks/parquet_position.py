"""The position of a folder of Parquet files, by the note in it of what a job published to it (``folder_note``).

The files alone do not show whether the folder is still the one that a job published to: old ones may be deleted, and with
``readers_move_files`` readers may take new ones away, too. Without it, some of the newest epoch's must exist.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace

from tidemark.savepoints.delta.folder_note import GONE, KIND, FolderNote, lost_since, note_path, read_note
from tidemark.savepoints.delta.table_position import NO_TABLE, LostEpochs
from tidemark.spark.sinks.staging.missing import OutputPosition, published_files_lost
from tidemark.state.log.records import OutputRecord, ParentRef, SinkPosition
from tidemark.state.store.documents import write_document
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")


class ParquetPosition(OutputPosition):
    """One output's folder position, as far as the job knows.

    Args:
        output: its name.
        job: the job's name.
        store: at the folder.
        made: whether the folder was created just now.
        readers_move_files: whether readers take files away, so that missing files prove no loss.
    """

    def __init__(self, output: str, job: str, store: JobStore, *, made: bool, readers_move_files: bool) -> None:
        super().__init__(output, job, store)
        self._made = made
        self._readers_move_files = readers_move_files
        self._said = False

    def require_whole(self) -> None:
        """Make sure that the folder is the one that was published to, and has files of the newest epoch.

        Raises:
            MissingEpochsError: it is another folder, or an older copy of it, or all files of that epoch were deleted.
            CorruptStoreError: its note is damaged.
            StoreError: its note cannot be read.
        """
        known, note = self.known, self._note()
        if known is None or known.epoch < 0:
            newest = self.expected.newest
            if known is None and newest is not None and self._made:
                raise self.missing(SinkPosition(lineage=newest[0], epoch=newest[1]), LostEpochs(-1, "there is no such folder any more"))
            # Files that the job's log does not know may be missing: a rewind leaves later files, and they may be deleted.
            self.known = replace(note.position, lineage="", epoch=-1) if note is not None else NO_TABLE
            return
        lost = lost_since(known, note)
        if lost is not None:
            raise self.missing(known, lost)
        if note is not None:
            self.known = replace(known, table=note.folder, version=note.count, since=note.count)
            # At a start the log has the position before the newest epoch, which may be old; the note may have one that was rewound.
            self.require_files((known.lineage, known.epoch), *note.epochs)

    def require_whole_since(self, position: SinkPosition) -> None:
        """Make sure that the folder holds all up to a position, as ``require_whole`` does; the known position stays."""
        kept, self.known = self.known, position
        try:
            self.require_whole()
        finally:
            self.known = kept

    def require_files(self, *epochs: tuple[str, int]) -> None:
        """Make sure that one of some published epochs still has files here; logs once where only some of them are missing.

        Args:
            epochs: by lineage and number; the error names the first.

        Raises:
            MissingEpochsError: no file exists, the loss was not accepted, and ``readers_move_files`` is not set.
            StoreError: the folder cannot be listed.
        """
        if self._readers_move_files or self._accepted(*epochs[0]):
            return
        if any(self.store.exists(final_name(lineage, epoch, 0)) for lineage, epoch in dict.fromkeys(epochs)):
            return
        epoch = epochs[0][1]
        if not self._has_files(*epochs):
            raise published_files_lost(self.output, self.job, str(self.store.location), epoch)
        if not self._said:
            self._said = True
            text = "output %r: some files of epoch %d are no longer in %s; the job continues"
            logger.warning(text, self.output, epoch, self.store.location)

    def publishing(self, lineage: str, epoch: int) -> None:
        """Note that an epoch's files are about to be moved: readers may take them away before ``published`` notes that they were."""
        note = self._note(lineage)
        if note is None:
            note = FolderNote(secrets.token_hex(8), 0, "", -1)
        if (lineage, epoch) not in note.epochs:
            self._write(replace(note, moving=ParentRef(lineage, epoch)))

    def published(self, lineage: str, epoch: int) -> None:
        """Note that an epoch was published."""
        note = self._note(lineage)
        if note is None:
            note = FolderNote(secrets.token_hex(8), 1, lineage, epoch)
        elif (note.lineage, note.epoch) != (lineage, epoch):
            note = FolderNote(note.folder, note.count + 1, lineage, epoch)
        note = replace(note, moving=None)
        self._write(note)
        self.known = replace(note.position, entry=GONE if self._accepted(lineage, epoch) else "")

    def adopt(self) -> None:
        """Accept the folder as it is, also without the newest epoch's files."""
        note = self._note()
        if note is None:
            self.known = NO_TABLE
        else:
            self.known = replace(note.position, entry="" if self._has_files(*note.epochs) else GONE)

    @property
    def newest(self) -> tuple[str, int] | None:
        """Lineage and number of the newest epoch in the folder's note."""
        note = self._note()
        return (note.lineage, note.epoch) if note is not None and note.count else None

    def is_noted(self, lineage: str, epoch: int) -> bool:
        """Return whether the folder's note has an epoch as the newest, or as one whose files are being moved."""
        note = self._note(lineage)
        return note is not None and (lineage, epoch) in note.epochs

    def _write(self, note: FolderNote) -> None:
        write_document(self.store, note_path(self.job, self.output), kind=KIND, value=note)

    def _note(self, *lineages: str) -> FolderNote | None:
        newest = self.expected.newest
        return read_note(self.store, self.job, self.output, self.known, (*lineages, newest[0]) if newest is not None else lineages)

    def _has_files(self, *epochs: tuple[str, int]) -> bool:
        return any(file.path.startswith(tuple(final_prefix(*epoch) for epoch in epochs)) for file in self.store.list())

    def _accepted(self, lineage: str, epoch: int) -> bool:
        known = self.known
        return known is not None and known.entry == GONE and (known.lineage, known.epoch) == (lineage, epoch)


def final_prefix(lineage: str, epoch: int) -> str:
    """Return the prefix of the names of an epoch's files."""
    return f"part-{lineage}-{epoch:012d}-"


def final_name(lineage: str, epoch: int, number: int) -> str:
    """Return the name that a file of an epoch has for readers."""
    return f"{final_prefix(lineage, epoch)}{number:05d}.parquet"


def final_names(record: OutputRecord, lineage: str, epoch: int) -> list[str]:
    """Return the names that an epoch's files have for readers, in their order."""
    return [final_name(lineage, epoch, number) for number in range(len(record.files))]
