"""The intent of the current epoch: one small file, so that an epoch that is replayed after a crash has the same processing time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.errors import CorruptStoreError
from tidemark.state.encoding.codec import added_mapping_field, from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope
from tidemark.state.log.offset_log import files_of
from tidemark.state.log.records import StateFile
from tidemark.state.store.layout import PLAN
from tidemark.state.store.store import JobStore

KIND = "plan"


@dataclass(frozen=True)
class TableVersion:
    """A version of a table that an operator reads.

    ``version`` is the table's own number of it; of a table that keeps no versions, a hash of its rows. These were copied when an epoch was
    planned: ``files`` are files of the operator's state, with columns ``schema``, Spark's JSON text, which is empty without a copy.
    ``listing`` is a hash of the names, sizes and times of the files that were copied.
    """

    version: str
    files: tuple[StateFile, ...] = ()
    schema: str = ""
    listing: str = ""


@dataclass(frozen=True)
class EpochIntent:
    """What an epoch's planning fixed: ``input`` is the SHA-256 of its input's offsets, ``processing_time`` in milliseconds.

    ``tables`` are the versions of the tables that operators read, by their names. ``inputs`` are the positions after the epoch, by source,
    of sources whose rows were copied to the job's folder.

    An epoch is replayed if lineage, number and input are the same; with other input it is another epoch.
    """

    lineage: str
    epoch: int
    input: str
    processing_time: int
    tables: Mapping[str, TableVersion] = added_mapping_field()
    inputs: Mapping[str, object] = added_mapping_field()

    @property
    def files(self) -> frozenset[str]:
        """The paths in the job's folder of the copies that the epoch reads: of tables, and of sources' rows."""
        tables = (file.path for table in self.tables.values() for file in table.files if not file.owner)
        return frozenset(tables).union(*map(files_of, self.inputs.values()))

    def replays(self, earlier: EpochIntent | None) -> bool:
        """Return whether an earlier intent is of the same epoch over the same input."""
        return earlier is not None and (self.lineage, self.epoch, self.input) == (earlier.lineage, earlier.epoch, earlier.input)


def write_intent(store: JobStore, intent: EpochIntent) -> None:
    """Write the intent, replacing that of the epoch before. ``store`` is the store at the job's folder."""
    store.put(PLAN, encode_envelope(KIND, to_jsonable(intent)))


def read_intent(store: JobStore) -> EpochIntent | None:
    """Return the newest intent; None if there is none or it is damaged: its epoch is then planned again.

    Raises:
        FormatError: a newer release wrote it.
    """
    try:
        _, body = decode_envelope(store.get(PLAN), kind=KIND, path=PLAN)
        return from_jsonable(EpochIntent, body, path=PLAN)
    except (FileNotFoundError, CorruptStoreError):
        return None
