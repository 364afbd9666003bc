"""Stagings: folders that rows of one attempt at one epoch are written to, before anything refers to them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.log.records import OutputRecord

if TYPE_CHECKING:
    from pyspark.sql import types as T

SINK_COMPRESSION: Final = "snappy"
"""Of staged files."""

Occupancy = Literal["missing", "empty", "taken"]
"""An output's place: does not exist; was created by the job and never had rows; has anything else."""


class Place(Protocol):
    """Where an output's rows go."""

    @property
    def kind(self) -> str:
        """The kind of sink."""
        ...

    @property
    def location(self) -> str | None:
        """The address of its table or folder, None where it has none."""
        ...


_APART = re.compile(r"(/__tm_\w+=\w+)+$")
_NAME = re.compile(r".+-\d{12}-[0-9a-f]{8}")


def new_staging(lineage: str, epoch: int) -> str:
    """Return a staging name that no other attempt has; names of one lineage sort by epoch."""
    return f"{first_staging(lineage, epoch)}-{uuid.uuid4().hex[:8]}"


def first_staging(lineage: str, epoch: int) -> str:
    """Return a text that sorts before all stagings of an epoch and after those of the epochs before it."""
    return f"{lineage}-{epoch:012d}"


def after_stagings(lineage: str) -> str:
    """Return a text that sorts after all stagings of a lineage."""
    return f"{lineage}."


def is_staging(folder: str) -> bool:
    """Return whether a folder's name could be one of ``new_staging``.

    >>> is_staging("tidemark-a1-000000000007-0123abcd"), is_staging("tidemark-a1-backup")
    (True, False)
    """
    return _NAME.fullmatch(folder) is not None


def folder_of(record: OutputRecord) -> str:
    """Return the folder that a record's files were staged in; they share one, some in folders ``column=value`` below it."""
    return _APART.sub("", record.files[0].path.rpartition("/")[0])


def record_of(
    place: Place, schema: T.StructType, files: Sequence[ParquetSummary], options: Mapping[str, str], *, rows: int | None = None
) -> OutputRecord:
    """Return the record of files that were staged for an output.

    Args:
        place: of the output.
        schema: of its rows.
        files: the staged ones.
        options: how they are published.
        rows: their number, where it is not that of the rows in the files.
    """
    return OutputRecord(
        sink=place.kind,
        location=place.location,
        schema=schema.json(),
        files=tuple(file.as_staged_file() for file in files),
        rows=sum(file.rows for file in files) if rows is None else rows,
        options=dict(options),
    )
