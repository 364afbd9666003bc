"""The rows of an input that an epoch concerns: its changes, and the stored rows whose keys have changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.few_rows import FEW_ROWS
from tidemark.spark.operators.changelog.contents import HASH, Contents
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_BROADCAST: Final = 2_000_000
"""Up to so many hashes of changed keys are sent to each task that reads state."""


@dataclass(frozen=True)
class Concerned:
    """The rows of one input.

    Args:
        contents: its table.
        changes: the files with its changes in this epoch.
        stored: the files that it had before, where keys are looked up in them.
        asked: the tables and files whose rows have the keys that are looked up; none where there is nothing to look up.
        native: whether the job runs no Python function, so that few rows are read in one task.
    """

    contents: Contents
    changes: Sequence[StateFile]
    stored: Sequence[StateFile]
    asked: Sequence[tuple[Contents, Sequence[StateFile]]]
    native: bool

    @property
    def few(self) -> bool:
        """Whether the table has few rows, which are read in one task and have their hashes."""
        return self.native and self.contents.stored_rows <= FEW_ROWS and self.contents.has_hashes

    @property
    def scans(self) -> list[Sequence[StateFile]]:
        """The files that are read, in the order in which ``parts`` reads them."""
        looked_up = [self.stored, *(files for _, files in self.asked)] if self.stored and self.asked else []
        return [files for files in (self.changes, *looked_up) if files]

    def parts(self) -> Mapping[str, DataFrame]:
        """Return the ``changes``, and the ``stored`` rows with their keys, where there are such."""
        found = {"changes": self.contents.read(self.changes)} if self.changes else {}
        if self.asked and self.stored:
            first, *others = (contents.read(files).select(HASH) for contents, files in self.asked)
            for other in others:
                first = first.union(other)
            found["stored"] = self._looked_up(self.contents.read(self.stored), first.distinct())
        return found

    def _looked_up(self, stored: DataFrame, hashes: DataFrame) -> DataFrame:
        """Return the stored rows with some hashes."""
        changed = sum(file.rows for _, files in self.asked for file in files)
        found = self.contents.pages(stored, hashes, changed)
        if found is not None:
            return found
        if self.native and self.contents.stored_rows <= FEW_ROWS:
            asked = hashes.hint("merge")
        else:
            asked = F.broadcast(hashes) if changed <= MOST_BROADCAST else hashes
        return stored.join(asked, HASH, "left_semi").select(*map(quoted, stored.columns))
