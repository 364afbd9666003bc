"""Sessions in state files. Every row is a whole session as of the epoch that wrote it.

Where sessions are few, or an epoch touches many of them, all are rewritten and older files are dropped. Otherwise an epoch writes
only those that it touched, and their older versions stay in older files. Sessions only grow, so a row is outdated if and only
if another row of its key contains its bounds, from a later epoch where they are the same. Hence files may be merged in any grouping, and
dropped as soon as all their sessions have expired: a contained session has ended no later.

Whether a row's pane was emitted by the time it is read again follows from the watermark: rows are written before their epoch fires.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from tidemark.spark.columns.expressions import ROWS, START, quoted
from tidemark.spark.columns.schemas import struct_of
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.tables import StateTables, stagings
from tidemark.spark.operators.session.session_input import END
from tidemark.spark.operators.session.session_merging import GROWN, NOTHING_OUT, OUT, OUT_KIND, OWN_BOUNDS, PANES, STARTS_OUT, over
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EPOCH = "__tm_epoch"
PENDING = "__tm_pending"
"""Whether a row has a pane when the watermark reaches its end, also in its own epoch."""

REMEMBERED = {PENDING: "true", PANES: "0", OUT: NOTHING_OUT, GROWN: "false"}
_NEWER = "__tm_newer"


class SessionState:
    """The state files of an operator, as DataFrames.

    Args:
        tables: the operator's files, with the bounds of their sessions' ends.
        partials: its keys and aggregates.
        remembers: whether sessions are kept after their panes, so that rows have columns of these.
        remembered: these columns, with the value of rows that lack them.
    """

    def __init__(
        self, tables: StateTables, partials: Partials, *, remembers: bool, remembered: Mapping[str, str] = MappingProxyType(REMEMBERED)
    ) -> None:
        self._tables = tables
        self._partials = partials
        self._keys = [quoted(key) for key in partials.keys]
        self._remembers = remembers
        self._remembered_columns = remembered

    def rows(self, files: Iterable[StateFile], expired_end: int, *, bare: bool = False) -> DataFrame:
        """Return rows that end after ``expired_end``, including outdated ones; with ``bare`` only keys and bounds."""
        stored = self._tables.read(files)
        found = stored.where(f"{END} > {runtime_literals(expired_end, varying=END)[0]}")
        columns = [*self._keys, START, END]
        if not bare:
            columns += [EPOCH, *map(quoted, self._partials.columns), *self._remembered(stored.columns)]
        return found.selectExpr(*columns)

    def newest(self, files: Sequence[StateFile], expired_end: int, *, of: DataFrame | None = None) -> DataFrame:
        """Return rows that end after ``expired_end`` and are not outdated by a row of these files.

        Args:
            files: to be read.
            expired_end: the last end to leave out.
            of: the keys to look up, few enough to be broadcast; None for all.
        """
        rows = self.rows(files, expired_end)
        if of is not None:
            rows = self.of_keys(rows, of)
        if len(stagings(files)) <= 1:
            return rows
        # A row that an epoch writes when a session fires is newer than the one that it wrote before.
        order = over(self._keys, f"{START}, {END} DESC, {EPOCH} DESC{f', {PANES} DESC' if self._remembers else ''}")
        reach = f"max({END}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        return rows.selectExpr("*", f"{reach} AS {_NEWER}").where(f"{_NEWER} IS NULL OR {_NEWER} < {END}").drop(_NEWER)

    def of_keys(self, rows: DataFrame, keys: DataFrame) -> DataFrame:
        """Return rows with one of these keys; null equals null."""
        if not self._keys:
            return rows
        names = [f"__tm_key_{number}" for number in range(len(self._keys))]
        wanted = keys.selectExpr(*(f"{key} AS {name}" for key, name in zip(self._keys, names, strict=True)))
        same = " AND ".join(f"{key} <=> {name}" for key, name in zip(self._keys, names, strict=True))
        return rows.join(F.broadcast(wanted), F.expr(same), "left_semi")

    def as_of(self, rows: DataFrame, watermark: int) -> DataFrame:
        """Return rows of earlier epochs as they are after the panes up to a watermark; without the columns that only versions need."""
        kept = self.columns
        if not self._remembers:
            return rows.selectExpr(*kept)
        fired = f"({PENDING} AND {END} - 1 <= {runtime_literals(watermark)[0]})"
        return rows.selectExpr(
            *kept,
            f"{PANES} + if({fired}, 1, 0) AS {PANES}",
            f"if({fired}, {OWN_BOUNDS}, {OUT}) AS {OUT}",
            f"{GROWN} AND NOT {fired} AS {GROWN}",
        )

    def written(self, merged: FrameSteps, epoch: int, watermark: int) -> DataFrame:
        """Return merged sessions as they are stored, before their epoch fires; ``watermark`` is that after the epoch before."""
        number, before = runtime_literals(epoch, watermark)
        marks = [f"{ROWS} > 0 OR {END} - 1 > {before} AS {PENDING}", PANES, OUT, GROWN] if self._remembers else []
        return merged.select(*self.columns, f"{number} AS {EPOCH}", *marks).frame()

    @property
    def columns(self) -> list[str]:
        """The columns of every session: keys, bounds, partials; quoted."""
        return [*self._keys, START, END, *map(quoted, self._partials.columns)]

    def _remembered(self, stored: Sequence[str]) -> list[str]:
        """Return the columns of rows' panes; rows that were written without allowed lateness have not fired while they exist."""
        if not self._remembers:
            return []
        none = (
            {**self._remembered_columns, OUT: _bounds_of_starts(self._remembered_columns[GROWN])}
            if STARTS_OUT in stored
            else self._remembered_columns
        )
        return [f"coalesce({name}, {other}) AS {name}" if name in stored else f"{other} AS {name}" for name, other in none.items()]


def bounds_column() -> StructField:
    """Return the column of state with the bounds of emitted results."""
    return struct_of(f"{OUT} {OUT_KIND}")[OUT]


def _bounds_of_starts(not_grown: str) -> str:
    """Return the bounds of emitted results where a row has only their starts: those of a session that has not grown are its own."""
    own = f"NOT coalesce({GROWN}, {not_grown}) AND s = {START}"
    found = f"transform({STARTS_OUT}, s -> named_struct('start', s, 'end', if({own}, {END}, CAST(NULL AS BIGINT))))"
    return f"coalesce({found}, {NOTHING_OUT})"
