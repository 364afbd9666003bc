"""What a folder of Parquet files keeps of what a job published to it: a small note beside the stagings, written after each publication.

Readers may take files away, so that the files alone do not tell whether the folder is still the one that a job published to.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import Final

from tidemark.savepoints.table_position import NO_TABLE, Lost
from tidemark.spark.missing import OutputPosition
from tidemark.state.records import OutputRecord, SinkPosition
from tidemark.state.sealed import read_sealed, write_sealed
from tidemark.state.store import JobStore

logger = logging.getLogger("tidemark")

KIND: Final = "published"


@dataclass(frozen=True)
class FolderNote:
    """The folder's own name, how many epochs were published to it, and lineage and number of the newest."""

    folder: str
    count: int
    lineage: str
    epoch: int

    @property
    def position(self) -> SinkPosition:
        """The same, as the job's log keeps it."""
        return SinkPosition(self.folder, self.count, "", self.lineage, self.epoch, self.count)


class ParquetPosition(OutputPosition):
    """Where one output's folder stands, as far as the job knows.

    Args:
        output: its name.
        job: the job's name.
        store: at the folder.
        path: of the note.
        made: whether the folder was made just now.
    """

    def __init__(self, output: str, job: str, store: JobStore, path: str, *, made: bool) -> None:
        super().__init__(output, job, store)
        self._path = path
        self._made = made
        self._looked = False

    def require_whole(self) -> None:
        """Make sure that the folder is the one that was published to.

        Raises:
            MissingEpochsError: it is not, or an older copy of it.
            CorruptStoreError: its note is damaged.
            StoreError: its note cannot be read.
        """
        known, note = self.known, self._note()
        if known is None or known.epoch < 0:
            newest = self.expected.newest
            if known is None and newest is not None and self._made:
                raise self.missing(SinkPosition(lineage=newest[0], epoch=newest[1]), Lost(-1, "there is no such folder any more"))
            self.known = note.position if note is not None else NO_TABLE
        elif note is None:
            why = "it has no note of what was published to it; it was deleted, emptied or replaced"
            raise self.missing(known, Lost(-1, why))
        elif note.folder != known.table:
            raise self.missing(known, Lost(note.count, "it is another folder"))
        elif note.count < known.version:
            raise self.missing(known, Lost(note.count, "an older copy of it was restored"))
        else:
            self.known = note.position
        self._look_for_files(self.known)

    def moved(self, lineage: str, epoch: int) -> None:
        """Note that an epoch was published."""
        note = self._note()
        if note is None:
            note = FolderNote(secrets.token_hex(8), 1, lineage, epoch)
        elif (note.lineage, note.epoch) != (lineage, epoch):
            note = FolderNote(note.folder, note.count + 1, lineage, epoch)
        write_sealed(self.store, self._path, kind=KIND, value=note)
        self.known = note.position

    def adopt(self) -> None:
        """Take the folder as it is for what it should be."""
        note = self._note()
        self.known = note.position if note is not None else NO_TABLE

    @property
    def newest(self) -> tuple[str, int] | None:
        """Lineage and number of the newest epoch that the folder's note has."""
        note = self._note()
        return (note.lineage, note.epoch) if note is not None else None

    def _note(self) -> FolderNote | None:
        return read_sealed(self.store, self._path, kind=KIND, form=FolderNote)

    def _look_for_files(self, known: SinkPosition) -> None:
        if known.epoch < 0 or self._looked:
            return
        if not self.store.exists(final_name(known.lineage, known.epoch, 0)):
            self._looked = True
            logger.warning(
                "output %r: the files of epoch %d are no longer in %s; readers may take files away, and the job goes on",
                self.output,
                known.epoch,
                self.store.location,
            )


def final_name(lineage: str, epoch: int, number: int) -> str:
    """Return the name that a file of an epoch has for readers."""
    return f"part-{lineage}-{epoch:012d}-{number:05d}.parquet"


def final_names(record: OutputRecord, lineage: str, epoch: int) -> list[str]:
    """Return the names that an epoch's files have for readers, in their order."""
    return [final_name(lineage, epoch, number) for number in range(len(record.files))]
