"""The rows of an input that an epoch concerns: its changes, and the stored rows whose keys have changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.few_rows import FEW_ROWS
from tidemark.spark.operators.changelog.contents import HASH, Contents
from tidemark.spark.operators.keyed.key_table import union_of
from tidemark.spark.operators.regular_join.frames import WHOLE
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_BROADCAST: Final = 2_000_000
"""Up to so many hashes of changed keys are sent to each task that reads state."""

MOST_OF: Final = 2
"""Where an epoch has changes for one of so many stored rows, reading all of these costs less than to look up those with its keys."""


@dataclass(frozen=True)
class Concerned:
    """The rows of one input.

    Args:
        contents: its table.
        changes: the files with its changes in this epoch.
        stored: the files that it had before, where keys are looked up in them.
        asked: the tables and files whose rows have the keys that are looked up; none where there is nothing to look up.
        flipped: the hashes of the only keys whose stored rows changes of the other input concern, where they are known.
        native: whether the job runs no Python function, so that few rows are read in one task.
    """

    contents: Contents
    changes: Sequence[StateFile]
    stored: Sequence[StateFile]
    asked: Sequence[tuple[Contents, Sequence[StateFile]]]
    native: bool
    flipped: DataFrame | None = None

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
        """Return the ``changes``, and the ``stored`` rows with their keys, where there are such; with ``WHOLE``."""
        found = {"changes": self.contents.read(self.changes).withColumn(WHOLE, F.lit(True))} if self.changes else {}
        if self.asked and self.stored and self._most:
            # That a row may be in a result is only said of more than it is true of.
            found["stored"] = self.contents.read(self.stored).withColumn(WHOLE, F.lit(True))
        elif self.asked and self.stored:
            found["stored"] = self._looked_up(self.contents.read(self.stored), self._hashes())
        return found

    @property
    def _most(self) -> bool:
        """Whether there are so many changes that most stored rows have one of their keys: then all are read."""
        changed = sum(file.rows for _, files in self.asked for file in files)
        stored = sum(file.rows for file in self.stored)
        return self.flipped is None and not self.few and stored > FEW_ROWS and MOST_OF * changed >= stored

    def _hashes(self) -> DataFrame:
        """Return the hashes of the keys that are looked up, and whether the other input has changes of them."""
        marked = []
        for contents, files in self.asked:
            other = contents.part != self.contents.part
            hashes = contents.read(files).select(HASH) if not other or self.flipped is None else self.flipped
            marked.append(hashes.withColumn(WHOLE, F.lit(other)))
        return union_of(marked).groupBy(HASH).agg(F.max(WHOLE).alias(WHOLE))

    def _looked_up(self, stored: DataFrame, hashes: DataFrame) -> DataFrame:
        """Return the stored rows with some hashes, and what is said of these."""
        changed = sum(file.rows for _, files in self.asked for file in files)
        found = self.contents.pages(stored, hashes, changed)
        if found is None and self.native and self.contents.stored_rows <= FEW_ROWS:
            asked = hashes.hint("merge")
        else:
            asked = F.broadcast(hashes) if changed <= MOST_BROADCAST else hashes
        return (stored if found is None else found).join(asked, HASH).select(*map(quoted, stored.columns), WHOLE)
