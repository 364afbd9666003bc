"""The frames of kinds that make a changelog of rows: each key's row before an epoch and after it, and what changes in the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as T

from tidemark.semantics.keyed_process.declarations import StateTtl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT: Final = "__tm_kept"
"""The row of the state that an epoch writes, as a struct; null where it writes none."""

HAD: Final = "__tm_had"
"""Whether the state had such a row."""

ACCEPTED: Final = "__tm_accepted"
OTHERS: Final = "__tm_others"
"""How many rows of the input were accepted, and how many not."""


class PairsFrames(ABC):
    """The frames of a kind. Nothing runs until a returned frame is written.

    ``identity`` and ``lookup`` are the columns of the state that identify a row, and those that it is looked up by. ``together`` are those
    of the groups whose rows expire when the last of them does; None where each expires by itself.
    """

    identity: tuple[str, ...]
    lookup: tuple[str, ...]
    ttl: StateTtl | None = None
    together: tuple[str, ...] | None = None

    @abstractmethod
    def columns(self, rows: DataFrame) -> T.StructType:
        """Return the columns of the state, without those of ``Contents``; all nullable."""

    @abstractmethod
    def lookup_values(self, rows: DataFrame) -> DataFrame:
        """Return the columns that the stored rows of an epoch's rows are looked up by, named as in the state."""

    @abstractmethod
    def pairs(self, rows: DataFrame, stored: DataFrame | None, *, in_one: bool) -> DataFrame:
        """Return a row for each key: ``BEFORE``, ``AFTER`` (null where nothing changes), ``KEPT``, ``GONE``, ``HAD`` and the counts.

        ``EXPIRED`` says of a row that is written whether the stored one had expired.

        Args:
            rows: of the epoch.
            stored: the rows of the state with ``EXPIRED``, of these keys and perhaps of others; None where there are none.
            in_one: whether there are few rows, which are processed in one task.
        """

    @abstractmethod
    def shown(self, stored: DataFrame) -> DataFrame:
        """Return rows of the state as users see them."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The columns that are known before there is any input."""

    def writes_once(self, columns: T.StructType) -> bool:
        """Whether rows of the state are small and each of an epoch's is a change, so that they are written beside the rows before.

        Args:
            columns: of the state.
        """
        del columns
        return False

    def rows_after(self, names: Sequence[str]) -> str:
        """Return SQL of the row that users see of a row of the state, as a struct; for kinds that write rows once.

        Args:
            names: the columns of the state.
        """
        raise NotImplementedError(", ".join(names))

    def final(self, watermark: int) -> str | None:
        """Return SQL of whether a stored row can change no more, so that it need not be kept; None where each may."""
        del watermark
        return None
