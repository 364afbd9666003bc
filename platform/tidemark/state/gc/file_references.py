"""References to files of a job that another job needs, which keep them as a pin keeps an epoch's.

A job that was restored from another job's savepoint reads that job's state files in place. It adds a reference before its first record
names them, and removes it once none of its epochs does. An import references its copies until its savepoint names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.errors import CorruptStoreError
from tidemark.state.log.slots import Slots
from tidemark.state.store.documents import create_document, read_document
from tidemark.state.store.layout import FILE_REFERENCES, file_reference_path
from tidemark.state.store.store import JobStore

KIND: Final = "hold"

ABANDONED_MS: Final = 7 * 24 * 60 * 60 * 1000
"""After this time, a reference of a job without a log belongs to a restore, or an import, that was never finished."""

_LISTINGS: Final = 20
_MEND: Final = (
    "restore the file from a backup of the job store; or, if the job that its name ends with was deleted, or no longer reads this job's "
    "files, delete it; until then no file of this job is swept"
)


@dataclass(frozen=True)
class FileReference:
    """Files that are in use: by which job, since when (milliseconds), for which savepoint. Paths are relative to the owner's folder.

    ``lasting``: as long as the job has epochs that name them. Else the work that added the reference removes it when it is done.
    """

    name: str
    job: str
    held_at: int
    savepoint: str
    files: tuple[str, ...]
    lasting: bool = True


@dataclass(frozen=True)
class FileReferences:
    """The references to a job's files. ``store`` is the store at that job's folder."""

    store: JobStore

    def put(self, reference: FileReference) -> None:
        """Add a reference; when this returns, none of its files that something keeps now will be deleted until it is removed.

        Names are used once: a retry takes another one.

        Raises:
            FileExistsError: there is another reference of that name.
        """
        if not create_document(self.store, file_reference_path(reference.name), kind=KIND, value=reference):
            raise FileExistsError(reference.name)

    def get(self, name: str) -> FileReference | None:
        """Return a reference, None if there is none of that name.

        Raises:
            CorruptStoreError: it is damaged.
        """
        path = file_reference_path(name)
        try:
            return read_document(self.store, path, kind=KIND, form=FileReference)
        except CorruptStoreError as error:
            raise CorruptStoreError(error.what, fix=_MEND, place=str(self.store.location.joined(path))) from error

    def list(self) -> tuple[FileReference, ...]:
        """Return all references, by name.

        Raises:
            CorruptStoreError: one is damaged.
        """
        found: list[FileReference | None] = []
        for _ in range(_LISTINGS):
            paths = [file.path for file in self.store.list(FILE_REFERENCES) if file.path.endswith(".json")]
            found = [self.get(path.removeprefix(f"{FILE_REFERENCES}/").removesuffix(".json")) for path in paths]
            # One that was removed during the listing may have been replaced by another one for the same files: list again.
            if all(found):
                return tuple(reference for reference in found if reference is not None)
        raise CorruptStoreError(
            f"the file references in {FILE_REFERENCES} change faster than they can be listed",
            fix="try again",
            place=self.store.spark_uri(FILE_REFERENCES),
        )

    def remove(self, name: str) -> None:
        """Remove a reference; one that does not exist is fine."""
        self.store.delete([file_reference_path(name)])


def files_referenced_by_others(store: JobStore, *, now_ms: int) -> frozenset[str]:
    """Return the files of a job that others reference. Removes references that were abandoned long ago.

    Args:
        store: the store at the job's folder.
        now_ms: the time.

    Raises:
        CorruptStoreError: a reference is damaged.
    """
    references = FileReferences(store)
    files: set[str] = set()
    for reference in references.list():
        if now_ms - reference.held_at > ABANDONED_MS and (
            not reference.lasting or not Slots(store.sibling(reference.job)).extent().next_slot
        ):
            references.remove(reference.name)
        else:
            files.update(reference.files)
    return frozenset(files)
